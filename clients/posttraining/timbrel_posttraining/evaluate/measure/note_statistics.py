"""The statistics of a note by which `two_sample` tells notes apart.

They are of its masked spectrum and of the valleys between its partials. None is of all bands together, and
what nobody hears is floored, so that trifles do not decide.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate.measure.masked_spectrum import (
    ATTACK_FRAMES,
    FRAME_RATE,
    N_BANDS,
    ONSET_DB,
    RANGE_DB,
    SAMPLE_RATE,
    Flags,
    MaskedSpectrum,
    Values,
    band_edges,
    from_onset,
    power_spectrum,
)

N_RANGES = 6
"""Ranges of frequency, of six bands each."""
N_GROUPS = 12
"""Groups of three neighbouring bands that a statistic is averaged over."""
LONG_WINDOW = 4096
"""Samples of the windows that see single partials: 128 ms."""
LONG_HOP = 960
"""Samples from one of these to the next: 30 ms."""
VALLEY_DB = 30.0
"""Between the partials of a group, levels are floored so far below its strongest bin."""
STEP_DB = 0.1
"""Steps from one frame to the next, and ..."""
MODULATION_DB = 0.2
"""... rms modulations below this are as good as none: nobody hears them."""
HEARD_SHARE = 0.8
"""A band's modulation counts where it is heard in this share of the frames."""
FEWEST = 6
"""Frames that a statistic needs."""
MODULATION_HZ = (2.0, 4.0, 8.0, 16.0, 28.0, 50.0)
"""Edges of the bands of modulation frequency."""


