"""The partials of a note, measured in closed form: each one's complex amplitude over time, and what is left.

Each partial is shifted to 0 Hz from where the fundamental's phase and the string's stiffness say that it is
(heterodyne analysis, after Beauchamp, 2007), or from where it was found if that is far off, and low-passed:
by two periods of the fundamental first, so that its neighbours cancel, then by as much as it may truly move.
What these partials do not explain is the noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.signal import fftconvolve
from torch import Tensor

from timbrel_training.codec.timbrel_notes.stiffness import Stiffness, measure_stiffness, number_at, stretched

BLOCK = 64
"""Samples between two measurements."""
MAX_PARTIALS = 224
HIGHEST_HZ = 22_000.0
"""No partial is looked for above."""
SHORTEST_WINDOW = 0.008
"""Seconds of the shortest window that tells neighbours apart; two periods where those are longer."""
STEADY_SHARE = 0.07
"""Partials are low-passed at this share of their own frequency once the attack is over, or at the lowest of
SMOOTHING_HZ, where that is more: ensembles spread by so much."""
SMOOTHING_HZ = (60.0, 90.0, 135.0)
"""The low-passes in use."""
ATTACK_SECONDS = (0.06, 0.12)
"""From the first to the second of these, low-passing sets in."""
RELEASE_SECONDS = 0.02
"""Around the release partials are not low-passed either."""
OFFSET_REACH = 0.5
"""Partials are looked for this far from where they should be, as a share of the fundamental."""
FAR_HERTZ = 40.0
"""What lies further from there is shifted to 0 Hz from where it was found: it would be measured too weak."""
PEAK_BINS = 6
"""Bins on either side that belong to a peak."""
TONAL_SHARE = 0.35
"""What has less of its power in its peak is no partial beside its multiple, but noise."""
CLOSEST = 0.3
"""Two that are found closer to each other, as a share of it, are one."""
HEARING_DB = 85.0
"""Partials are not looked for above the highest frequency that is so far below the loudest at most."""
HEARING_WINDOW = 4096
LARGEST_CHUNK = 2_000_000
"""Complex numbers worked on at a time."""
MOST_KEPT = 25_000_000
"""Complex numbers that are kept instead of made again: 200 MB."""

Complex = NDArray[np.complex64]
Real = NDArray[np.float32]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Partials:
    """A note as partials and a rest; H partials, one measurement for every 64 samples."""

    amplitude: Complex
    """[J, H]: amplitude and phase of each partial, beside its offset's steady turning."""
    offset: Real
    """[H], Hz: how far each partial lies from where the stiffness says."""
    seconds: Numbers
    """[J], times of the measurements."""
    fundamental: float
    """Hz, the mean over the note."""
    stiffness: Stiffness
    """How far apart the partials lie, and what the fundamental was corrected by."""
    sound: Real
    """[S], the partials played."""
    rest: Real
    """[S], the recording without them."""


