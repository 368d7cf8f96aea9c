"""The model: a Transformer that writes a note as codec tokens (after pGESAM)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from timbrel_training.model.attention import KV, CachedAttention, attend_cached
from timbrel_training.model.config import N_CONDITION_POSITIONS, N_PITCHES, ModelConfig
from timbrel_training.model.decoder import CrossAttentionDecoder, PrefixDecoder, TransformerDecoder
from timbrel_training.model.embeddings import FourierFeatures, LearnedPositions
from timbrel_training.model.layers import CrossLayer, EncoderLayer

MAX_VELOCITY = 127.0


class ConditionEncoder(nn.Module):
    """Timbre, pitch and velocity, one position each, then layers that let them see each other.

    Velocity is a continuous input: an embedding would leave velocities untrained that no note has. Before a
    decoder-only model the vectors are not normalised: they enter its residual stream, whose layers do that.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.timbre_features = FourierFeatures(2, config.n_timbre_waves)
        self.timbre = nn.Linear(self.timbre_features.n_outputs, config.d_model)
        self.pitch = nn.Embedding(N_PITCHES, config.d_model)
        self.velocity_features = FourierFeatures(1, config.n_velocity_waves)
        self.velocity = nn.Linear(self.velocity_features.n_outputs, config.d_model)
        self.positions = LearnedPositions(N_CONDITION_POSITIONS, config.d_model)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_encoder_layers))
        normalises = config.norm == "pre" and config.conditioning == "cross"
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps) if normalises else nn.Identity()

    def forward(self, timbre: Tensor, pitch: Tensor, velocity: Tensor) -> Tensor:
        """Returns memory [B, 3, d] of timbre [B, 2] (unit disc), pitch int64 [B], velocity float32 [B]."""
        place = self.timbre(self.timbre_features(timbre))
        loudness = self.velocity(self.velocity_features((velocity / MAX_VELOCITY)[:, None]))
        x = torch.stack([place, self.pitch(pitch), loudness], dim=1)
        x = x + self.positions.weight
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class NoteTransformer(nn.Module):
    """Timbre, pitch, velocity and gate in; codec tokens, in the delay pattern, out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.condition_encoder = ConditionEncoder(config)
        self.decoder: TransformerDecoder = (
            CrossAttentionDecoder if config.conditioning == "cross" else PrefixDecoder
        )(config)
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

    def cross_kv(self, memory: Tensor) -> list[KV]:
        """Returns each decoder layer's keys and values [B, n_kv_heads, 3, head_dim] of the memory [B, 3, d].

        Cross-attention reads them, or, in a decoder-only model, self-attention before the cache.
        """
        return self.decoder.memories(memory)

    def hidden(self, timbre: Tensor, pitch: Tensor, velocity: Tensor, tokens: Tensor, gate: Tensor) -> Tensor:
        """Does `forward` up to the output heads, for a loss that need not score every token: [B, S, d]."""
        return self.decoder.hidden(tokens, gate, self.condition(timbre, pitch, velocity))

    def forward(
        self, timbre: Tensor, pitch: Tensor, velocity: Tensor, tokens: Tensor, gate: Tensor
    ) -> Tensor:
        """Returns logits float32 [B, S, K, V], teacher-forced: step s sees tokens[:, : s + 1] only.

        The condition is that of `condition`; each step reads tokens, int64 [B, S, K], and the gate, int64
        [B, S], which is 1 while the key is held.
        """
        hidden = self.hidden(timbre, pitch, velocity, tokens, gate)
        position = torch.arange(hidden.shape[1], device=hidden.device)
        return self.decoder.heads(hidden, self.decoder.tokens, position)

    def step(
        self,
        tokens: Tensor,
        gate: Tensor,
        position: Tensor,
        caches: Sequence[KV],
        memories: Sequence[KV],
        attention: CachedAttention = attend_cached,
    ) -> tuple[Tensor, list[KV]]:
        """Does `TransformerDecoder.step`, which gives `forward`'s logits at that position."""
        return self.decoder.step(tokens, gate, position, caches, memories, attention)

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
        for inlet in (self.condition_encoder.timbre, self.condition_encoder.velocity):
            if inlet.in_features > 2:
                inlet.weight.normal_(0.0, 0.5 * math.sqrt(2.0 / inlet.in_features))
        for stack in (self.condition_encoder.layers, self.decoder.layers):
            n_blocks = sum(layer.n_blocks for layer in cast("Iterable[EncoderLayer | CrossLayer]", stack))
            for name, parameter in stack.named_parameters():
                if name.endswith(("attention.out.weight", "down.weight")):
                    parameter.mul_(1.0 / math.sqrt(n_blocks))
