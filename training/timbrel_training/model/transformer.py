"""The model: a Transformer that writes a note as codec tokens (after pGESAM)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from timbrel_training.model.attention import KV
from timbrel_training.model.config import N_CONDITION_POSITIONS, N_PITCHES, ModelConfig
from timbrel_training.model.decoder import TransformerDecoder
from timbrel_training.model.embeddings import FourierFeatures
from timbrel_training.model.layers import CrossLayer, EncoderLayer

MAX_VELOCITY = 127.0
PITCH_WIDTH, N_PITCH_WAVES, N_HEADER_LAYERS = 32, 16, 3
"""Sizes of HeaderNetwork."""


class HeaderNetwork(nn.Module):
    """Timbre, pitch and velocity through a plain network, all at once, to what the heads read in lead frames.

    What a codec's header says is nearly a function of the three: on this instrument, this key has that
    sample. Attention between three positions, and a decoder behind it, are slow to learn such a table; a
    network that sees the three side by side learns it in minutes. So the decoder writes what follows a
    header, and reads the header as it reads all that is written.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_rows = config.lead_frames
        self.timbre_features = FourierFeatures(2, config.n_timbre_waves)
        self.pitch = nn.Embedding(N_PITCHES, PITCH_WIDTH)
        self.pitch_features = FourierFeatures(1, N_PITCH_WAVES)
        self.velocity_features = FourierFeatures(1, config.n_velocity_waves)
        features = (self.timbre_features, self.pitch_features, self.velocity_features)
        n_inputs = PITCH_WIDTH + sum(each.n_outputs for each in features)
        widths = [n_inputs, *[config.header_width] * N_HEADER_LAYERS]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.out = nn.Linear(config.header_width, self.n_rows * config.d_model)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, timbre: Tensor, pitch: Tensor, velocity: Tensor) -> Tensor:
        """Returns [B, lead_frames, d] of timbre [B, 2], pitch int64 [B], velocity [B]."""
        height = (pitch.to(timbre.dtype) / N_PITCHES)[:, None]
        loudness = (velocity / MAX_VELOCITY)[:, None]
        heard = self.pitch_features(height), self.velocity_features(loudness)
        x = torch.cat([self.timbre_features(timbre), self.pitch(pitch), *heard], dim=1)
        for layer in self.layers:
            x = self.dropout(nn.functional.gelu(layer(x)))
        return self.out(x).unflatten(1, (self.n_rows, -1))


