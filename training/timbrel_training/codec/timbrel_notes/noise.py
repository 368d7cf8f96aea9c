"""The noise source: a fixed noise, filtered anew at every control point (breath, hammer, bow)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class FilteredNoise(nn.Module):
    """Filters noise by gains [B, J, sub_hop + 1] given at control points `sub_hop` samples apart.

    Windows of two segments, half overlapped: the output [B, J * sub_hop] lags one segment behind the points,
    like the oscillator's. The noise repeats after `period` segments and starts where `position` says.
    """

    table: Tensor  # [period, sub_hop]
    weight: Tensor  # [sub_hop + 1], of each bin in the inverse transform
    wave: Tensor  # [2, 2 * sub_hop], one cycle of cosine and of minus sine
    window: Tensor  # [2 * sub_hop]

    def __init__(self, sub_hop: int, period: int) -> None:
        super().__init__()
        self.sub_hop = sub_hop
        self.period = period
        noise = torch.randn(period, sub_hop, generator=torch.Generator().manual_seed(20260))
        self.register_buffer("table", noise.half().float())
        size = 2 * sub_hop
        angle = 2 * math.pi * torch.arange(size, dtype=torch.float64) / size
        wave = torch.stack([torch.cos(angle), -torch.sin(angle)])
        self.register_buffer("wave", wave.float(), persistent=False)
        window = 0.5 - 0.5 * torch.cos(angle + math.pi / size)
        self.register_buffer("window", window.float(), persistent=False)
        weight = torch.full((sub_hop + 1,), 2.0 / size)
        weight[0] = weight[-1] = 1.0 / size
        self.register_buffer("weight", weight, persistent=False)

    def transform(self) -> Tensor:
        """The DFT as a matrix [2 * sub_hop, 2 * (sub_hop + 1)]: real parts, then imaginary parts."""
        size = 2 * self.sub_hop
        sample = torch.arange(size, device=self.wave.device)
        bin_number = torch.arange(self.sub_hop + 1, device=self.wave.device)
        turn = torch.remainder(sample[:, None] * bin_number, size)
        return torch.cat([self.wave[0][turn], self.wave[1][turn]], dim=1)

    def spectra(self, transform: Tensor) -> Tensor:
        """[period, 2 * (sub_hop + 1)]: of each segment with the next, windowed. A runtime finds them once."""
        after = torch.cat([self.table[1:], self.table[:1]])
        return (torch.cat([self.table, after], dim=1) * self.window) @ transform

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
        transform = self.transform()
        rows = torch.remainder(position[:, None] + torch.arange(n_points, device=gains.device), self.period)
        weighted = gains * self.weight
        shaped = self.spectra(transform)[rows] * torch.cat([weighted, weighted], dim=2)
        filtered = shaped @ transform.T  # [B, J, 2 * sub_hop]
        rising, falling = filtered[:, :, : self.sub_hop], filtered[:, :, self.sub_hop :]
        before = torch.cat([tail[:, None], falling[:, :-1]], dim=1)
        audio = (rising + before).flatten(1)
        return audio, torch.remainder(position + n_points, self.period), falling[:, -1]
