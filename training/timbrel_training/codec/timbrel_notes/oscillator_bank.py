"""A bank of sinusoids of any frequencies, phase-continuous from control point to control point.

Between two points a partial's phase is linear: it turns by 16 a samples, then by b. The sum over all partials
is then two small matrix products per segment, and a partial costs 32 sines and cosines there instead of one
per sample. Partials are the last axis throughout, which is what onnxruntime is fast at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

AUDIBLE_TO = 0.98
"""Share of half the sample rate from which on partials are silent."""
FADE = 0.05
"""Share of it over which they fade below that."""
PARTIALS_STEP = 16
"""A multiple of this many partials is worked out for a chunk."""
GRID = 16
"""A segment is cut into as many rows as it has samples over this; the rows have this many samples each."""
STRIDE = 4
"""Rotations within a row are products of GRID / STRIDE coarse and STRIDE fine ones."""


@dataclass
class BankState:
    """The tensors that a bank remembers between chunks [B, P]; all are zeros at the start of a note."""

    last_frequency: Tensor  # float64, Hz; 0: none yet
    last_amplitude: Tensor  # float32, linear
    last_offset: Tensor  # float32, cycles
    phase: Tensor  # float64, cycles, 0 to 1, without the offset


class OscillatorBank(nn.Module):
    """Plays partials of given frequencies, amplitudes and phase offsets at points `sub_hop` samples apart.

    Point j is reached with the last sample of segment j: the output [B, J * sub_hop] lags one segment behind.
    Amplitudes are linear between points. So are phases: a partial advances by the mean of the two frequencies
    and by the change of its offset, the shorter way round. The first segment rises from silence.
    """

    row_number: Tensor  # [sub_hop / 32], how far the later half's rows are from the middle, in half rows
    coarse: Tensor  # [GRID / STRIDE], samples from a row's middle
    fine: Tensor  # [STRIDE], samples
    cycles_per_hertz: Tensor  # float64, of half a segment
    ramp: Tensor  # [sub_hop / GRID, GRID], rising to 1

    def __init__(self, sample_rate: int, sub_hop: int) -> None:
        """`sub_hop` is a multiple of 32."""
        super().__init__()
        self.sample_rate = sample_rate
        self.sub_hop = sub_hop
        n_rows = sub_hop // GRID
        self.register_buffer(
            "row_number", 2 * torch.arange(n_rows // 2).float()[:, None] + 1, persistent=False
        )
        coarse = STRIDE * torch.arange(GRID // STRIDE) - (GRID - 1) / 2
        self.register_buffer("coarse", coarse[:, None], persistent=False)
        self.register_buffer("fine", torch.arange(STRIDE).float()[:, None], persistent=False)
        # A tensor: export rounds a plain number that multiplies a float64 tensor to float32.
        half_segment = torch.tensor(sub_hop / (2 * sample_rate), dtype=torch.float64)
        self.register_buffer("cycles_per_hertz", half_segment, persistent=False)
        ramp = (torch.arange(sub_hop, dtype=torch.float64) + 1) / sub_hop
        self.register_buffer("ramp", ramp.float().reshape(n_rows, GRID), persistent=False)

    def initial_state(self, n_batch: int, n_partials: int) -> BankState:
        """Returns the zeros for a batch of notes that begin."""
        # Tensors of their own: export would take one that stands for two inputs for the same.
        dtypes = torch.float64, torch.float32, torch.float32, torch.float64
        device = self.ramp.device
        return BankState(*(torch.zeros(n_batch, n_partials, dtype=dtype, device=device) for dtype in dtypes))

    def forward(
        self, frequency: Tensor, amplitude: Tensor, offset: Tensor, start: Tensor, state: BankState
    ) -> tuple[Tensor, BankState]:
        """Plays one chunk, with the state carried from the chunk before.

        Only the partials up to the last audible one are worked out.

        Args:
            frequency: float64 [B, J, P], Hz, above 0. Runtimes that round it differently drift apart.
            amplitude: float32 [B, J, P], linear; fades out by itself towards half the sample rate.
            offset: float32 [B, J, P], cycles; best kept within a few, as float32 is exact to.
            start: float [B, P], cycles: phases at the start of a note.
            state: as the chunk before left it.

        Returns:
            audio float32 [B, J * sub_hop], and the state after.
        """
        nyquist = self.sample_rate / 2
        audible = (AUDIBLE_TO * nyquist - frequency.float()) / (FADE * nyquist)
        amplitude = amplitude * torch.clamp(audible, 0.0, 1.0)
        begun = state.last_frequency > 0
        phase = torch.where(begun, state.phase, start.double())
        frequencies = _after(torch.where(begun, state.last_frequency, frequency[:, 0]), frequency)
        offsets = _after(torch.where(begun, state.last_offset, offset[:, 0]), offset)
        amplitudes = _after(state.last_amplitude, amplitude)
        advance = (frequencies[:, :-1] + frequencies[:, 1:]) * self.cycles_per_hertz
        phases = _after(phase, phase[:, None] + torch.cumsum(advance, dim=1))  # [B, J + 1, P]
        n = self._n_audible(amplitudes)
        audio = self._segments(phases[:, :-1, :n], advance[:, :, :n], offsets[:, :, :n], amplitudes[:, :, :n])
        end = phases[:, -1]
        after = BankState(frequency[:, -1], amplitude[:, -1], offset[:, -1], end - torch.floor(end))
        return audio.flatten(1), after

    def _n_audible(self, amplitudes: Tensor) -> int:
        """Returns how many partials reach up to the last that is not silent [B, J + 1, P], rounded up."""
        n_partials = amplitudes.shape[2]
        numbers = torch.arange(1, n_partials + 1, device=amplitudes.device)
        loudest = amplitudes.abs().amax(dim=(0, 1))
        last = torch.where(loudest > 0, numbers, 1).max()
        # No int() around it, which export would take for a constant.
        rounded_up = last + torch.remainder(-last, PARTIALS_STEP)
        n: int = rounded_up.clamp(max=n_partials).item()  # type: ignore[assignment]
        torch._check(n >= 1)
        torch._check(n <= n_partials)
        return n

    def _segments(self, phases: Tensor, advance: Tensor, offsets: Tensor, amplitudes: Tensor) -> Tensor:
        """Returns the sum [B, J, sub_hop / GRID, GRID] of all partials. In cycles are the phases, float64 [B,
        J, n], at the segments' starts, without the offsets; their advance to the ends; and the offsets,
        float32 [B, J + 1, n], at the ends, as the amplitudes are."""
        change = offsets[:, 1:] - offsets[:, :-1]
        turns = (advance + (change - torch.round(change))) / self.sub_hop  # cycles a sample
        middle = phases + turns * ((self.sub_hop + 1) / 2)  # between the two samples in the middle
        circle = 2 * math.pi
        centre = (middle - torch.floor(middle)).float() + offsets[:, :-1]
        centre = circle * centre[:, :, None]  # [B, J, 1, n]
        turn = circle * turns.float()[:, :, None]
        unit = turns * (GRID // 2)  # rows are odd multiples of half a row away: whole cycles may go
        unit = circle * (unit - torch.round(unit)).float()[:, :, None]
        row = unit * self.row_number  # [B, J, sub_hop / 32, n]
        coarse, fine = centre + turn * self.coarse, turn * self.fine  # [B, J, 4, n]
        # Column b of a row: coarse rotation b // 4 times fine rotation b % 4.
        cos_coarse, sin_coarse = torch.cos(coarse)[:, :, :, None], torch.sin(coarse)[:, :, :, None]
        cos_fine, sin_fine = torch.cos(fine)[:, :, None], torch.sin(fine)[:, :, None]
        cos_column = (cos_coarse * cos_fine - sin_coarse * sin_fine).flatten(2, 3)  # [B, J, GRID, n]
        sin_column = (sin_coarse * cos_fine + cos_coarse * sin_fine).flatten(2, 3)
        # One set of rows weighted by the amplitudes at the segment's start, one by how much they rise.
        begin = amplitudes[:, :-1]
        ends = torch.stack([begin, amplitudes[:, 1:] - begin], dim=2)[:, :, :, None]  # [B, J, 2, 1, n]
        even = (ends * torch.cos(row)[:, :, None]).flatten(2, 3) @ cos_column.transpose(2, 3)
        odd = (ends * torch.sin(row)[:, :, None]).flatten(2, 3) @ sin_column.transpose(2, 3)
        # Rows as far before the middle as behind it differ in the sign of the odd part alone.
        before, behind = even + odd, even - odd  # [B, J, 2 * sub_hop / 32, GRID]
        half = self.row_number.shape[0]
        level = torch.cat([before[:, :, :half].flip(2), behind[:, :, :half]], dim=2)
        rise = torch.cat([before[:, :, half:].flip(2), behind[:, :, half:]], dim=2)
        return level + rise * self.ramp


def _after(first: Tensor, rest: Tensor) -> Tensor:
    """Returns [B, 1 + J, P]: `first` [B, P] before `rest` [B, J, P]."""
    return torch.cat([first[:, None], rest], dim=1)