def statistics_of(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Describes a note, audio [samples], by numbers [n] that are told apart by `two_sample`.

    They see how levels are spread over the bands, change from frame to frame, are modulated at 2 to 50 Hz,
    rise and decay, and how deep and steady the valleys between the partials are. NaN of too little sound.
    """
    signal = from_onset(audio, sample_rate)
    masked = MaskedSpectrum.of(signal)
    parts = (*_attack(masked), *_held(masked), *modulation_of(masked), *_fine_structure(signal))
    return np.concatenate([np.atleast_1d(part) for part in parts]).astype(np.float32)


def _attack(masked: MaskedSpectrum) -> Iterator[Values]:
    """Yields the rise of six ranges: levels of the first frames below the range's highest, and its time."""
    levels = masked.levels[: min(masked.end, 3 * ATTACK_FRAMES)]
    ranges = levels.reshape(len(levels), N_RANGES, N_BANDS // N_RANGES).mean(axis=2)
    highest = ranges.max(axis=0, initial=-RANGE_DB)
    rise = np.full((ATTACK_FRAMES, N_RANGES), np.nan)
    rise[: len(ranges)] = ranges[:ATTACK_FRAMES] - highest
    yield from rise[[0, 1, 2, 4, 6]]
    risen = ranges >= highest - 3.0
    yield np.where(risen.any(axis=0), risen.argmax(axis=0), np.nan) if len(ranges) else rise[0]


def _held(masked: MaskedSpectrum) -> Iterator[Values]:
    """Yields the held part: levels, change from frame to frame, slope and what departs from it, by group."""
    levels, audible = masked.steady
    mean = _grouped(levels, np.ones_like(audible))
    yield mean - mean.mean()
    steps, pairs = np.diff(levels, axis=0), audible[1:] & audible[:-1]
    moved = np.maximum(np.abs(steps), STEP_DB)
    yield _grouped(moved, pairs)
    yield _grouped(np.minimum(moved, 0.5), pairs)
    together = np.where(np.minimum(moved[:, 1:], moved[:, :-1]) > STEP_DB, steps[:, 1:] * steps[:, :-1], 0.0)
    yield _ratio(together, np.abs(together) + 1e-6, pairs[:, 1:] & pairs[:, :-1])
    slope, rest = decay_of(masked)
    yield _mean_of_known(slope.reshape(N_GROUPS, -1))
    yield _mean_of_known(rest.reshape(N_GROUPS, -1))


def modulation_of(masked: MaskedSpectrum) -> Values:
    """Measures the rms modulation in dB re 1 dB, [modulation bands, ranges]; NaN of short notes."""
    levels, audible = masked.steady
    found = np.full((len(MODULATION_HZ) - 1, N_RANGES), np.nan)
    if len(levels) < 4 * FEWEST:
        return found
    basis = np.polynomial.legendre.legvander(np.linspace(-1.0, 1.0, len(levels)), 3)
    rest = levels - basis @ np.linalg.lstsq(basis, levels, rcond=None)[0]
    window = np.hanning(len(rest))[:, None]
    power = np.abs(np.fft.rfft(rest * window, axis=0)) ** 2 / np.square(window).sum() / len(rest) * 2
    frequencies = np.fft.rfftfreq(len(rest), 1 / FRAME_RATE)
    heard = audible.mean(axis=0) > HEARD_SHARE
    for number, (low, high) in enumerate(itertools.pairwise(MODULATION_HZ)):
        inside = (frequencies >= low) & (frequencies < high)
        if inside.any():
            moved = 10 * np.log10(np.maximum(power[inside].sum(axis=0), MODULATION_DB**2))
            found[number] = _mean_of_known(np.where(heard, moved, np.nan).reshape(N_RANGES, -1))
    return found


def _fine_structure(signal: NDArray[np.float32]) -> Iterator[Values]:
    """Yields by group: depth of the valleys between partials, steadiness of peaks and of valleys."""
    power = power_spectrum(signal, LONG_WINDOW, LONG_HOP)
    levels = 10 * np.log10(power + 1e-20)
    levels -= levels.max(initial=-200.0)
    loud = levels.max(axis=1, initial=-200.0) > -ONSET_DB
    levels = levels[loud]
    columns = np.full((5, N_GROUPS), np.nan)
    for group, bins in enumerate(_group_bins()):
        part = levels[:, bins]
        peak = part.max(axis=1, initial=-200.0, keepdims=True)
        kept = peak[:, 0] > -45.0
        if kept.sum() < FEWEST // 2:
            continue
        part, peak = part[kept], peak[kept]
        part = np.maximum(part, np.maximum(peak - VALLEY_DB, -RANGE_DB - 10.0))
        linear = 10 ** (part / 10)
        columns[0, group] = np.mean(part.mean(axis=1) - 10 * np.log10(linear.mean(axis=1)))
        columns[1, group] = np.mean(peak[:, 0] - np.percentile(part, 25, axis=1))
        steps = np.abs(np.diff(part, axis=0))
        near = part[1:] > peak[1:] - 8.0
        columns[2, group] = steps[near].mean() if near.any() else np.nan
        valleys = (part[1:] < peak[1:] - 15.0) & (part[1:] > peak[1:] - VALLEY_DB + 2.0)
        columns[3, group] = steps[valleys].mean() if valleys.sum() > FEWEST else np.nan
        columns[4, group] = np.mean(np.abs(np.diff(part, axis=1)))
    yield from columns


def _grouped(values: Values, kept: Flags) -> Values:
    """Averages values [frames, bands] over what is kept, by group [12]; NaN of fewer than FEWEST."""
    return _ratio(values, np.ones_like(values), kept)


def _ratio(above: Values, below: Values, kept: Flags) -> Values:
    """Divides sums of [frames, bands] over what is kept, by group [12]; NaN of fewer than FEWEST."""
    edges = np.minimum(np.arange(N_GROUPS) * (N_BANDS // N_GROUPS), above.shape[1] - 1)
    counts = np.add.reduceat(kept.sum(axis=0), edges)
    total = np.add.reduceat((above * kept).sum(axis=0), edges)
    whole = np.add.reduceat((below * kept).sum(axis=0), edges)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts >= FEWEST, total / whole, np.nan)


def decay_of(masked: MaskedSpectrum) -> tuple[Values, Values]:
    """Fits a line to the levels of each band while they are heard: slopes in dB/s and mean departures in dB,
    both [bands]; NaN of fewer than FEWEST frames."""
    levels, kept = masked.steady
    time = np.broadcast_to(np.arange(len(levels))[:, None] / FRAME_RATE, levels.shape)
    n = kept.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        t0, l0 = (time * kept).sum(axis=0) / n, (levels * kept).sum(axis=0) / n
        t, level = (time - t0) * kept, (levels - l0) * kept
        slope = (t * level).sum(axis=0) / np.square(t).sum(axis=0)
        rest = np.abs(level - slope * t).sum(axis=0) / n
    return np.where(n >= FEWEST, slope, np.nan), np.where(n >= FEWEST, rest, np.nan)


def _mean_of_known(values: Values) -> Values:
    """Averages rows [n, m] over what is not NaN."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(known, values, 0.0).sum(axis=1) / known.sum(axis=1)


@functools.cache
def _group_bins() -> tuple[slice, ...]:
    """The bins of the long windows in each group."""
    step = N_BANDS // N_GROUPS
    edges = np.searchsorted(np.fft.rfftfreq(LONG_WINDOW, 1.0 / SAMPLE_RATE), band_edges()[1::step])
    return tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(edges))
