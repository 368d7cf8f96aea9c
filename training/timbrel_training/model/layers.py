"""The layers of the encoder and of the decoder, made of residual blocks."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from timbrel_training.model.attention import KV, CachedAttention, CrossAttention, SelfAttention
from timbrel_training.model.config import ModelConfig


class Residual(nn.Module):
    """Stands on both sides of a block: `x = residual.join(x, block(residual.enter(x)))`.

    Pre-norm: x + block(norm(x)). Post-norm (Vaswani et al., 2017): norm(x + block(x)).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.normalises_first = config.norm == "pre"

    def enter(self, x: Tensor) -> Tensor:
        """Returns the block's input."""
        return self.norm(x) if self.normalises_first else x

    def join(self, x: Tensor, change: Tensor) -> Tensor:
        """Returns the residual stream behind the block."""
        joined = x + self.dropout(change)
        return joined if self.normalises_first else self.norm(joined)


class FeedForward(nn.Module):
    """Two linear layers with an activation between them: [..., d] -> [..., d]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_feed_forward)
        self.down = nn.Linear(config.d_feed_forward, config.d_model)
        self.activation = nn.GELU() if config.activation == "gelu" else nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class EncoderLayer(nn.Module):
    """Self-attention that sees all positions, then feed-forward: [B, E, d] -> [B, E, d]."""

    n_blocks: ClassVar[int] = 2
    """Additions to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config, causal=False)
        self.self_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor) -> Tensor:
        x = self.self_residual.join(x, self.self_attention(self.self_residual.enter(x)))
        return self.feed_forward_residual.join(x, self.feed_forward(self.feed_forward_residual.enter(x)))


class CrossLayer(nn.Module):
    """A layer of the decoder.

    Masked self-attention, cross-attention to the condition, feed-forward: [B, S, d] -> [B, S, d].
    """

    n_blocks: ClassVar[int] = 3
    """Additions to the residual stream."""

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
        """Does `forward` for one position [B, 1, d] per row against its cache."""
        attended, cache = self.self_attention.step(self.self_residual.enter(x), cache, position, attention)
        x = self.self_residual.join(x, attended)
        x = self.cross_residual.join(x, self.cross_attention.step(self.cross_residual.enter(x), memory))
        return self.feed_forward_residual.join(
            x, self.feed_forward(self.feed_forward_residual.enter(x))
        ), cache
