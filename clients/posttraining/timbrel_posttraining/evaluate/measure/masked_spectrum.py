"""Masked spectrograms of one note, and the statistics of them by which notes are told apart.

Nothing is judged that nobody hears: levels are floored 60 dB below the note's peak, where a louder band masks
them at the same time, and where what sounded just before does (Zwicker and Fastl, "Psychoacoustics"); what is
above 14 kHz is left out. All is relative to the note's own peak, so that its level says nothing.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import soxr
from numpy.typing import NDArray

Values = NDArray[np.float64]

SAMPLE_RATE = 32_000
"""Hz."""
HOP = 320
"""Samples: 10 ms."""
FRAME_RATE = SAMPLE_RATE / HOP
WINDOW = 1024
"""Samples of the windows that follow the sound in time: 32 ms."""
LONG_WINDOW = 4096
"""Samples of the windows that see single partials: 128 ms."""
LONG_HOP = 960
"""Samples from one of these to the next: 30 ms."""

LOWEST_HZ, HIGHEST_HZ = 60.0, 14_000.0
N_BANDS = 36
"""Bands, evenly spaced in mel, each about as wide as a critical band."""
N_GROUPS = 12
"""Groups of neighbouring bands that a statistic is averaged over."""

RANGE_DB = 60.0
"""Levels further below the note's peak are floored."""
SILENCE_DB = -90.0
"""No level below this is heard, whatever the note's peak; 0 dB is a sine of amplitude 1."""
MASKING_DB = 6.0
"""A louder band masks its neighbours this far below its own level, less a slope for each band further off."""
UPWARD_DB, DOWNWARD_DB = 12.0, 25.0
"""Slopes of masking towards higher and lower bands."""
FORWARD_DB, FORWARD_SLOPE_DB = 10.0, 2.5
"""What sounded before masks this far below its level, less so much for each 10 ms that passed."""
VALLEY_DB = 30.0
"""Between the partials of a band, levels are floored so far below the band's strongest bin."""
AUDIBLE_DB = 3.0
"""A level counts as heard where it is so far above what masks it."""

STEP_DB = 0.1
"""Steps from one frame to the next, and ..."""
MODULATION_DB = 0.2
"""... rms modulations below this are as good as none: nobody hears them."""

ONSET_DB = 25.0
"""A note begins, and its steady part ends, where its level is so far below its peak."""
ATTACK_FRAMES = 8
"""Frames of the attack; the statistics of the held part begin behind it."""
FEWEST = 6
"""Frames that a statistic needs."""
MODULATION_HZ = (2.0, 4.0, 8.0, 16.0, 28.0, 50.0)
"""Edges of the bands of modulation frequency."""


@dataclass(frozen=True)
class MaskedSpectrum:
    """Levels [frames, 36] in dB below the note's peak, at least the masking threshold, and which are heard."""

    levels: Values
    audible: NDArray[np.bool_]

    @classmethod
    def of(cls, signal: NDArray[np.float32]) -> MaskedSpectrum:
        """Measures audio [samples] at 32 kHz from the note's onset on."""
        power = _power(signal, WINDOW, HOP) @ _filters()
        levels = 10.0 * np.log10(power + 1e-20)
        peak = levels.max(initial=SILENCE_DB + RANGE_DB)
        levels -= peak
        threshold = np.maximum(_masked_by_neighbours(levels), _masked_by_the_past(levels))
        threshold = np.maximum(threshold, max(-RANGE_DB, SILENCE_DB - peak))
        total = 10.0 * np.log10(power.sum(axis=1) + 1e-20)
        loud = np.flatnonzero(total >= total.max(initial=-200.0) - ONSET_DB)
        last = int(loud[-1]) + 1 if len(loud) else 0
        heard = levels > threshold + AUDIBLE_DB
        return cls(np.maximum(levels, threshold)[:last], heard[:last])


def onset_of(signal: NDArray[np.float32]) -> int:
    """Finds the sample from which on a note is heard: its first at most 25 dB below its highest."""
    height = np.abs(signal)
    return int(np.argmax(height >= height.max(initial=0.0) * 10 ** (-ONSET_DB / 20))) if len(signal) else 0


