"""Where in the sequence a vector stands."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def sinusoidal_table(n_positions: int, width: int) -> Tensor:
    """Float32 [n_positions, width], after Vaswani et al. (2017).

    PE(p, 2i) = sin(p / 10000^(2i / width)), PE(p, 2i + 1) = cos(p / 10000^(2i / width)).
    """
    position = torch.arange(n_positions, dtype=torch.float64)[:, None]
    even = torch.arange(0, width, 2, dtype=torch.float64)
    angle = position / torch.pow(10_000.0, even / width)
    table = torch.stack([torch.sin(angle), torch.cos(angle)], dim=2).flatten(1)
    return table[:, :width].float()


class SinusoidalPositions(nn.Module):
    """A fixed table, looked up: position int64 [...] -> float32 [..., width]."""

    table: Tensor  # [n_positions, width]

    def __init__(self, n_positions: int, width: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoidal_table(n_positions, width), persistent=False)

    def forward(self, position: Tensor) -> Tensor:
        return nn.functional.embedding(position, self.table)


class LearnedPositions(nn.Module):
    """A trained table, looked up: position int64 [...] -> float32 [..., width]."""

    def __init__(self, n_positions: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(n_positions, width))

    def forward(self, position: Tensor) -> Tensor:
        return nn.functional.embedding(position, self.weight)
