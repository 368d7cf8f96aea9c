"""Measures the parameters of a note, and how much each of them can be heard."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from timbrel_training.codec.timbrel_notes.analysis import hertz as hertz_of_mel
from timbrel_training.codec.timbrel_notes.analysis import mel, spread_matrix
from timbrel_training.codec.timbrel_notes.note_parameters import (
    BURST_SECONDS,
    LEVEL_SECONDS,
    N_BURST_BANDS,
    N_FINE_BANDS,
    N_MOVING_GROUPS,
    N_NOISE_BANDS,
    N_OFFSETS,
    N_VALLEYS,
    NOISE_RELEASE_SECONDS,
    NOISE_SECONDS,
    ONSET_GAINS,
    ONSET_SECONDS,
    RELEASE_SECONDS,
    group_of_number,
    partial_groups,
    stiffness_steps,
    valley_groups,
)
from timbrel_training.codec.timbrel_notes.partials import Partials, gaussian_deviation
from timbrel_training.codec.timbrel_notes.stiffness import number_at, stretched

FLOOR_DB = -95.0
"""Levels are floored so far below the note's loudest moment."""
NOISE_FLOOR_DB = -125.0
"""So is the noise in each bin."""
AUDIBLE_DB, RANGE_DB = -75.0, 35.0
"""From the first on levels count, fully when they are so far above it."""
NOISE_AUDIBLE_DB = -105.0
LEAST_WEIGHT = 0.02
FAINTEST = 1e-12
"""Power that a note's loudest moment has at least: -120 dB of full scale."""
NOTHING = 1e-30
"""Power added where it may be none: far below the floors of the softest notes."""
LONG_WINDOW, SHORT_WINDOW = 2048, 512
"""Samples of the windows that noise is measured by, and of those in the attack."""
N_SHORT_BANDS = 64
NOISE_REACH = (0.011, 0.016, 0.03, 0.06, 0.15, 0.3, 1.0)
"""Seconds around each of the noise's anchors that it is averaged over ..."""
NOISE_RELEASE_REACH = (0.016, 0.03, 0.06, 0.15)
"""... and those after the release."""
COURSE_STEPS, MOST_STEP = 8, 6.0
"""Steps in which a course of levels is found, and how many dB each goes at most; ..."""
MOST_ABOVE = 3.0
"""... none is so many dB more above the mean power around it."""
REACHED = 0.25
"""An anchor is known, too, where the sound ends this share of the way from the one before it too early."""
SHORT_SECONDS = 0.03
"""What decays hardly does over so long: the mean will do."""
BASE_SECONDS, NOISE_BASE_SECONDS = 0.05, 0.15
"""What follows a release is relative to as much before it."""
NOISE_RANGE = (0.25, 2.0)
"""What the recording leaves room for is believed within these factors of the partials' rest."""
BURST_SMOOTHING_HZ = 120.0
BURST_ABOVE, BURST_LEAST = 1.2, 0.002
"""The recording is louder than the partials where it has more than so many times their power: a few per cent
of a strong partial would be a click in all of its band. So much of the rest is noise at least."""
BURST_MEASURED_SECONDS = 0.09

Array = NDArray[np.float64]


def measure_note(
    audio: NDArray[np.float32], partials: Partials, depth: Array, sample_rate: int, held_seconds: float
) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
    """Measures a note, float32 [S] from its onset on, of these partials, whose movement has this `depth` [2,
    N_MOVING_GROUPS], NaN where it is not known. Returns values, weights and the loudest level as
    `NoteAnalysis` has them."""
    levels, release, loudest, level_weights, release_weights = _levels(partials, held_seconds)
    onset = _onset_gains(audio, partials.sound, sample_rate)
    noise = _noise(partials, sample_rate, held_seconds, loudest)
    burst = _burst(audio, partials.sound * _gain_curve(onset, len(audio), sample_rate), sample_rate) - loudest
    burst = np.maximum(burst, NOISE_FLOOR_DB)
    heard = _heard(levels, level_weights)
    offset, offset_weights = _offset(partials, heard)
    steps = np.array([stiffness_steps(partials.stiffness.value)])
    gains = np.maximum(20 * np.log10(onset + 1e-4), -40.0)
    parts = [levels, release, *noise[0], offset, gains, burst, steps, np.nan_to_num(depth)]
    weights = [
        level_weights,
        release_weights,
        *noise[1],
        offset_weights,
        np.ones(ONSET_GAINS),
        _audible(burst, NOISE_AUDIBLE_DB),
        np.array([max(LEAST_WEIGHT, partials.stiffness.certainty)]),
        heard[:N_MOVING_GROUPS] * ~np.isnan(depth),
    ]
    return (
        np.concatenate([np.ravel(part) for part in parts]).astype(np.float32),
        np.concatenate([np.ravel(weight) for weight in weights]).astype(np.float32),
        loudest,
    )


