"""The position-wise feed-forward block."""

from __future__ import annotations

from torch import Tensor, nn

from timbrel_training.model.config import ModelConfig


class FeedForward(nn.Module):
    """Two linear layers with an activation between them: [..., d] -> [..., d]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_feed_forward)
        self.down = nn.Linear(config.d_feed_forward, config.d_model)
        self.activation = nn.GELU() if config.activation == "gelu" else nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))
