"""The movement of a note: how its partials depart from their smooth course, beating and wavering.

It is not coded: a note's header names one of the templates, movements of real notes, that it is most like,
and says how deep each partial's movement is.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from timbrel_training.codec.timbrel_notes.measurement import Array, anchor_powers, course_at
from timbrel_training.codec.timbrel_notes.note_parameters import (
    LEVEL_SECONDS,
    N_MOVING,
    N_MOVING_GROUPS,
    RELEASE_SECONDS,
    group_of_number,
    partial_groups,
)
from timbrel_training.codec.timbrel_notes.partials import BLOCK, Partials

POINT = 256
"""Samples between the points of a movement: control points of the decoder."""
BEGIN_SECONDS = 0.06
"""The attack before is not movement."""
N_POINTS = 400
"""Length of a template: 2.1 s, which then goes back and forth."""
FEWEST_POINTS, ENOUGH_POINTS = 9, 60
"""Shorter movements than the first, 50 ms, say nothing; where the held part has fewer than the second, what
follows its release is listened to as well."""
FEWEST_CYCLES = 0.3
"""A modulation is known where a movement has so much of a cycle of the slowest."""
HEARD_DB = 40.0
"""A release is listened to down to so far below the loudest moment."""
NOTHING = 1e-14
"""Power added where it may be none."""
GROUPS = (0, 2, 6, 14, 30, N_MOVING)
"""Partials that movements are compared by lie between these."""
MODULATION_HZ = (1.0, 8.0, 25.0, 94.0)
"""So do the modulations."""
N_FEATURES = (len(GROUPS) - 1) * len(MODULATION_HZ)
SAMPLE_RATE = 48_000
RATE = SAMPLE_RATE / POINT
"""Points a second."""
AUDIBLE_DB = -75.0
"""Partials further below the loudest moment do not count."""
LEAST_DB, MOST_DB = -32.0, 12.0
"""Levels of a movement are held within."""
LEAST_DEPTH_DB = -40.0
"""A depth of 0.01 dB, or 0.01 Hz: what moves by less stands still."""
GROUP_OF_MOVING = np.array(group_of_number(partial_groups())[:N_MOVING])
"""The group that each partial is in whose movement is known."""

Movement = NDArray[np.float16]
"""[points, 64, 2]: level in dB, phase in cycles, -0.5 to 0.5."""


def measure_movement(partials: Partials, held_seconds: float) -> Movement:
    """Returns the movement of the held part of a note; where that is too short, of what is heard behind the
    release, too. Of no points where there is too little of both."""
    power = np.abs(partials.amplitude.astype(np.complex128)) ** 2
    every = POINT // BLOCK
    seconds = partials.seconds
    held = seconds < max(held_seconds, POINT / SAMPLE_RATE)
    n = min(N_MOVING, power.shape[1])
    total = power.sum(axis=1)
    loudest = 10 * np.log10(total[held].max() + NOTHING)
    heard = seconds[np.flatnonzero(total >= total.max() * 10 ** (-HEARD_DB / 10))[-1]]
    later = np.flatnonzero(seconds >= BEGIN_SECONDS)
    later = later[later % every == 0]
    chosen = later[seconds[later] < held_seconds - 0.02]
    if len(chosen) < ENOUGH_POINTS:
        chosen = later[seconds[later] < heard]
    chosen = chosen[:N_POINTS]
    if len(chosen) < FEWEST_POINTS:
        return np.zeros((0, N_MOVING, 2), dtype=np.float16)
    before = _course(power[held, :n], seconds[held], LEVEL_SECONDS)
    after = _course(power[~held, :n], seconds[~held] - held_seconds, RELEASE_SECONDS)
    course = np.concatenate([before, after])[chosen]
    amplitude = partials.amplitude[chosen, :n]
    level = np.zeros((len(chosen), N_MOVING))
    phase = np.zeros((len(chosen), N_MOVING))
    level[:, :n] = 20 * np.log10(np.abs(amplitude) + 1e-7) - course
    phase[:, :n] = np.angle(amplitude) / (2 * np.pi)
    # What nobody hears does not move.
    begun = before[min(chosen[0], len(before) - 1) :]
    silent = np.flatnonzero(begun.max(axis=0) < loudest + AUDIBLE_DB)
    level[:, silent], phase[:, silent] = 0.0, 0.0
    return np.stack([np.clip(level, LEAST_DB, MOST_DB), phase], axis=2).astype(np.float16)


def _course(power: Array, seconds: Array, anchors: Sequence[float]) -> Array:
    """Returns the levels in dB [J, N] from which powers [J, N] at these seconds depart: their course through
    the anchors, or their mean where too few of these are known."""
    if not len(power):
        return power
    found = anchor_powers(power, seconds, anchors)
    known = ~np.isnan(found[:, 0])
    if known.sum() < 2:
        return np.broadcast_to(10 * np.log10(power.mean(axis=0) + NOTHING), power.shape)
    return course_at(10 * np.log10(found[known] + NOTHING), np.array(anchors)[known], seconds)


def movement_features(movement: NDArray[np.floating]) -> NDArray[np.float32]:
    """Describes a movement: by groups of partials, the log of its levels' modulation in bands, and of how far
    frequencies stray. NaN of bands that it is too short for, or of all."""
    if len(movement) < FEWEST_POINTS:
        return np.full(N_FEATURES, np.nan, dtype=np.float32)
    level, stray = _departures(movement)
    window = np.hanning(len(level) + 2)[1:-1, None]
    power = np.abs(np.fft.rfft(level * window, axis=0)) ** 2 * (2 / np.square(window).sum() / len(level))
    hertz = np.fft.rfftfreq(len(level), 1 / RATE)
    stray = np.sqrt(np.square(stray).mean(axis=0))
    found = []
    for low, high in itertools.pairwise(GROUPS):
        for begin, end in itertools.pairwise(MODULATION_HZ):
            inside = (hertz >= begin) & (hertz < end)
            known = begin * len(level) >= FEWEST_CYCLES * RATE
            modulation = np.log2(np.sqrt(power[inside, low:high].sum(axis=0)).mean() + 0.1)
            found.append(modulation if known else np.nan)
        found.append(np.log2(stray[low:high].mean() + 0.3))
    return np.array(found, dtype=np.float32)


def movement_depth(movement: NDArray[np.floating]) -> Array:
    """Returns how deep a movement is, [2, N_MOVING_GROUPS]: the root mean square of the levels, dB above 1
    dB, and of how far frequencies stray, dB above 1 Hz, of the partials of each group that move. NaN of what
    is too short to say."""
    if len(movement) < FEWEST_POINTS:
        return np.full((2, N_MOVING_GROUPS), np.nan)
    power = np.stack([np.square(each).mean(axis=0) for each in _departures(movement)])
    moves = (movement != 0).any(axis=(0, 2)).astype(np.float64)
    total = np.zeros((2, N_MOVING_GROUPS))
    for row, own in zip(total, power * moves, strict=True):
        row += np.bincount(GROUP_OF_MOVING, own, N_MOVING_GROUPS)
    number = np.bincount(GROUP_OF_MOVING, moves, N_MOVING_GROUPS)
    return np.maximum(10 * np.log10(total / np.maximum(number, 1) + NOTHING), LEAST_DEPTH_DB)


def _departures(movement: NDArray[np.floating]) -> tuple[Array, Array]:
    """Returns by how much levels depart from their mean, dB [points, 64], and frequencies from theirs, Hz
    [points - 1, 64]."""
    level, phase = movement[:, :, 0].astype(np.float64), movement[:, :, 1].astype(np.float64)
    turn = np.diff(phase, axis=0)
    return np.clip(level - level.mean(axis=0), -12, 12), (turn - np.round(turn)) * RATE