def _levels(partials: Partials, held_seconds: float) -> tuple[Array, Array, float, Array, Array]:
    """Returns levels, those after the release, the loudest moment's, and weights of both."""
    power = np.abs(partials.amplitude.astype(np.complex128)) ** 2
    n_partials = power.shape[1]
    groups = [[number - 1 for number in numbers if number <= n_partials] for numbers in partial_groups()]
    sizes = np.array([len(columns) for columns in groups])
    power = np.stack([power[:, columns].sum(axis=1) / max(1, len(columns)) for columns in groups], axis=1)
    held = partials.seconds < held_seconds
    since = partials.seconds - held_seconds
    before = anchor_powers(power[held], partials.seconds[held], LEVEL_SECONDS)
    after = anchor_powers(power[~held], since[~held], RELEASE_SECONDS)
    end = min(held_seconds, partials.seconds[-1])
    last = (partials.seconds <= end) & (partials.seconds >= end - BASE_SECONDS)
    both = np.concatenate([before, after, power[last].mean(axis=0)[None]])
    known = ~np.isnan(both[:, 0])
    loudest = 10 * math.log10(max((both[known] @ sizes).max(), FAINTEST))
    levels = np.maximum(10 * np.log10(np.nan_to_num(both) + NOTHING) - loudest, FLOOR_DB)
    # A group of several partials counts for more than one.
    weights = _audible(levels, AUDIBLE_DB) * known[:, None] * np.minimum(np.sqrt(sizes), 3.0)
    n, base = len(LEVEL_SECONDS), levels[-1]
    fall = _filled(np.clip(levels[n:-1] - base, -90, 15), known[n:-1])
    fall_weights = weights[n:-1] * np.clip((base - FLOOR_DB - 10) / 20, 0, 1)
    return _filled(levels[:n], known[:n]), fall, loudest, weights[:n], fall_weights


