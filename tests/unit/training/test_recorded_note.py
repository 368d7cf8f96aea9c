"""The pitch and the release of recordings of which nobody says them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from timbrel_training.codec.timbrel_notes.recorded_note import (
    NoNoteError,
    estimate_held_seconds,
    estimate_pitch,
)

RATE = 48_000
Audio = npt.NDArray[np.float32]
TIME = np.arange(2 * RATE) / RATE
RNG = np.random.default_rng(0)


def tone(midi: float, stiffness: float = 0.0, noise: float = 0.0, held: float = 2.0) -> Audio:
    hertz = 440 * 2 ** ((midi - 69) / 12)
    number = np.arange(1, 12)
    frequency = hertz * number * np.sqrt(1 + stiffness * number**2)
    audio = (np.sin(2 * np.pi * frequency * TIME[:, None]) / number).sum(axis=1)
    audio = np.where(held > TIME, 1.0, np.exp(-30 * (TIME - held))) * np.exp(-0.5 * TIME) * audio
    return (0.2 * audio + noise * RNG.normal(size=len(TIME))).astype(np.float32)


@pytest.mark.parametrize("midi", [33.0, 47.6, 60.0, 71.9, 96.0])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_the_pitch_of_a_tone_is_found(midi: float, noise: float) -> None:
    assert estimate_pitch(tone(midi, noise=noise), RATE) == pytest.approx(midi, abs=0.1)


def test_stiff_strings_and_two_voices_have_a_pitch() -> None:
    assert estimate_pitch(tone(55.0, stiffness=2e-4), RATE) == pytest.approx(55.0, abs=0.3)
    assert estimate_pitch(tone(64.9) + tone(65.1), RATE) == pytest.approx(65.0, abs=0.2)


@pytest.mark.parametrize(
    ("name", "make_audio", "why"),
    [
        ("noise", lambda: RNG.normal(size=2 * RATE), "no note of a pitch"),
        ("silence", lambda: np.zeros(2 * RATE), "silent"),
        ("click", lambda: np.r_[np.ones(30), np.zeros(RATE)], "no note of a pitch"),
        ("sweep", lambda: np.sin(np.cumsum(np.geomspace(0.02, 0.2, 2 * RATE))), "does not last"),
        ("chord", lambda: tone(60.0) + tone(63.9) + tone(67.3) + tone(71.2), "no note"),
        ("moment", lambda: tone(60.0)[:1000], "too short"),
    ],
)
def test_what_is_no_note_is_said_to_be_none(name: str, make_audio: Callable[[], Audio], why: str) -> None:
    with pytest.raises(NoNoteError, match=why):
        estimate_pitch(make_audio().astype(np.float32), RATE)


@pytest.mark.parametrize("held", [0.3, 0.77, 1.6])
def test_a_release_is_heard(held: float) -> None:
    assert estimate_held_seconds(tone(60.0, held=held), RATE) == pytest.approx(held, abs=0.06)


def test_what_dies_away_by_itself_was_held_to_its_end() -> None:
    audio = tone(60.0) * np.exp(-2 * TIME).astype(np.float32)
    assert estimate_held_seconds(audio, RATE) > 1.8
    assert estimate_held_seconds(audio[:100], RATE) == pytest.approx(0.01, abs=0.01)