def measure_partials(
    audio: Real, hertz: NDArray[np.floating], sample_rate: int, held_seconds: float
) -> Partials:
    """Measures the partials of a note, float32 [S] from its onset on, whose fundamental at each sample is
    `hertz` [S], but for the stiffness of its string."""
    n_samples = len(audio)
    stiffness = measure_stiffness(audio, float(hertz.mean()), sample_rate, held_seconds)
    hertz = hertz * stiffness.scale
    phase = np.concatenate([[0.0], np.cumsum(hertz)[:-1]]) / sample_rate
    fundamental = float(hertz.mean())
    n_partials = max(1, min(MAX_PARTIALS, int(number_at(HIGHEST_HZ / hertz.max(), stiffness.value))))
    highest = _highest_hertz(audio, sample_rate) / hertz.min()
    n_heard = min(n_partials, int(number_at(highest, stiffness.value)) + 1)
    place = stretched(np.arange(1.0, n_heard + 1), stiffness.value)
    rate = sample_rate / BLOCK
    rotation = _Rotation(phase, place, np.zeros(n_heard), sample_rate)
    amplitude, window = _isolate(rotation.to_baseband(audio), fundamental, rate)
    seconds = np.arange(len(amplitude)) / rate
    offset = _offsets(amplitude, seconds, held_seconds, fundamental, rate)
    twice = _found_twice(offset + fundamental * place, offset, fundamental)
    offset[twice] = 0
    turned = np.where(np.abs(offset) > FAR_HERTZ, offset, 0.0)
    if turned.any():
        rotation = _Rotation(phase, place, turned, sample_rate)
        amplitude, window = _isolate(rotation.to_baseband(audio), fundamental, rate)
    amplitude[:, twice] = 0
    # The window weakened what was off its middle.
    beside = offset - turned
    lag = (np.arange(len(window)) - len(window) // 2) / rate
    amplitude /= np.maximum(np.cos(2 * np.pi * beside[:, None] * lag) @ window, 0.3)
    turning = np.exp(2j * np.pi * beside * seconds[:, None])
    steady = (amplitude / turning).astype(np.complex64)
    quick = _quick(seconds, held_seconds)[:, None]
    smoothed = _smoothed(steady, fundamental, rate)
    steady = (smoothed + (steady - smoothed) * quick).astype(np.complex64)
    # At first neighbours come through windows of which a part lies before the note.
    begin = min(round(SHORTEST_WINDOW / 2 * rate), len(steady) - 1)
    steady[:begin] = steady[begin]
    sound = rotation.to_sound((steady * turning).astype(np.complex64))[:n_samples]
    silent = ((0, 0), (0, n_partials - n_heard))
    steady, offset = np.pad(steady, silent), np.pad(offset, silent[1])
    return Partials(
        steady,
        offset.astype(np.float32),
        seconds,
        fundamental,
        stiffness,
        sound,
        (audio - sound).astype(np.float32),
    )


def _highest_hertz(audio: Real, sample_rate: int) -> float:
    """Returns the highest frequency that comes within 85 dB of the loudest."""
    padded = np.pad(audio, HEARING_WINDOW // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, HEARING_WINDOW)[:: HEARING_WINDOW // 2]
    height = np.abs(np.fft.rfft(frames * np.hanning(HEARING_WINDOW).astype(np.float32))).max(axis=0)
    heard = np.flatnonzero(height >= height.max() * 10 ** (-HEARING_DB / 20))
    return float(heard[-1]) * sample_rate / HEARING_WINDOW


class _Rotation:
    """The partials' rotations at every sample, made in chunks; kept where they are not too many."""

    def __init__(self, phase: Numbers, place: Numbers, beside: Numbers, sample_rate: int) -> None:
        """`phase` [S] is the fundamental's, in cycles; partials lie at multiples `place` [H] of it, and so
        many Hz `beside` [H]."""
        number = np.arange(1, len(place) + 1)
        self._n_partials = len(place)
        self._n_blocks = -(-len(phase) // BLOCK)
        more = np.arange(1, (self._n_blocks + 1) * BLOCK - len(phase) + 1)
        padded = np.concatenate([phase, phase[-1] + more * (phase[-1] - phase[-2:][0])])
        turned = torch.from_numpy(2 * np.pi * (padded[:-BLOCK] % 1.0)).float().reshape(-1, BLOCK)
        self._kept: dict[int, Tensor] = {}
        self._first = torch.polar(torch.ones_like(turned), turned)  # [blocks, BLOCK]
        # Beside whole multiples partials turn evenly within each block, from where they were before it to
        # where they are behind it: a jump would take a part of the low partials up to the high ones.
        self._steps: Tensor | None = None
        self._blocks: Tensor | None = None
        if (place != number).any() or beside.any():
            seconds = np.arange(self._n_blocks + 1)[:, None] * (BLOCK / sample_rate)
            ends = padded[::BLOCK, None] * (place - number) + seconds * beside
            self._steps = _unit(np.diff(ends, axis=0) / BLOCK)  # [blocks, H], from sample to sample
            self._blocks = _unit(ends[:-1])  # [blocks, H]

    def to_baseband(self, audio: Real) -> Complex:
        """Returns each partial around 0 Hz [blocks + 1, H], low-passed by a cubic B-spline of 4 blocks."""
        blocks = torch.from_numpy(np.pad(audio, (0, self._n_blocks * BLOCK - len(audio)))).reshape(-1, BLOCK)
        after = (torch.arange(BLOCK) + 0.5) / BLOCK
        before = 1 - after
        spline = torch.stack(
            [before**3, 3 * after**3 - 6 * after**2 + 4, 3 * before**3 - 6 * before**2 + 4, after**3]
        )
        found = torch.zeros(self._n_blocks + 3, self._n_partials, dtype=torch.complex64)
        for begin, rotation in self._chunks():
            end = begin + len(rotation)
            weighted = blocks[begin:end, None] * (spline / 6)  # [blocks, 4, BLOCK]
            parts = torch.view_as_complex((weighted @ rotation.flatten(2)).unflatten(2, (-1, 2)))
            if self._blocks is not None:
                parts = parts * self._blocks[begin:end, None]
            for k in range(4):
                found[begin + k : end + k] += parts[:, k].conj()
        return np.asarray(found[1:-1].numpy())

    def to_sound(self, amplitude: Complex) -> Real:
        """Returns the sum [blocks * BLOCK] of partials with these amplitudes [blocks + 1, H]."""
        share = torch.arange(BLOCK) / BLOCK
        coefficients = torch.from_numpy(amplitude)
        sound = torch.empty(self._n_blocks, BLOCK)
        for begin, rotation in self._chunks():
            end = begin + len(rotation)
            ends = torch.stack([coefficients[begin:end], coefficients[begin + 1 : end + 1]], dim=2)
            if self._blocks is not None:
                ends = ends * self._blocks[begin:end, :, None]
            # The real part of a product is that of one number with the other's conjugate as rows.
            rows = torch.view_as_real(ends.conj().resolve_conj()).transpose(2, 3).flatten(1, 2)
            parts = rotation.flatten(2) @ rows  # [blocks, BLOCK, 2]
            sound[begin:end] = parts[..., 0] * (1 - share) + parts[..., 1] * share
        return np.asarray(sound.flatten().numpy())

    def _chunks(self) -> Iterator[tuple[int, Tensor]]:
        """Yields the number of the first block, and the rotations [blocks, BLOCK, H, 2] from there on."""
        size = max(1, LARGEST_CHUNK // (BLOCK * self._n_partials))
        keeps = self._n_blocks * BLOCK * self._n_partials <= MOST_KEPT
        for begin in range(0, self._n_blocks, size):
            powers = self._kept[begin] if begin in self._kept else self._powers(begin, begin + size)
            if keeps:
                self._kept[begin] = powers
            yield begin, powers

    def _powers(self, begin: int, end: int) -> Tensor:
        """Returns the rotations [blocks, BLOCK, H, 2] of partials 1 to H in some blocks."""
        first = self._first[begin:end, :, None]
        powers = torch.empty(*first.shape[:2], self._n_partials, dtype=torch.complex64)
        powers[:, :, :1] = first
        n = 1
        while n < self._n_partials:
            more = min(n, self._n_partials - n)
            torch.mul(powers[:, :, :more], powers[:, :, n - 1 : n], out=powers[:, :, n : n + more])
            n += more
        if self._steps is not None:
            powers *= _geometric(self._steps[begin:end], BLOCK)
        return torch.view_as_real(powers)


def _geometric(steps: Tensor, n: int) -> Tensor:
    """Returns powers 0 to n - 1 of complex numbers [blocks, H], [blocks, n, H]."""
    powers = torch.empty(len(steps), n, steps.shape[1], dtype=steps.dtype)
    powers[:, 0] = 1
    known = 1
    while known < n:
        more = min(known, n - known)
        torch.mul(powers[:, :more], steps[:, None], out=powers[:, known : known + more])
        known, steps = known + more, steps * steps
    return powers


def _unit(cycles: Numbers) -> Tensor:
    """Returns complex numbers of length 1 that have turned by so many cycles."""
    turned = torch.from_numpy(2 * np.pi * (cycles % 1.0)).float()
    return torch.polar(torch.ones_like(turned), turned)


def _isolate(baseband: Complex, fundamental: float, rate: float) -> tuple[Complex, Numbers]:
    """Returns amplitudes without the neighbours, as they are inside the note, and the window that did it."""
    length = max(2 / fundamental, SHORTEST_WINDOW) * rate
    reach = int(np.ceil(length / 2))
    lag = np.arange(-reach, reach + 1)
    window = np.where(np.abs(lag) > length / 2, 0.0, 0.5 + 0.5 * np.cos(2 * np.pi * lag / length))
    window /= window.sum()
    found = fftconvolve(
        np.pad(baseband, ((reach, reach), (0, 0))), window[:, None].astype(np.float32), "valid", axes=0
    )
    found *= 2 / BLOCK
    # Near the onset a part of the window lies before the note.
    inside = np.cumsum(window)[reach : reach + len(found)] - window[reach : reach + len(found)] / 2
    found[: len(inside)] /= np.maximum(inside, 0.5)[:, None]
    return found.astype(np.complex64), window


def _offsets(
    amplitude: Complex, seconds: Numbers, held_seconds: float, fundamental: float, rate: float
) -> Numbers:
    """Returns Hz [H]: where each partial's spectrum peaks, by a parabola through the highest bin."""
    held = (seconds > 0.03) & (seconds < min(max(0.2, held_seconds) - 0.01, 2.5))
    part = amplitude[held] if held.sum() > 16 else amplitude
    n = 1 << int(np.ceil(np.log2(2 * len(part))))
    height = np.abs(np.fft.fft(part * np.hanning(len(part) + 2)[1:-1, None], n, axis=0))
    bins = np.fft.fftfreq(n) * rate
    reach = OFFSET_REACH * fundamental
    height[np.abs(bins) > reach] = 0
    peak = height.argmax(axis=0)
    column = np.arange(height.shape[1])
    left, centre, right = (height[(peak + step) % n, column] for step in (-1, 0, 1))
    shift = 0.5 * (left - right) / np.minimum(left - 2 * centre + right, -1e-12)
    found = bins[peak] + np.where(np.abs(bins[peak]) < 0.98 * reach, shift, 0.0) * (rate / n)
    power = np.square(height)
    near = sum(power[(peak + step) % n, column] for step in range(-PEAK_BINS, PEAK_BINS + 1))
    return np.where(near > TONAL_SHARE * power.sum(axis=0), found, 0.0)


def _found_twice(frequency: Numbers, offset: Numbers, fundamental: float) -> NDArray[np.bool_]:
    """Returns [H]: which partials of these Hz are their neighbour once more, seen from further off."""
    close = np.diff(frequency) < CLOSEST * fundamental
    farther = np.abs(offset)
    twice = np.zeros(len(offset), dtype=bool)
    twice[:-1] |= close & (farther[:-1] > farther[1:])
    twice[1:] |= close & (farther[:-1] <= farther[1:])
    return twice


def _quick(seconds: Numbers, held_seconds: float) -> Numbers:
    """Returns [J]: 1 in the attack and around the release, where partials may move at once."""
    begin, end = ATTACK_SECONDS
    steady = np.clip((seconds - begin) / (end - begin), 0, 1)
    away = np.clip(np.abs(seconds - held_seconds - RELEASE_SECONDS / 2) / RELEASE_SECONDS - 0.5, 0, 1)
    return 1 - steady * away


def _smoothed(steady: Complex, fundamental: float, rate: float) -> Complex:
    """Returns amplitudes low-passed at 60 Hz, or higher where the partial's frequency allows for more."""
    width = STEADY_SHARE * fundamental * np.arange(1, steady.shape[1] + 1)
    number = np.searchsorted(np.array(SMOOTHING_HZ[1:]) / 1.22, width, side="right")
    smoothed = np.empty_like(steady)
    for n, hertz in enumerate(SMOOTHING_HZ):
        deviation = gaussian_deviation(hertz, rate)
        smoothed[:, number == n] = gaussian_filter1d(
            steady[:, number == n], deviation, axis=0, mode="nearest"
        )
    return smoothed


def gaussian_deviation(hertz: float, rate: float) -> float:
    """Returns the standard deviation, in points, of a Gaussian that lets half the power through at half of
    these Hz, `rate` points a second."""
    return 0.1874 / (hertz / 2) * rate
