"""Completes measured notes by what their end hides: how they would have gone on, held for longer.

Half the notes of a library are let go within a second, and nothing that is heard of them says how they
decay later. But a model chooses a note's header before it knows how long the key will be held: so the
header's decoder learns from such a note, too, how notes of its instrument go on. Another note of the same
voice that was held longer, of nearly the same pitch and velocity, lends its course; behind that, and behind
the end of a release, levels go on falling as they last did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from timbrel_training.codec.timbrel_notes.note_parameters import (
    LEVEL_SECONDS,
    NOISE_RELEASE_SECONDS,
    NOISE_SECONDS,
    RELEASE_SECONDS,
    SHAPES,
    SIZES,
)

SEMITONES, VELOCITIES = 2.0, 20.0
"""Notes so far apart in pitch, or in velocity, are alike unlikely to decay alike."""
LONG_SECONDS = 3.0
"""A lender that was held for less counts for the less."""
LENT_WEIGHT = 0.5
"""What is lent counts for so much of what it counts for with its lender ..."""
CONTINUED_WEIGHT = 0.1
"""... and what merely goes on as it did, for so much."""
RELEASE_FALL = 20.0
"""Behind the end of a recording a release falls by at least so many dB a second."""
STEADY_FALL = 2.0
"""A sound that falls by less, dB a second, is one that stays: what single partials do is chance."""
STEEPEST_FALL = 200.0

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Course:
    """A part of the parameters that goes along anchors in time."""

    name: str
    seconds: Sequence[float]
    lowest: float
    """dB below which nothing goes."""
    follows_release: bool

    @property
    def columns(self) -> slice:
        """Where the part lies in the vector of parameters."""
        place = list(SHAPES).index(self.name)
        begin = sum(SIZES[:place])
        return slice(begin, begin + SIZES[place])


COURSES = (
    Course("level", LEVEL_SECONDS, -95.0, follows_release=False),
    Course("release", RELEASE_SECONDS, -90.0, follows_release=True),
    Course("noise", NOISE_SECONDS, -125.0, follows_release=False),
    Course("noise_release", NOISE_RELEASE_SECONDS, -60.0, follows_release=True),
)


def complete(
    values: Array, weights: Array, voice: NDArray[np.int64], midi: Array, velocity: Array, held_seconds: Array
) -> tuple[Array, Array]:
    """Completes measured parameters, float32 [N, N_VALUES], in place, and returns them and their weights.

    Weights, float32 [N, N_VALUES], are 0 where a value could not be measured, and above 0 in the end where
    something was put in. `voice` [N] says which notes lend to each other: one instrument of one source.
    """
    lenders = _lenders(voice, midi, velocity, held_seconds)
    for course in COURSES:
        shape = SHAPES[course.name]
        level = values[:, course.columns].reshape(-1, *shape)
        weight = weights[:, course.columns].reshape(-1, *shape)
        last = _last_known(weight)
        if course.follows_release:
            _fill_silent(level, weight)
        else:
            _lend(level, weight, last, lenders)
        _continue(course, level, weight)
        values[:, course.columns] = level.reshape(len(values), -1)
        weights[:, course.columns] = weight.reshape(len(values), -1)
    return values, weights


def _lenders(
    voice: NDArray[np.int64], midi: Array, velocity: Array, held_seconds: Array
) -> NDArray[np.int64]:
    """Returns for each note one of its voice that was held longer, whose course it borrows; or itself."""
    found = np.arange(len(voice))
    for each in np.unique(voice):
        rows = np.flatnonzero(voice == each)
        away = np.abs(midi[rows, None] - midi[rows]) / SEMITONES
        away += np.abs(velocity[rows, None] - velocity[rows]) / VELOCITIES
        away += 4.0 * np.clip(1 - held_seconds[rows] / LONG_SECONDS, 0, 1)
        away[held_seconds[rows] <= 1.2 * held_seconds[rows, None]] = np.inf
        nearest = away.argmin(axis=1)
        lent = np.isfinite(away[np.arange(len(rows)), nearest])
        found[rows[lent]] = rows[nearest[lent]]
    return found


def _last_known(weight: Array) -> NDArray[np.int64]:
    """Returns the last anchor [N] of which anything was measured; -1: none."""
    known = weight.max(axis=2) > 0
    return np.where(known.any(axis=1), known.shape[1] - 1 - known[:, ::-1].argmax(axis=1), -1)


def _lend(level: Array, weight: Array, last: NDArray[np.int64], lenders: NDArray[np.int64]) -> None:
    """Lets levels behind the last that is known go on as the lender's do."""
    own, known = level.copy(), weight.copy()
    for note, lender in enumerate(lenders):
        begin, end = last[note], last[lender] + 1
        if 0 <= begin < end - 1:
            level[note, begin + 1 :] = own[note, begin]
            level[note, begin + 1 : end] += own[lender, begin + 1 : end] - own[lender, begin]
            weight[note, begin + 1 : end] = LENT_WEIGHT * known[lender, begin + 1 : end]


def _fill_silent(level: Array, weight: Array) -> None:
    """Lets partials that were silent before the release, and so say nothing of it, fall as the others do."""
    total = weight.sum(axis=2, keepdims=True)
    mean = (level * weight).sum(axis=2, keepdims=True) / np.maximum(total, 1e-6)
    silent = (weight == 0) & (total > 0)
    level[:] = np.where(silent, mean, level)
    weight[:] = np.where(silent, CONTINUED_WEIGHT * np.minimum(total, 1.0), weight)


def _continue(course: Course, level: Array, weight: Array) -> None:
    """Lets levels go on behind the last that is known or lent, as over the last half of what is."""
    seconds = np.array(course.seconds, dtype=np.float32)
    last = _last_known(weight)
    for note in np.flatnonzero((last >= 1) & (last < len(seconds) - 1)):
        end = last[note]
        begin = int(np.abs(seconds[:end] - seconds[end] / 2).argmin())
        slope = (level[note, end] - level[note, begin]) / (seconds[end] - seconds[begin])
        heard = weight[note, end]
        if course.follows_release:
            slope = np.minimum(slope, -RELEASE_FALL)
        elif (slope * heard).sum() > -STEADY_FALL * heard.sum():
            slope = np.zeros_like(slope)
        slope = np.clip(slope, -STEEPEST_FALL, 0.0)
        onward = level[note, end] + slope * (seconds[end + 1 :, None] - seconds[end])
        level[note, end + 1 :] = np.maximum(onward, course.lowest)
        weight[note, end + 1 :] = CONTINUED_WEIGHT
    np.clip(level, course.lowest, None, out=level)