class ConditionEncoder(nn.Module):
    """Timbre, pitch and velocity, one position each, then layers that let them see each other.

    Velocity is a continuous input: an embedding would leave velocities untrained that no note has.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.timbre_features = FourierFeatures(2, config.n_timbre_waves)
        self.timbre = nn.Linear(self.timbre_features.n_outputs, config.d_model)
        self.pitch = nn.Embedding(N_PITCHES, config.d_model)
        self.velocity_features = FourierFeatures(1, config.n_velocity_waves)
        self.velocity = nn.Linear(self.velocity_features.n_outputs, config.d_model)
        self.positions = nn.ParameterDict(
            {"weight": 0.02 * torch.randn(N_CONDITION_POSITIONS, config.d_model)}
        )
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_encoder_layers))
        self.norm = (
            nn.LayerNorm(config.d_model, eps=config.norm_eps) if config.norm == "pre" else nn.Identity()
        )

    def forward(self, timbre: Tensor, pitch: Tensor, velocity: Tensor) -> Tensor:
        """Returns memory [B, 3, d] of timbre [B, 2] (unit disc), pitch int64 [B], velocity float32 [B]."""
        place = self.timbre(self.timbre_features(timbre))
        loudness = self.velocity(self.velocity_features((velocity / MAX_VELOCITY)[:, None]))
        x = torch.stack([place, self.pitch(pitch), loudness], dim=1)
        x = x + self.positions["weight"]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class NoteTransformer(nn.Module):
    """Timbre, pitch, velocity and gate in; codec tokens, in the delay pattern, out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.condition_encoder = ConditionEncoder(config)
        self.header = HeaderNetwork(config) if config.has_header_network else None
        self.decoder = TransformerDecoder(config)
        self._initialise()

    @property
    def n_parameters(self) -> int:
        """Trained parameters, shared ones counted once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def with_plain_embeddings(self) -> NoteTransformer:
        """Returns the same model with each token's embedding in one piece, as it ships."""
        if not self.config.digit_base:
            return self
        plain = NoteTransformer(replace(self.config, digit_base=0))
        weights = {
            name: value for name, value in self.state_dict().items() if ".parametrizations." not in name
        }
        plain.load_state_dict({**weights, "decoder.tokens.weight": self.decoder.tokens.weight})
        return plain.to(self.decoder.tokens.weight.device).train(self.training)

    def condition(self, timbre: Tensor, pitch: Tensor, velocity: Tensor) -> Tensor:
        """Returns memory [B, 3, d] of timbre float32 [B, 2], pitch int64 [B] and velocity float32 [B]."""
        return self.condition_encoder(timbre, pitch, velocity)

    def header_rows(self, timbre: Tensor, pitch: Tensor, velocity: Tensor) -> Tensor | None:
        """Returns what the heads read in lead frames [B, lead_frames, d], of the same condition; None where
        there is no header network: they read the decoder's output in every frame."""
        return None if self.header is None else self.header(timbre, pitch, velocity)

    def hidden(self, timbre: Tensor, pitch: Tensor, velocity: Tensor, tokens: Tensor, gate: Tensor) -> Tensor:
        """Does `forward` up to the output heads, for a loss that need not score every token: [B, S, d]."""
        hidden = self.decoder.hidden(tokens, gate, self.condition(timbre, pitch, velocity))
        rows = self.header_rows(timbre, pitch, velocity)
        if rows is None:
            return hidden
        n_rows = min(rows.shape[1], hidden.shape[1])
        return torch.cat([rows[:, :n_rows], hidden[:, n_rows:]], dim=1)

    def forward(
        self, timbre: Tensor, pitch: Tensor, velocity: Tensor, tokens: Tensor, gate: Tensor
    ) -> Tensor:
        """Returns logits float32 [B, S, K, V], teacher-forced: step s sees tokens[:, : s + 1] only.

        The condition is that of `condition`; each step reads tokens, int64 [B, S, K], and the gate, int64
        [B, S], which `gate_steps` makes.
        """
        hidden = self.hidden(timbre, pitch, velocity, tokens, gate)
        position = torch.arange(hidden.shape[1], device=hidden.device)
        return self.decoder.heads(hidden, self.decoder.tokens, position, self.decoder.is_held(gate))

    def empty_caches(self, batch_size: int) -> list[KV]:
        """Returns zeroed caches for `batch_size` notes, one per decoder layer."""
        config = self.config
        shape = (batch_size, config.n_kv_heads, config.max_positions, config.width_per_head)
        weight = self.decoder.tokens.weight
        return [(weight.new_zeros(shape), weight.new_zeros(shape)) for _ in self.decoder.layers]

    @torch.no_grad()
    def _initialise(self) -> None:
        """Draws weights of 0.02, biases of 0; what adds to the residual stream shrinks with depth (GPT-2)."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.weight.normal_(0.0, 0.02 if module.in_features > 2 else 0.5)
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(0.0, 0.5)
        self.decoder.gate.weight[:-1] = self.decoder.gate.weight[0]  # what a frame more means is learnt
        if self.header is not None:
            for layer in (*self.header.layers, self.header.out):
                cast("nn.Linear", layer).reset_parameters()
        for inlet in (self.condition_encoder.timbre, self.condition_encoder.velocity):
            if inlet.in_features > 2:
                inlet.weight.normal_(0.0, 0.5 * math.sqrt(2.0 / inlet.in_features))
        for stack in (self.condition_encoder.layers, self.decoder.layers):
            n_blocks = sum(layer.n_blocks for layer in cast("Iterable[EncoderLayer | CrossLayer]", stack))
            for name, parameter in stack.named_parameters():
                if name.endswith(("attention.out.weight", "down.weight")):
                    parameter.mul_(1.0 / math.sqrt(n_blocks))