def _noise(
    partials: Partials, sample_rate: int, held_seconds: float, loudest: float
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Returns noise, noise_release, comb and fine, and the weights of each."""
    weights = _averaging(N_FINE_BANDS, LONG_WINDOW, sample_rate)
    signals = partials.sound + partials.rest, partials.sound, partials.rest
    whole, sound, rest = (_spectrum(signal, LONG_WINDOW) @ weights for signal in signals)
    seconds = (np.arange(len(rest)) * (LONG_WINDOW // 4) - LONG_WINDOW / 2) / sample_rate
    held = seconds < max(held_seconds, 0.15)
    since = seconds - held_seconds
    end = min(max(held_seconds, seconds[0]), seconds[-1])
    last = (seconds <= end) & (seconds >= end - NOISE_BASE_SECONDS)

    def at_anchors(power: Array, around: Callable[..., Array]) -> Array:
        before = around(power[held], seconds[held], NOISE_SECONDS, NOISE_REACH)
        after = around(power[~held], since[~held], NOISE_RELEASE_SECONDS, NOISE_RELEASE_REACH)
        return np.concatenate([before, after, power[last].mean(axis=0)[None]])

    # With the partials' own noise, all of it is as strong as in the recording, as far as that can be told.
    mean_whole, mean_sound, mean_rest = (at_anchors(power, _anchor_means) for power in (whole, sound, rest))
    both = np.clip(mean_whole - mean_sound, NOISE_RANGE[0] * mean_rest, NOISE_RANGE[1] * mean_rest)
    both *= at_anchors(rest, anchor_powers) / (mean_rest + NOTHING)
    known = ~np.isnan(both[:, 0])
    bands = np.nan_to_num(both) @ _coarser(N_FINE_BANDS, N_NOISE_BANDS)
    levels = np.maximum(10 * np.log10(bands + NOTHING) - loudest, NOISE_FLOOR_DB)
    weights = _audible(levels, NOISE_AUDIBLE_DB) * known[:, None]
    n, base = len(NOISE_SECONDS), levels[-1]
    fall_weights = weights[n:-1] * np.clip((base - NOISE_FLOOR_DB - 10) / 20, 0, 1)
    finer = _finer(N_NOISE_BANDS, N_FINE_BANDS)
    # Each moment behind the burst counts alike: the loudest would hide how deep the valleys are later.
    behind = known[:n] & (np.array(NOISE_SECONDS) > BURST_SECONDS[-1])
    steady = np.nan_to_num(both[:n][behind if behind.any() else known[:n]]) + NOTHING
    smooth = 10 * np.log10(steady @ _coarser(N_FINE_BANDS, N_NOISE_BANDS)) @ finer
    apart = np.clip(10 * np.log10(steady) - smooth, -30, 12)
    fine = apart.mean(axis=0) if len(apart) else np.zeros(N_FINE_BANDS)
    heard = levels[:n][known[:n]].mean(axis=0) if known[:n].any() else np.full(N_NOISE_BANDS, NOISE_FLOOR_DB)
    fine_weights = _audible(heard @ finer, NOISE_AUDIBLE_DB)
    basis = _comb_basis(partials, sample_rate)
    weighted = basis * fine_weights[:, None]
    comb = np.linalg.solve(weighted.T @ basis + 0.01 * np.eye(basis.shape[1]), weighted.T @ fine)
    comb_weights = np.minimum(weighted.sum(axis=0), 1.5)
    fall = _filled(np.clip(levels[n:-1] - base, -60, 20), known[n:-1])
    values = (
        _filled(levels[:n], known[:n]),
        fall,
        comb.astype(np.float64),
        np.asarray(fine - basis @ comb, dtype=np.float64),
    )
    return values, (weights[:n], fall_weights, comb_weights, fine_weights / 2)


def _onset_gains(audio: NDArray[np.float32], sound: NDArray[np.float32], sample_rate: int) -> Array:
    """Returns factors [ONSET_GAINS] that keep the partials' power within the recording's."""
    step = round(ONSET_SECONDS * sample_rate)
    length = (ONSET_GAINS + 1) * step
    power, own = (
        np.cumsum(np.pad(np.square(signal[:length], dtype=np.float64), (1, max(0, length - len(signal)))))
        for signal in (audio, sound)
    )
    begin = step * np.arange(ONSET_GAINS)
    given, wanted = (total[begin + 2 * step] - total[begin] for total in (own, power))
    return np.asarray(np.sqrt(np.minimum(1.0, wanted / np.maximum(given, 1e-12))))


def _gain_curve(gains: Array, n_samples: int, sample_rate: int) -> Array:
    step = round(ONSET_SECONDS * sample_rate)
    points = step * np.arange(1, ONSET_GAINS + 1)
    after = points[-1] + round(0.01 * sample_rate)
    return np.interp(np.arange(n_samples), [*points, after], [*gains, 1.0])


def _burst(audio: NDArray[np.float32], sound: Array, sample_rate: int) -> Array:
    """Returns levels [7, 16], dB a bin, of what the partials leave of the first moments.

    The rest of a subtraction is too loud there, where partials are measured worst: it counts for no more than
    by what the recording is louder than the partials.
    """
    n = round(BURST_MEASURED_SECONDS * sample_rate)
    weights = _averaging(N_SHORT_BANDS, SHORT_WINDOW, sample_rate)
    rate = sample_rate / (SHORT_WINDOW // 4)
    whole, partials, rest = (
        gaussian_filter1d(
            _spectrum(signal[:n], SHORT_WINDOW) @ weights,
            gaussian_deviation(BURST_SMOOTHING_HZ, rate),
            axis=0,
            mode="nearest",
        )
        for signal in (audio, sound, audio - sound)
    )
    power = np.minimum(rest, np.maximum(whole - BURST_ABOVE * partials, BURST_LEAST * rest))
    seconds = np.arange(len(power)) / rate - SHORT_WINDOW / 2 / sample_rate
    chosen = power[[np.abs(seconds - anchor).argmin() for anchor in BURST_SECONDS]]
    return np.asarray(10 * np.log10(chosen @ _coarser(N_SHORT_BANDS, N_BURST_BANDS) + NOTHING))


def _heard(levels: Array, weights: Array) -> Array:
    """Returns how far each group of partials is heard, 0 to 1, by its mean over the note."""
    known = weights.max(axis=1) > 0
    mean = 10 * np.log10(np.power(10, levels[known] / 10).mean(axis=0)) if known.any() else levels[0]
    return np.clip((mean + 60) / 40, 0, 1)


def _offset(partials: Partials, groups_heard: Array) -> tuple[Array, Array]:
    """Returns offsets [64], and weights by how far the partials are heard."""
    n = min(N_OFFSETS, len(partials.offset))
    numbers = np.arange(1, n + 1)
    place = stretched(numbers.astype(np.float64), partials.stiffness.value)
    ratio = np.maximum(1 + partials.offset[:n] / (place * partials.fundamental), 0.3)
    offset, heard = np.zeros(N_OFFSETS), np.zeros(N_OFFSETS)
    offset[:n] = np.clip(1200 * np.log2(ratio), -300, 300) * numbers / 20
    heard[:n] = groups_heard[group_of_number(partial_groups())[:n]]
    return offset, 2 * heard


def anchor_powers(
    power: Array, seconds: Array, anchors: Sequence[float], reach: Sequence[float] | None = None
) -> Array:
    """Returns powers [anchors, N] at anchors in time, of powers [J, N] at these seconds; NaN of unknown ones.

    Linear in dB between the anchors, they have the mean power of the sound around each: within its reach, or
    half way to its neighbours. That mean itself is of the beginning alone where the sound decays.
    """
    times = np.array(anchors)
    begin, end = _windows(seconds, anchors, reach)
    found = _anchor_means(power, seconds, anchors, reach)
    known = np.flatnonzero(~np.isnan(found[:, 0]))
    wide = [row for row, k in enumerate(known) if (seconds[end[k] - 1] - seconds[begin[k]]) > SHORT_SECONDS]
    if len(known) < 2 or not wide:
        return found
    wanted = 10 * np.log10(found[known] + NOTHING)
    level = wanted.copy()
    for _ in range(COURSE_STEPS):
        course = np.power(10, course_at(level, times[known], seconds) / 10)
        for row in wide:
            given = course[begin[known[row]] : end[known[row]]].mean(axis=0)
            level[row] += np.clip(wanted[row] - 10 * np.log10(given + NOTHING), -MOST_STEP, MOST_STEP)
    found[known] = np.power(10, np.minimum(level, wanted + MOST_ABOVE) / 10)
    return found


def course_at(level: Array, times: Array, seconds: Array) -> Array:
    """Returns levels [J, N] at these seconds, of those [anchors, N] at two anchors in time or more: linear in
    between, and going on as they last did."""
    before = np.clip(np.searchsorted(times, seconds, "right") - 1, 0, len(times) - 2)
    share = (seconds - times[before]) / (times[before + 1] - times[before])
    return np.asarray(level[before] + (level[before + 1] - level[before]) * share[:, None])


def _anchor_means(
    power: Array, seconds: Array, anchors: Sequence[float], reach: Sequence[float] | None = None
) -> Array:
    """Returns mean powers [anchors, N] around anchors in time; NaN of unknown ones."""
    times = np.array(anchors)
    # An anchor may lie a little behind the end.
    reached = times - REACHED * np.diff(times, prepend=times[0])
    means = np.full((len(times), power.shape[1]), np.nan)
    for k, (begin, end) in enumerate(zip(*_windows(seconds, anchors, reach), strict=True)):
        if begin < end and reached[k] <= seconds[-1]:
            means[k] = power[begin:end].mean(axis=0)
    return means


def _windows(
    seconds: Array, anchors: Sequence[float], reach: Sequence[float] | None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns where what is around each anchor begins and ends, [anchors]; the nearest moment at least."""
    times = np.array(anchors)
    if reach is None:
        middle = (times[1:] + times[:-1]) / 2
        low, high = np.append(-1.0, middle), np.append(middle, 2 * times[-1] - times[-2])
    else:
        low, high = times - np.array(reach), times + np.array(reach)
    begin, end = np.searchsorted(seconds, low), np.searchsorted(seconds, high)
    alone = (begin == end) & (begin < len(seconds))
    return begin, np.where(alone, end + 1, end)


def _filled(levels: Array, known: NDArray[np.bool_]) -> Array:
    """Returns levels [anchors, N], those of unknown anchors being what the nearest known one has."""
    rows = np.flatnonzero(known)
    if not len(rows):
        return levels
    return np.asarray(levels[[rows[np.abs(rows - row).argmin()] for row in range(len(levels))]])


def _audible(levels: Array, audible_db: float) -> Array:
    return np.clip((levels - audible_db) / RANGE_DB, LEAST_WEIGHT, 1.0)


def _spectrum(signal: NDArray[np.floating], window: int) -> Array:
    """Returns power per bin [frames, bins] under the root of a Hann window, four to a window; white noise of
    variance 1 has 1."""
    padded = np.pad(signal, (window, window))
    shape = np.sqrt(np.hanning(window + 1)[:-1])
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[:: window // 4]
    return np.asarray(np.abs(np.fft.rfft(frames * shape)) ** 2 / np.square(shape).sum())


@functools.cache
def _averaging(n_bands: int, window: int, sample_rate: int) -> Array:
    """Returns weights [bins, bands] that average power in the bands of `spread_matrix`."""
    spread = spread_matrix(n_bands, window // 2 + 1, sample_rate).double().numpy()
    return np.asarray((spread / np.maximum(spread.sum(axis=1, keepdims=True), 1e-9)).T)


@functools.cache
def _finer(n_coarse: int, n_fine: int) -> Array:
    """Returns [n_coarse, n_fine], which interpolates between bands evenly spaced in the same range."""
    position = np.linspace(0, n_coarse - 1, n_fine)
    return np.clip(1 - np.abs(position - np.arange(n_coarse)[:, None]), 0, 1)


@functools.cache
def _coarser(n_fine: int, n_coarse: int) -> Array:
    """Returns [n_fine, n_coarse], which averages over the bands that `_finer` interpolates to."""
    weights = _finer(n_coarse, n_fine)
    return np.asarray((weights / weights.sum(axis=1, keepdims=True)).T)


def _comb_basis(partials: Partials, sample_rate: int) -> Array:
    """Returns [N_FINE_BANDS, 2 * valleys]: how much of each value of the comb lies in each fine band."""
    top = float(mel(torch.tensor(sample_rate / 2)))
    centres = hertz_of_mel(torch.linspace(0, top, N_FINE_BANDS)).double().numpy()
    place = number_at(centres / partials.fundamental, partials.stiffness.value)
    group_at = np.array(group_of_number(valley_groups()))
    last = len(group_at) - 1
    near, between = (group_at[np.minimum(n.astype(int), last)] for n in (np.round(place), np.floor(place)))
    away = 2 * np.abs(place - np.round(place))
    basis = np.zeros((N_FINE_BANDS, 2 * N_VALLEYS))
    rows = np.arange(N_FINE_BANDS)
    basis[rows, near] = 1 - away
    basis[rows, N_VALLEYS + between] += away
    return basis
