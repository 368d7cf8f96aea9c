"""The decoder, which writes the note: tokens so far, gate and condition in, scores of the next tokens out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from timbrel_training.model.attention import KV, CachedAttention, attend_cached
from timbrel_training.model.config import ModelConfig
from timbrel_training.model.embeddings import OutputHeads, SinusoidalPositions, TokenEmbedding
from timbrel_training.model.layers import CrossLayer
from timbrel_training.model.sampling import SOON_FRAMES


class TransformerDecoder(nn.Module):
    """Token embeddings summed over codebooks, plus the gate's and the position's, through the layers.

    After Vaswani et al. (2017).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.tokens = TokenEmbedding(config.layout, config.d_model, config.digit_base)
        self.gate = nn.Embedding(config.release_frames + 1, config.d_model)
        self.positions = SinusoidalPositions(config.max_positions, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(CrossLayer(config) for _ in range(config.n_decoder_layers))
        self.norm = (
            nn.LayerNorm(config.d_model, eps=config.norm_eps) if config.norm == "pre" else nn.Identity()
        )
        self.heads = OutputHeads(config.layout, config.lead_frames, config.held_codes, config.released_codes)
        self.release_frames = config.release_frames

    def memories(self, condition: Tensor) -> list[KV]:
        """Returns each layer's keys and values [B, n_kv_heads, 3, head_dim] of the condition [B, 3, d]."""
        layers = cast("Iterable[CrossLayer]", self.layers)
        return [layer.cross_attention.project_memory(condition) for layer in layers]

    def hidden(self, tokens: Tensor, gate: Tensor, condition: Tensor) -> Tensor:
        """Returns [B, S, d], which the heads read, of tokens int64 [B, S, K], gate int64 [B, S], condition
        [B, 3, d]."""
        x = self.embed(tokens, gate)
        for layer, memory in zip(self.layers, self.memories(condition), strict=True):
            x = layer(x, memory)
        return self.norm(x)

    def embed(self, tokens: Tensor, gate: Tensor) -> Tensor:
        """Returns [B, S, d] of tokens int64 [B, S, K] and gate int64 [B, S], from a note's first step on."""
        position = torch.arange(tokens.shape[1], device=tokens.device)
        return self.dropout(self._embed(tokens, gate, position))

    def step(
        self,
        tokens: Tensor,
        gate: Tensor,
        position: Tensor,
        caches: Sequence[KV],
        memories: Sequence[KV],
        attention: CachedAttention = attend_cached,
        header: Tensor | None = None,
    ) -> tuple[Tensor, list[KV]]:
        """Runs one step of every row.

        Args:
            tokens: int64 [B, K], read by this step.
            gate: int64 [B], see `gate_steps`.
            position: int32 [B], this step's number: the positions that the row's cache holds already.
            caches: each layer's keys and values of the tokens [B, n_kv_heads, max_positions, head_dim].
            memories: each layer's keys and values of the condition, as `memories` gives them.
            attention: how a cache is written and read.
            header: [B, lead_frames, d], read by the heads in lead frames, where a network says them.

        Returns:
            logits float32 [B, K, V] and the new caches.
        """
        x = self._embed(tokens, gate, position.long())[:, None]
        written: list[KV] = []
        layers = cast("Iterable[CrossLayer]", self.layers)
        for layer, cache, memory in zip(layers, caches, memories, strict=True):
            x, cache = layer.step(x, memory, cache, position, attention)
            written.append(cache)
        x = self.norm(x)
        if header is not None:
            x = row_at(header, position, x)
        return self.heads(x[:, 0], self.tokens, position, self.is_held(gate)), written

    def is_held(self, gate: Tensor) -> Tensor:
        """Returns whether the key is held in frames of this gate: bool, of the same shape."""
        return gate == self.release_frames

    def rarely_ends(self, gate: Tensor) -> Tensor:
        """Returns whether a note ends only where that is likely: with the key held, and for SOON_FRAMES
        behind as far as the gate counts them. bool, of the gate's shape."""
        return gate >= max(1, self.release_frames - SOON_FRAMES)

    def _embed(self, tokens: Tensor, gate: Tensor, position: Tensor) -> Tensor:
        return self.tokens(tokens) + self.gate(gate) + self.positions(position)


def row_at(rows: Tensor, position: Tensor, beyond: Tensor) -> Tensor:
    """Returns of rows [B, R, d] that of each position int32 [B], as [B, 1, d]; `beyond` the last, that."""
    number = torch.arange(rows.shape[1], dtype=position.dtype, device=position.device)
    place = position[:, None, None]
    return torch.where(place < rows.shape[1], (place == number).to(rows.dtype) @ rows, beyond)
