"""Noise that follows a note's seed: long blocks of a fine static spectrum, then gains that move fast.

The first stage depends on the seed and on what a note's header says alone, so that it may run ahead of time.
The second is a modified discrete cosine transform (Princen and Bradley, 1987): on noise its aliasing is noise
again, and gains that jump cross-fade in power within one segment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from timbrel_training.codec.timbrel_notes.analysis import spread_matrix

PRIME = 2**31 - 1
OTHER_PRIME = 2**31 - 19
TABLE_ROW = 8
"""Blocks begin at multiples of this many numbers of the table."""
N_TABLE_ROWS = 4096
N_SHORT, N_LONG = 40, 64
"""The inverse DFT of a block is one of `N_LONG` points, twiddle factors, and one of `N_SHORT` points."""
BLOCK = N_SHORT * N_LONG
N_BINS = BLOCK // 2


def counter_hash(seed: Tensor, counter: Tensor, purpose: int) -> Tensor:
    """Returns int64 of 0 to PRIME - 1, a function of (seed, counter, purpose) alone.

    In numbers below 2 ** 63 and operators that every runtime has, hence the same everywhere: a polynomial of
    degree 9 modulo a prime. Of seeds, two remainders matter: about 62 of the 64 bits.

    Args:
        seed: int64 [B], any; of a seed up to 2 ** 64 - 1 the same bits.
        counter: int64 [B, N], 0 to 2 ** 31.
        purpose: below 2 ** 30; tells draws apart that count by the same numbers.
    """
    first = torch.remainder(seed, PRIME)[:, None]
    second = torch.remainder(seed, OTHER_PRIME)[:, None]
    value = torch.remainder(first + counter * 1_597_334_677 + purpose, PRIME)
    value = torch.remainder(_cube(value) + second, PRIME)
    return _cube(value)


def _cube(value: Tensor) -> Tensor:
    square = torch.remainder(value * value, PRIME)
    return torch.remainder((square + 715_225_739) * value, PRIME)


class StaticNoise(nn.Module):
    """Makes noise of fine spectra, frame by frame, from a seed and the frames' numbers.

    One block of 2 * 1280 samples a frame, its spectrum read from a table of Gaussian numbers where a hash of
    the frame's number says, under a sine window, half overlapped: the power is even.
    """

    table: Tensor  # [N_TABLE_ROWS, TABLE_ROW], standard normal
    row: Tensor  # [2 * N_BINS / TABLE_ROW], int64, 0, 1, 2, ...
    cycle: Tensor  # [BLOCK], one cycle of cosine
    rise: Tensor  # [BLOCK / 2], first half of the window

    def __init__(self) -> None:
        super().__init__()
        numbers = torch.randn(N_TABLE_ROWS, TABLE_ROW, generator=torch.Generator().manual_seed(20261))
        self.register_buffer("table", numbers.half().float())
        self.register_buffer("row", torch.arange(2 * N_BINS // TABLE_ROW), persistent=False)
        angle = 2 * math.pi * torch.arange(BLOCK, dtype=torch.float64) / BLOCK
        self.register_buffer("cycle", torch.cos(angle).float(), persistent=False)
        rise = torch.sin(angle[: BLOCK // 2] / 2 + math.pi / (2 * BLOCK))
        self.register_buffer("rise", rise.float(), persistent=False)

    def forward(
        self, gains: Tensor, seed: Tensor, frames: Tensor, tail: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Makes the noise of consecutive frames; it is even from the first sample of frame 0 on.

        Args:
            gains: float32 [B, T, N_BINS], linear, per bin; gains of 1 are white noise of variance 1.
            seed: int64 [B].
            frames: int64 [B, T], their numbers.
            tail: float32 [B, BLOCK / 2], the half window still to come from the frame before.

        Returns:
            noise float32 [B, T * BLOCK / 2], the tail after it, and what of a first frame would have been the
            sound before it, float32 [B, BLOCK / 2].
        """
        blocks = self._blocks(gains * math.sqrt(1.0 / N_BINS), seed, frames)
        half = BLOCK // 2
        first, second = blocks[:, :, :half], blocks[:, :, half:]
        rising = torch.where((frames == 0)[:, :, None], first, first * self.rise)
        falling = second * self.rise.flip(0)
        before = torch.cat([tail[:, None], falling[:, :-1]], dim=1)
        return (rising + before).flatten(1), falling[:, -1], second[:, 0]

    def _blocks(self, gains: Tensor, seed: Tensor, frames: Tensor) -> Tensor:
        """Returns blocks [B, T, BLOCK] of noise, each periodic."""
        n_starts = N_TABLE_ROWS - self.row.shape[0]
        start = torch.remainder(counter_hash(seed, frames, purpose=1), n_starts)
        numbers = self.table[start[:, :, None] + self.row]  # [B, T, 2 * N_BINS / TABLE_ROW, TABLE_ROW]
        numbers = numbers.reshape(*frames.shape, N_SHORT, 2, N_LONG // 2)  # real parts, imaginary parts
        spectrum = gains.unflatten(2, (N_LONG // 2, N_SHORT)).transpose(2, 3)
        shaped = (numbers * spectrum[:, :, :, None]).flatten(3)
        # Bin c + N_SHORT d has turned, at sample N_LONG a + b, by b d / N_LONG + b c / BLOCK + a c / N_SHORT.
        sample = torch.arange(N_LONG, device=self.cycle.device)
        inner = N_SHORT * sample[: N_LONG // 2, None] * sample  # [d, b]
        inner = torch.cat(
            [
                torch.cat([self._cosine(inner), self._sine(inner)], dim=1),
                torch.cat([-self._sine(inner), self._cosine(inner)], dim=1),
            ]
        )
        partly = shaped @ inner  # [B, T, c, (real, imaginary) b]
        real, imaginary = partly[..., :N_LONG], partly[..., N_LONG:]
        twiddle = sample[:N_SHORT, None] * sample  # [c, b]
        cosine, sine = self._cosine(twiddle), self._sine(twiddle)
        turned = torch.cat([real * cosine - imaginary * sine, real * sine + imaginary * cosine], dim=3)
        outer = N_LONG * sample[:N_SHORT, None] * sample[:N_SHORT]  # [a, c]
        outer = torch.stack([self._cosine(outer), -self._sine(outer)], dim=2).flatten(1)
        return (outer @ turned.reshape(*frames.shape, 2 * N_SHORT, N_LONG)).flatten(2)

    def _cosine(self, step: Tensor) -> Tensor:
        """Returns the cosine of whole steps of 1 / BLOCK of a cycle."""
        return self.cycle[torch.remainder(step, BLOCK)]

    def _sine(self, step: Tensor) -> Tensor:
        return self.cycle[torch.remainder(step - BLOCK // 4, BLOCK)]


@dataclass
class ShaperState:
    """The tensors that a shaper remembers between chunks [B, sub_hop / 2]; zeros at the start of a note."""

    folded: Tensor
    """The last segment of noise, folded as the earlier half of a window."""
    overlap: Tensor
    """The later half of the last window, still folded."""


class NoiseShaper(nn.Module):
    """Gives noise gains in mel bands at control points `sub_hop` samples apart.

    A window around each point reaches to its neighbours: the output lags one segment behind, as the
    oscillators' does, and gains of 1 give the noise back, one segment later.
    """

    cycle: Tensor  # [8 * sub_hop], one cycle of cosine, scaled so that the transform is orthonormal
    odd: Tensor  # [sub_hop], int64
    shift: Tensor  # [sub_hop], int64
    window: Tensor  # [2, sub_hop / 2], the rising window's first half, and its second half backwards
    spread: Tensor  # [n_bands, sub_hop]

    def __init__(self, sample_rate: int, sub_hop: int, n_bands: int) -> None:
        super().__init__()
        self.sub_hop = sub_hop
        number = torch.arange(sub_hop)
        half = sub_hop // 2
        angle = 2 * math.pi * torch.arange(8 * sub_hop, dtype=torch.float64) / (8 * sub_hop)
        cycle = math.sqrt(2 / sub_hop) * torch.cos(angle)
        self.register_buffer("cycle", cycle.float(), persistent=False)
        self.register_buffer("odd", 2 * torch.where(number < half, half - 1 - number, number) + 1, False)
        self.register_buffer("shift", torch.where(number < half, 4 * sub_hop, 0), False)
        rising = torch.sin(math.pi / 2 * (number.double() + 0.5) / sub_hop).float()
        window = torch.stack([rising[:half], rising[half:].flip(0)])
        self.register_buffer("window", window, persistent=False)
        spread = spread_matrix(n_bands, 2 * sub_hop + 1, sample_rate)[:, 1::2].contiguous()
        self.register_buffer("spread", spread, persistent=False)

    def initial_state(self, n_batch: int) -> ShaperState:
        """Returns the zeros for a batch of notes that begin."""
        shape, device = (n_batch, self.sub_hop // 2), self.window.device
        return ShaperState(torch.zeros(shape, device=device), torch.zeros(shape, device=device))

    def transform(self) -> Tensor:
        """Returns the orthonormal transform of folded windows [sub_hop, sub_hop]; its transpose undoes it."""
        number = torch.arange(self.sub_hop, device=self.odd.device)
        step = self.odd[:, None] * (2 * number + 1) + self.shift[:, None]
        return self.cycle[torch.remainder(step, self.cycle.shape[0])]

    def forward(
        self, noise: Tensor, gains: Tensor, state: ShaperState, before: Tensor, begins: Tensor
    ) -> tuple[Tensor, ShaperState]:
        """Shapes one chunk.

        Args:
            noise: float32 [B, J * sub_hop].
            gains: float32 [B, J, n_bands], linear.
            state: as the chunk before left it.
            before: float32 [B, N], N >= sub_hop: noise that ends where a note's first chunk begins.
            begins: bool [B], whether this is the note's first chunk.

        Returns:
            audio float32 [B, J * sub_hop], and the state after.
        """
        later, earlier = self._fold(noise.unflatten(1, (-1, self.sub_hop)))
        _, before_first = self._fold(before[:, None, -self.sub_hop :])
        folded = torch.where(begins[:, None], before_first[:, 0], state.folded)
        earlier_ones = torch.cat([folded[:, None], earlier[:, :-1]], dim=1)
        transform = self.transform()
        coefficients = (torch.cat([later, earlier_ones], dim=2) @ transform) * (gains @ self.spread)
        shaped = coefficients @ transform.T
        half = self.sub_hop // 2
        second, first = shaped[:, :, :half], shaped[:, :, half:]
        overlap = torch.cat([state.overlap[:, None], second[:, :-1]], dim=1)
        start = self.window[0] * first + self.window[1] * overlap
        end = self.window[0] * overlap - self.window[1] * first
        audio = torch.cat([start, end.flip(2)], dim=2).flatten(1)
        return audio, ShaperState(earlier[:, -1], second[:, -1])

    def _fold(self, segments: Tensor) -> tuple[Tensor, Tensor]:
        """Folds segments [B, J, sub_hop] as a window's later and earlier half, [B, J, sub_hop / 2] each."""
        half = self.sub_hop // 2
        start, end = segments[:, :, :half], segments[:, :, half:].flip(2)
        later = self.window[1] * start + self.window[0] * end
        return later, self.window[0] * start - self.window[1] * end
