"""The noise source: a fixed noise, filtered anew at every control point (breath, hammer, bow)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class FilteredNoise(nn.Module):
    """Filters noise by gains [B, J, sub_hop + 1] given at control points `sub_hop` samples apart.

    Windows of two segments, half overlapped: the output [B, J * sub_hop] lags one segment behind the points, like the
    oscillator's. The noise repeats after `period` segments and starts where `position` says.
    """

    table: Tensor  # [period, sub_hop]
    analysis: Tensor  # [2 * sub_hop, 2 * (sub_hop + 1)], windowed DFT: real parts, then imaginary parts
    synthesis: Tensor  # [2 * (sub_hop + 1), 2 * sub_hop], its inverse

    def __init__(self, sub_hop: int, period: int) -> None:
        super().__init__()
        self.sub_hop = sub_hop
        self.period = period
        noise = torch.randn(period, sub_hop, generator=torch.Generator().manual_seed(20260))
        self.register_buffer("table", noise.half().float())
        size = 2 * sub_hop
        n = torch.arange(size, dtype=torch.float64)
        k = torch.arange(sub_hop + 1, dtype=torch.float64)
        angle = 2 * math.pi * torch.outer(n, k) / size
        window = 0.5 - 0.5 * torch.cos(2 * math.pi * (n + 0.5) / size)
        analysis = torch.cat([torch.cos(angle), -torch.sin(angle)], dim=1) * window[:, None]
        weight = torch.full((sub_hop + 1,), 2.0, dtype=torch.float64)
        weight[0] = weight[-1] = 1.0
        synthesis = torch.cat([torch.cos(angle) * weight, -torch.sin(angle) * weight], dim=1).T / size
        self.register_buffer("analysis", analysis.float(), persistent=False)
        self.register_buffer("synthesis", synthesis.float(), persistent=False)

    def forward(self, gains: Tensor, position: Tensor, tail: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One chunk.

        Args:
            gains: float32 [B, J, sub_hop + 1], linear gain per DFT bin.
            position: int64 [B], segments of noise used so far.
            tail: float32 [B, sub_hop], the half window still to come from the chunk before.

        Returns:
            audio float32 [B, J * sub_hop], and the new position and tail.
        """
        n_points = gains.shape[1]
        steps = torch.arange(n_points + 1, device=gains.device)
        rows = torch.remainder(position[:, None] + steps, self.period)
        segments = self.table[rows]  # [B, J + 1, sub_hop]
        windows = torch.cat([segments[:, :-1], segments[:, 1:]], dim=2)
        spectrum = windows @ self.analysis
        filtered = (spectrum * torch.cat([gains, gains], dim=2)) @ self.synthesis  # [B, J, 2 * sub_hop]
        rising, falling = filtered[:, :, : self.sub_hop], filtered[:, :, self.sub_hop :]
        before = torch.cat([tail[:, None], falling[:, :-1]], dim=1)
        audio = (rising + before).flatten(1)
        return audio, torch.remainder(position + n_points, self.period), falling[:, -1]
