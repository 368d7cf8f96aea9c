"""Writes the note: tokens so far, gate and condition in, scores of the next tokens out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from timbrel_training.model.attention import KV, CachedAttention, attend_cached
from timbrel_training.model.config import ModelConfig
from timbrel_training.model.layers import DecoderLayer
from timbrel_training.model.positions import LearnedPositions, SinusoidalPositions
from timbrel_training.model.vocabulary import OutputHeads, TokenEmbedding


class Decoder(nn.Module):
    """Token embeddings summed over codebooks, plus the gate's and the position's, through the layers."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.tokens = TokenEmbedding(config.layout, config.d_model)
        self.gate = nn.Embedding(2, config.d_model)
        positions = SinusoidalPositions if config.positions == "sinusoidal" else LearnedPositions
        self.positions = positions(config.max_positions, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.n_decoder_layers))
        self.norm = (
            nn.LayerNorm(config.d_model, eps=config.norm_eps) if config.norm == "pre" else nn.Identity()
        )
        self.heads = OutputHeads(config.layout)

    def each_layer(self) -> Iterator[DecoderLayer]:
        """The layers, first to last."""
        return cast("Iterator[DecoderLayer]", iter(self.layers))

    def hidden(self, tokens: Tensor, gate: Tensor, memories: Sequence[KV]) -> Tensor:
        """[B, S, d], what the heads read, of tokens int64 [B, S, K] and gate int64 [B, S]."""
        position = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self._embed(tokens, gate, position))
        for layer, memory in zip(self.each_layer(), memories, strict=True):
            x = layer(x, memory)
        return self.norm(x)

    def step(
        self,
        tokens: Tensor,
        gate: Tensor,
        position: Tensor,
        caches: Sequence[KV],
        memories: Sequence[KV],
        attention: CachedAttention = attend_cached,
    ) -> tuple[Tensor, list[KV]]:
        """One step of every row.

        Args:
            tokens: int64 [B, K], read by this step.
            gate: int64 [B].
            position: int32 [B], this step's number: the positions that the row's cache holds already.
            caches: each layer's keys and values [B, n_kv_heads, max_positions, head_dim].
            memories: each layer's keys and values of the condition.
            attention: how a cache is written and read.

        Returns:
            logits float32 [B, K, V] and the new caches.
        """
        x = self._embed(tokens, gate, position.long())[:, None]
        written: list[KV] = []
        for layer, cache, memory in zip(self.each_layer(), caches, memories, strict=True):
            x, cache = layer.step(x, memory, cache, position, attention)
            written.append(cache)
        return self.heads(self.norm(x)[:, 0], self.tokens), written

    def _embed(self, tokens: Tensor, gate: Tensor, position: Tensor) -> Tensor:
        return self.tokens(tokens) + self.gate(gate) + self.positions(position)