def statistics_of(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Describes a note, audio [samples], by numbers [n] that are told apart by `two_sample`.

    They see how levels are spread over the bands, change from frame to frame, are modulated at 2 to 50 Hz,
    rise and decay, and how deep and steady the valleys between the partials are. NaN of too little sound.
    """
    signal = np.asarray(audio, dtype=np.float32)
    if sample_rate != SAMPLE_RATE:
        signal = np.asarray(soxr.resample(signal, sample_rate, SAMPLE_RATE), dtype=np.float32)
    signal = signal[onset_of(signal) :]
    masked = MaskedSpectrum.of(signal)
    parts = (*_attack(masked), *_held(masked), *_modulation(masked), *_fine_structure(signal))
    return np.concatenate([np.atleast_1d(part) for part in parts]).astype(np.float32)


def _attack(masked: MaskedSpectrum) -> Iterator[Values]:
    """Yields the rise of six ranges: levels of the first frames below the range's highest, and its time."""
    levels = masked.levels[: 3 * ATTACK_FRAMES]
    ranges = levels.reshape(len(levels), 6, -1).mean(axis=2)
    highest = ranges.max(axis=0, initial=-RANGE_DB)
    rise = np.full((ATTACK_FRAMES, 6), np.nan)
    rise[: len(ranges)] = ranges[:ATTACK_FRAMES] - highest
    yield from rise[[0, 1, 2, 4, 6]]
    yield np.argmax(ranges >= highest - 3.0, axis=0).astype(np.float64) if len(ranges) else np.full(6, np.nan)


def _held(masked: MaskedSpectrum) -> Iterator[Values]:
    """Yields the held part: levels, change from frame to frame, slope and what departs from it, by group."""
    levels, audible = masked.levels[ATTACK_FRAMES:], masked.audible[ATTACK_FRAMES:]
    mean = _grouped(levels, np.ones_like(audible))
    yield mean - mean.mean()
    steps, pairs = np.diff(levels, axis=0), audible[1:] & audible[:-1]
    moved = np.maximum(np.abs(steps), STEP_DB)
    yield _grouped(moved, pairs)
    yield _grouped(np.minimum(moved, 0.5), pairs)
    together = np.where(np.minimum(moved[:, 1:], moved[:, :-1]) > STEP_DB, steps[:, 1:] * steps[:, :-1], 0.0)
    yield _ratio(together, np.abs(together) + 1e-6, pairs[:, 1:] & pairs[:, :-1])
    time = np.arange(len(levels))[:, None] / FRAME_RATE
    slope, rest = _fit_lines(np.broadcast_to(time, levels.shape), levels, audible)
    yield slope
    yield rest


def _modulation(masked: MaskedSpectrum) -> Iterator[Values]:
    """Yields the rms modulation in dB, by six ranges of frequency and five of modulation frequency."""
    levels, audible = masked.levels[ATTACK_FRAMES:], masked.audible[ATTACK_FRAMES:]
    nothing = np.full((len(MODULATION_HZ) - 1, 6), np.nan)
    if len(levels) < 4 * FEWEST:
        yield from nothing
        return
    time = np.linspace(-1.0, 1.0, len(levels))
    basis = np.polynomial.legendre.legvander(time, 3)
    rest = levels - basis @ np.linalg.lstsq(basis, levels, rcond=None)[0]
    window = np.hanning(len(rest))[:, None]
    power = np.abs(np.fft.rfft(rest * window, axis=0)) ** 2 / np.square(window).sum() / len(rest) * 2
    frequencies = np.fft.rfftfreq(len(rest), 1 / FRAME_RATE)
    heard = audible.mean(axis=0) > 0.8
    for number, (low, high) in enumerate(itertools.pairwise(MODULATION_HZ)):
        inside = (frequencies >= low) & (frequencies < high)
        if inside.any():
            bands = np.where(
                heard, 10 * np.log10(np.maximum(power[inside].sum(axis=0), MODULATION_DB**2)), np.nan
            )
            nothing[number] = _mean_of_known(bands.reshape(6, -1))
    yield from nothing


def _fine_structure(signal: NDArray[np.float32]) -> Iterator[Values]:
    """Yields by group: depth of the valleys between partials, steadiness of peaks and of valleys."""
    power = _power(signal, LONG_WINDOW, LONG_HOP)
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


def _grouped(values: Values, kept: NDArray[np.bool_]) -> Values:
    """Averages values [frames, bands] over what is kept, by group [12]; NaN of fewer than FEWEST."""
    return _ratio(values, np.ones_like(values), kept)


def _ratio(above: Values, below: Values, kept: NDArray[np.bool_]) -> Values:
    """Divides sums of [frames, bands] over what is kept, by group [12]; NaN of fewer than FEWEST."""
    edges = np.minimum(np.arange(N_GROUPS) * (N_BANDS // N_GROUPS), above.shape[1] - 1)
    counts = np.add.reduceat(kept.sum(axis=0), edges)
    total = np.add.reduceat((above * kept).sum(axis=0), edges)
    whole = np.add.reduceat((below * kept).sum(axis=0), edges)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts >= FEWEST, total / whole, np.nan)


def _fit_lines(time: Values, levels: Values, kept: NDArray[np.bool_]) -> tuple[Values, Values]:
    """Fits a line to each band over what is kept: slope in dB/s and mean departure in dB, by group."""
    n = kept.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        t0, l0 = (time * kept).sum(axis=0) / n, (levels * kept).sum(axis=0) / n
        t, level = (time - t0) * kept, (levels - l0) * kept
        slope = (t * level).sum(axis=0) / np.square(t).sum(axis=0)
        rest = np.abs(level - slope * t).sum(axis=0) / n
    enough = n >= FEWEST
    slope, rest = np.where(enough, slope, np.nan), np.where(enough, rest, np.nan)
    return _mean_of_known(slope.reshape(N_GROUPS, -1)), _mean_of_known(rest.reshape(N_GROUPS, -1))


def _mean_of_known(values: Values) -> Values:
    """Averages rows [n, m] over what is not NaN."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(known, values, 0.0).sum(axis=1) / np.where(
            known.any(axis=1), known.sum(axis=1), np.nan
        )


def _masked_by_neighbours(levels: Values) -> Values:
    """Works out the threshold [frames, bands] that louder bands at the same time set."""
    threshold = np.full_like(levels, -np.inf)
    for distance in range(1, 6):
        up = levels[:, :-distance] - MASKING_DB - UPWARD_DB * distance
        down = levels[:, distance:] - MASKING_DB - DOWNWARD_DB * distance
        threshold[:, distance:] = np.maximum(threshold[:, distance:], up)
        threshold[:, :-distance] = np.maximum(threshold[:, :-distance], down)
    return threshold


def _masked_by_the_past(levels: Values) -> Values:
    """Works out the threshold [frames, bands] that what sounded before sets."""
    ramp = FORWARD_SLOPE_DB * np.arange(len(levels))[:, None]
    held = np.maximum.accumulate(levels + ramp, axis=0) - ramp  # decays from every peak on
    threshold = np.full_like(levels, -np.inf)
    threshold[1:] = held[:-1] - FORWARD_DB - FORWARD_SLOPE_DB
    return threshold


def _power(signal: NDArray[np.float32], length: int, hop: int) -> NDArray[np.float32]:
    """Power [frames, bins] of Hann windows, one every `hop` samples; silence follows the note."""
    padded = np.pad(signal, (0, length))
    frames = np.lib.stride_tricks.sliding_window_view(padded, length)[::hop]
    window = np.hanning(length + 1)[:-1].astype(np.float32)
    spectrum = np.fft.rfft(frames * (window * (2.0 / window.sum())))
    return np.asarray(spectrum.real**2 + spectrum.imag**2, dtype=np.float32)


@functools.cache
def _edges() -> Values:
    """Edges and centres of the bands in Hz, [38]."""
    low, high = (2595.0 * np.log10(1.0 + hertz / 700.0) for hertz in (LOWEST_HZ, HIGHEST_HZ))
    return np.asarray(700.0 * (10.0 ** (np.linspace(low, high, N_BANDS + 2) / 2595.0) - 1.0))


@functools.cache
def _filters() -> NDArray[np.float32]:
    """Triangular filters [513, 36], 1 in the middle."""
    bins = np.fft.rfftfreq(WINDOW, 1.0 / SAMPLE_RATE)[:, None]
    low, centre, high = _edges()[:-2], _edges()[1:-1], _edges()[2:]
    return np.clip(
        np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre)), 0, None
    ).astype(np.float32)


@functools.cache
def _group_bins() -> tuple[slice, ...]:
    """The bins of the long windows in each group."""
    step = N_BANDS // N_GROUPS
    edges = np.searchsorted(np.fft.rfftfreq(LONG_WINDOW, 1.0 / SAMPLE_RATE), _edges()[1::step])
    return tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(edges))
