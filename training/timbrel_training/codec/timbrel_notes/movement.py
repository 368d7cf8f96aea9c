"""The movement of a note: how its partials depart from their smooth course, beating and wavering.

It is not coded: a note's header names one of the templates, movements of real notes, that it is most like.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from timbrel_training.codec.timbrel_notes.measurement import anchor_powers, course_at
from timbrel_training.codec.timbrel_notes.note_parameters import LEVEL_SECONDS
from timbrel_training.codec.timbrel_notes.partials import BLOCK, Partials

POINT = 256
"""Samples between the points of a movement: control points of the decoder."""
N_MOVING = 64
"""Partials whose movement is known; those above borrow it from the upper half of these."""
BEGIN_SECONDS = 0.06
"""The attack before is not movement."""
N_POINTS = 400
"""Length of a template: 2.1 s, which then goes back and forth."""
FEWEST_POINTS = 60
"""Shorter movements make no template."""
GROUPS = (0, 2, 6, 14, 30, N_MOVING)
"""Partials that movements are compared by lie between these."""
MODULATION_HZ = (1.0, 8.0, 25.0, 94.0)
"""So do the modulations."""
N_FEATURES = (len(GROUPS) - 1) * len(MODULATION_HZ)
RATE = 48_000 / POINT
"""Points a second."""
AUDIBLE_DB = -75.0
"""Partials further below the loudest moment do not count."""
LEAST_DB, MOST_DB = -32.0, 12.0
"""Levels of a movement are held within."""

Movement = NDArray[np.float16]
"""[points, 64, 2]: level in dB, phase in cycles, -0.5 to 0.5."""


def measure_movement(partials: Partials, held_seconds: float) -> Movement:
    """Returns the movement of the held part of a note, of no points where it is too short."""
    power = np.abs(partials.amplitude.astype(np.complex128)) ** 2
    every = POINT // BLOCK
    held = partials.seconds < held_seconds
    n = min(N_MOVING, power.shape[1])
    chosen = np.flatnonzero((partials.seconds >= BEGIN_SECONDS) & (partials.seconds < held_seconds - 0.02))
    chosen = chosen[chosen % every == 0][:N_POINTS]
    if len(chosen) < FEWEST_POINTS:
        return np.zeros((0, N_MOVING, 2), dtype=np.float16)
    anchors = anchor_powers(power[held, :n], partials.seconds[held], LEVEL_SECONDS)
    known = ~np.isnan(anchors[:, 0])
    levels = 10 * np.log10(anchors[known] + 1e-14)
    course = course_at(levels, np.array(LEVEL_SECONDS)[known], partials.seconds[chosen])
    amplitude = partials.amplitude[chosen, :n]
    level = np.zeros((len(chosen), N_MOVING))
    phase = np.zeros((len(chosen), N_MOVING))
    level[:, :n] = 20 * np.log10(np.abs(amplitude) + 1e-7) - course
    phase[:, :n] = np.angle(amplitude) / (2 * np.pi)
    # What nobody hears does not move.
    loudest = 10 * np.log10(power[held].sum(axis=1).max() + 1e-14)
    silent = np.flatnonzero(course.max(axis=0) < loudest + AUDIBLE_DB)
    level[:, silent], phase[:, silent] = 0.0, 0.0
    return np.stack([np.clip(level, LEAST_DB, MOST_DB), phase], axis=2).astype(np.float16)


def movement_features(movement: Movement) -> NDArray[np.float32]:
    """Describes a movement: by groups of partials, the log of its levels' modulation in bands, and of how far
    frequencies stray. NaN where it is too short."""
    if len(movement) < FEWEST_POINTS:
        return np.full(N_FEATURES, np.nan, dtype=np.float32)
    level, phase = movement[:, :, 0].astype(np.float64), movement[:, :, 1].astype(np.float64)
    level = np.clip(level - level.mean(axis=0), -12, 12)
    window = np.hanning(len(level) + 2)[1:-1, None]
    power = np.abs(np.fft.rfft(level * window, axis=0)) ** 2 * (2 / np.square(window).sum() / len(level))
    hertz = np.fft.rfftfreq(len(level), 1 / RATE)
    turn = np.diff(phase, axis=0)
    stray = np.sqrt(np.square((turn - np.round(turn)) * RATE).mean(axis=0))
    found = []
    for low, high in itertools.pairwise(GROUPS):
        for begin, end in itertools.pairwise(MODULATION_HZ):
            inside = (hertz >= begin) & (hertz < end)
            found.append(np.log2(np.sqrt(power[inside, low:high].sum(axis=0)).mean() + 0.1))
        found.append(np.log2(stray[low:high].mean() + 0.3))
    return np.array(found, dtype=np.float32)
