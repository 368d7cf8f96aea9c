"""One layer of the encoder, one of the decoder."""

from __future__ import annotations

from torch import Tensor, nn

from timbrel_training.model.attention import KV, CachedAttention, CrossAttention, SelfAttention
from timbrel_training.model.config import ModelConfig
from timbrel_training.model.feed_forward import FeedForward
from timbrel_training.model.residual import Residual


class EncoderLayer(nn.Module):
    """Self-attention that sees all positions, then feed-forward: [B, E, d] -> [B, E, d]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config, causal=False)
        self.self_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor) -> Tensor:
        x = self.self_residual.join(x, self.self_attention(self.self_residual.enter(x)))
        return self.feed_forward_residual.join(x, self.feed_forward(self.feed_forward_residual.enter(x)))


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention to the condition, feed-forward: [B, S, d] -> [B, S, d]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config, causal=True)
        self.self_residual = Residual(config)
        self.cross_attention = CrossAttention(config)
        self.cross_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, memory: KV) -> Tensor:
        x = self.self_residual.join(x, self.self_attention(self.self_residual.enter(x)))
        x = self.cross_residual.join(x, self.cross_attention(self.cross_residual.enter(x), memory))
        return self.feed_forward_residual.join(x, self.feed_forward(self.feed_forward_residual.enter(x)))

    def step(
        self, x: Tensor, memory: KV, cache: KV, position: Tensor, attention: CachedAttention
    ) -> tuple[Tensor, KV]:
        """`forward` for one position [B, 1, d] per row against its cache."""
        attended, cache = self.self_attention.step(self.self_residual.enter(x), cache, position, attention)
        x = self.self_residual.join(x, attended)
        x = self.cross_residual.join(x, self.cross_attention.step(self.cross_residual.enter(x), memory))
        return self.feed_forward_residual.join(
            x, self.feed_forward(self.feed_forward_residual.enter(x))
        ), cache
