"""The two sound sources: a wavetable oscillator for the harmonics, and filtered noise (breath, hammer, bow).

The oscillator's single cycle is redrawn at every control point, after differentiable wavetable synthesis
(Shan et al., 2022) and DDSP (Engel et al., 2020). Phase is never coded, it is the running integral of the
fundamental: a steady tone needs the same codes frame after frame.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Oscillator(nn.Module):
    """Plays amplitudes [B, J, H] of harmonics of [B, J] Hz, given at control points `sub_hop` samples apart.

    Point j is reached at the end of segment j: the output [B, J * sub_hop] lags one segment behind.
    """

    cosine: Tensor  # [table_size], one cycle
    number: Tensor  # [H], int64, number of each harmonic
    ramp: Tensor  # [sub_hop], rising to 1
    turn: Tensor  # [H], int64, where in its cycle each harmonic starts

    def __init__(self, sample_rate: int, sub_hop: int, n_harmonics: int, table_size: int) -> None:
        super().__init__()
        self.sample_rate = sample_rate
        self.sub_hop = sub_hop
        self.table_size = table_size
        cosine = torch.cos(2 * math.pi * torch.arange(table_size, dtype=torch.float64) / table_size)
        self.register_buffer("cosine", cosine.float(), persistent=False)
        number = torch.arange(1, n_harmonics + 1)
        self.register_buffer("number", number, persistent=False)
        # Quadratic phases (Schroeder, 1970) spread the energy over the cycle: equal phases buzz.
        turn = torch.round(number.double() ** 2 * table_size / (2 * n_harmonics)).long()
        self.register_buffer("turn", turn, persistent=False)
        ramp = (torch.arange(sub_hop, dtype=torch.float64) + 1) / sub_hop
        self.register_buffer("ramp", ramp.float(), persistent=False)

    def cycle(self) -> Tensor:
        """Returns each harmonic's cosine over one cycle [H, table_size + 1]; the last sample is the first.

        Read from one cosine by whole numbers: exact, and a bundle need not ship the megabytes.
        """
        sample = torch.arange(self.table_size + 1, device=self.number.device)
        return self.cosine[
            torch.remainder(self.number[:, None] * sample + self.turn[:, None], self.table_size)
        ]

    def forward(
        self,
        amplitudes: Tensor,
        frequency: Tensor,
        start: Tensor,
        table: Tensor,
        last_frequency: Tensor,
        phase: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Plays one chunk, with the state carried from the chunk before.

        Args:
            amplitudes: float32 [B, J, H], or of the first few harmonics alone.
            frequency: float32 [B, J], Hz.
            start: int64 [B], samples of the table by which the note begins later in its cycle.
            table: float32 [B, table_size + 1], the last cycle played; zeros at the start of a note.
            last_frequency: float32 [B], Hz; 0 at the start of a note.
            phase: float64 [B], in cycles, without the start.

        Returns:
            audio float32 [B, J * sub_hop], and the new table, last_frequency, phase.
        """
        cycles = amplitudes @ self.cycle()[: amplitudes.shape[2]]  # [B, J, table_size + 1]
        tables = torch.cat([table, cycles.flatten(1)], dim=1)  # one after another
        first = torch.where(last_frequency > 0, last_frequency, frequency[:, 0])
        points = torch.cat([first[:, None], frequency], dim=1)  # [B, J + 1]
        advance = (points[:, :-1] + points[:, 1:]) * (0.5 * self.sub_hop / self.sample_rate)
        ends = phase[:, None] + torch.cumsum(advance.double(), dim=1)
        starts = torch.cat([phase[:, None], ends[:, :-1]], dim=1)
        starts = (starts - torch.floor(starts)).float()  # [B, J]
        ramp = self.ramp
        within = (self.sub_hop / self.sample_rate) * (
            points[:, :-1, None] * ramp + 0.5 * (points[:, 1:, None] - points[:, :-1, None]) * ramp * ramp
        )
        first_cycle = torch.remainder(start, self.table_size).float() / self.table_size
        turns = (starts + first_cycle[:, None])[:, :, None] + within  # [B, J, sub_hop]
        position = (turns - torch.floor(turns)) * self.table_size
        sample = torch.floor(position)
        n_table = self.table_size + 1
        places = n_table * torch.arange(frequency.shape[1], device=frequency.device)
        index = sample.long() + places[:, None]
        fraction = position - sample
        old = _read(tables, index, fraction)
        new = _read(tables, index + n_table, fraction)
        audio = old + (new - old) * ramp
        end = ends[:, -1]
        return audio.flatten(1), cycles[:, -1], frequency[:, -1], end - torch.floor(end)


def _read(tables: Tensor, index: Tensor, fraction: Tensor) -> Tensor:
    """Interpolates linearly in tables [B, N] at index + fraction [B, J, n]."""
    flat = index.flatten(1)
    low = torch.gather(tables, 1, flat).reshape(index.shape)
    high = torch.gather(tables, 1, flat + 1).reshape(index.shape)
    return low + (high - low) * fraction


class FilteredNoise(nn.Module):
    """Filters noise by gains [B, J, sub_hop + 1] given at control points `sub_hop` samples apart.

    Windows of two segments, half overlapped: the output [B, J * sub_hop] lags one segment behind the points,
    like the oscillator's. The noise repeats after `period` segments.
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
        """Returns the DFT as a matrix [2 * sub_hop, 2 * (sub_hop + 1)]: real parts, then imaginary parts."""
        size = 2 * self.sub_hop
        sample = torch.arange(size, device=self.wave.device)
        bin_number = torch.arange(self.sub_hop + 1, device=self.wave.device)
        turn = torch.remainder(sample[:, None] * bin_number, size)
        return torch.cat([self.wave[0][turn], self.wave[1][turn]], dim=1)

    def spectra(self, transform: Tensor) -> Tensor:
        """Returns [period, 2 * (sub_hop + 1)]: the spectra of each segment with the next, windowed."""
        after = torch.cat([self.table[1:], self.table[:1]])
        return (torch.cat([self.table, after], dim=1) * self.window) @ transform

    def forward(
        self, gains: Tensor, start: Tensor, position: Tensor, tail: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Plays one chunk.

        Args:
            gains: float32 [B, J, sub_hop + 1], linear gain per DFT bin.
            start: int64 [B], 0 or more: the segment of noise that the note begins with.
            position: int64 [B], segments used so far.
            tail: float32 [B, sub_hop], the half window still to come from the chunk before.

        Returns:
            audio float32 [B, J * sub_hop], and the new position and tail.
        """
        n_points = gains.shape[1]
        transform = self.transform()
        first = torch.remainder(start, self.period) + position
        rows = torch.remainder(first[:, None] + torch.arange(n_points, device=gains.device), self.period)
        weighted = gains * self.weight
        shaped = self.spectra(transform)[rows] * torch.cat([weighted, weighted], dim=2)
        filtered = shaped @ transform.T  # [B, J, 2 * sub_hop]
        rising, falling = filtered[:, :, : self.sub_hop], filtered[:, :, self.sub_hop :]
        before = torch.cat([tail[:, None], falling[:, :-1]], dim=1)
        audio = (rising + before).flatten(1)
        return audio, torch.remainder(position + n_points, self.period), falling[:, -1]
