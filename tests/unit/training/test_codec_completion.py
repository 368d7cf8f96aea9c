"""Completed notes: what a short note does not say of its decay, a longer one of its voice does."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from timbrel_training.codec.timbrel_notes.completion import COURSES, complete
from timbrel_training.codec.timbrel_notes.note_parameters import (
    LEVEL_SECONDS,
    N_VALUES,
    RELEASE_SECONDS,
    SHAPES,
)

LEVEL, RELEASE = COURSES[0], COURSES[1]
KNOWN_SHORT, KNOWN_LONG = 6, 16
"""Anchors of the level that a short and a long note reach."""


def notes(*known: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Notes that lose 3 dB from anchor to anchor, each from 10 dB below the one before; known so far."""
    values = np.zeros((len(known), N_VALUES), dtype=np.float32)
    weights = np.zeros_like(values)
    for number, count in enumerate(known):
        course = np.broadcast_to(-10.0 * number - 3 * np.arange(len(LEVEL_SECONDS))[:, None], SHAPES["level"])
        values[number, LEVEL.columns] = np.where(
            np.arange(len(LEVEL_SECONDS))[:, None] < count, course, 77
        ).ravel()
        heard = np.arange(len(LEVEL_SECONDS))[:, None] < count
        weights[number, LEVEL.columns] = np.broadcast_to(heard, SHAPES["level"]).ravel()
    return values, weights


def level(values: NDArray[np.float32], number: int) -> NDArray[np.float32]:
    return values[number, LEVEL.columns].reshape(SHAPES["level"])[:, 0]


def completed(
    values: NDArray[np.float32],
    weights: NDArray[np.float32],
    *,
    voice: list[int],
    midi: list[float],
    held: list[float],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    velocity = np.full(len(voice), 90, dtype=np.float32)
    return complete(
        values,
        weights,
        np.array(voice),
        np.array(midi, dtype=np.float32),
        velocity,
        np.array(held, dtype=np.float32),
    )


def test_a_short_note_goes_on_as_a_longer_one_of_its_voice() -> None:
    values, weights = notes(KNOWN_SHORT, KNOWN_LONG)
    values, weights = completed(values, weights, voice=[1, 1], midi=[60, 61], held=[0.1, 2.5])
    wanted = -3.0 * np.arange(KNOWN_LONG)
    assert level(values, 0)[:KNOWN_LONG] == pytest.approx(wanted)
    heard = weights[0, LEVEL.columns].reshape(SHAPES["level"])[:, 0]
    assert (
        (heard[:KNOWN_SHORT] == 1).all()
        and (heard[KNOWN_SHORT:] > 0).all()
        and (heard[KNOWN_SHORT:] < 1).all()
    )


def test_nothing_is_lent_by_another_voice_and_the_nearest_pitch_lends() -> None:
    values, weights = notes(KNOWN_SHORT, KNOWN_LONG, KNOWN_LONG)
    steep = values[1, LEVEL.columns].reshape(SHAPES["level"])
    steep[:KNOWN_LONG] *= 2
    near, _ = completed(
        values.copy(), weights.copy(), voice=[1, 1, 1], midi=[60, 61, 72], held=[0.1, 2.5, 2.5]
    )
    far, _ = completed(
        values.copy(), weights.copy(), voice=[1, 1, 1], midi=[60, 72, 61], held=[0.1, 2.5, 2.5]
    )
    other, _ = completed(
        values.copy(), weights.copy(), voice=[1, 2, 1], midi=[60, 60, 72], held=[0.1, 2.5, 2.5]
    )
    assert level(near, 0)[KNOWN_LONG - 1] < level(far, 0)[KNOWN_LONG - 1] == level(other, 0)[KNOWN_LONG - 1]


def test_behind_what_is_known_levels_fall_on_and_never_rise() -> None:
    values, weights = notes(KNOWN_LONG)
    completed_values, heard = completed(values.copy(), weights, voice=[1], midi=[60], held=[2.5])
    after = level(completed_values, 0)[KNOWN_LONG - 1 :]
    end = LEVEL_SECONDS[KNOWN_LONG - 1]
    half = int(np.abs(np.array(LEVEL_SECONDS) - end / 2).argmin())
    slope = -3.0 * (KNOWN_LONG - 1 - half) / (end - LEVEL_SECONDS[half])
    assert after[1] - after[0] == pytest.approx(
        slope * (LEVEL_SECONDS[KNOWN_LONG] - LEVEL_SECONDS[KNOWN_LONG - 1]), rel=1e-4
    )
    values[:, LEVEL.columns] *= -1  # a note that swells
    swelling, _ = completed(values, weights, voice=[1], midi=[60], held=[2.5])
    assert np.diff(level(swelling, 0)[KNOWN_LONG - 1 :]).max() <= 0
    assert (heard[0, LEVEL.columns] > 0).all()


def test_a_steady_sound_stays_whatever_its_partials_do_by_chance() -> None:
    values, weights = notes(KNOWN_LONG)
    course = values[0, LEVEL.columns].reshape(SHAPES["level"])
    course[:KNOWN_LONG] = np.random.default_rng(0).normal(-20, 1.0, (KNOWN_LONG, SHAPES["level"][1]))
    values, _ = completed(values, weights, voice=[1], midi=[60], held=[2.5])
    after = values[0, LEVEL.columns].reshape(SHAPES["level"])[KNOWN_LONG - 1 :]
    assert (after == after[0]).all()


def test_a_partial_that_was_silent_falls_with_the_others_when_the_key_is_let_go() -> None:
    values, weights = notes(KNOWN_LONG)
    shape = SHAPES["release"]
    fall = np.broadcast_to(-40.0 * np.array(RELEASE_SECONDS)[:, None], shape).copy()
    heard = np.ones(shape, dtype=np.float32)
    fall[:, 5], heard[:, 5] = 0.0, 0.0
    fall[8:], heard[8:] = 0.0, 0.0  # the recording ends
    values[0, RELEASE.columns], weights[0, RELEASE.columns] = fall.ravel(), heard.ravel()
    values, _ = completed(values, weights, voice=[1], midi=[60], held=[2.5])
    found = values[0, RELEASE.columns].reshape(shape)
    assert found[:, 5] == pytest.approx(found[:, 4], abs=1e-3)
    assert found[:8, 4] == pytest.approx(fall[:8, 4])
    assert (np.diff(found[7:, 4]) < -0.5).all()
