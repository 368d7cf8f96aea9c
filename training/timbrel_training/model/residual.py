"""A block's residual connection and its LayerNorm, before or after."""

from __future__ import annotations

from torch import Tensor, nn

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
        """What the block reads."""
        return self.norm(x) if self.normalises_first else x

    def join(self, x: Tensor, change: Tensor) -> Tensor:
        """The residual stream behind the block."""
        joined = x + self.dropout(change)
        return joined if self.normalises_first else self.norm(joined)
