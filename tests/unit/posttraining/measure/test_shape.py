"""Onset, attack, release and level of notes whose envelope is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from timbrel_posttraining.evaluate.measure.attack import attack_seconds, onset_seconds
from timbrel_posttraining.evaluate.measure.level import SILENCE_DB, level_db
from timbrel_posttraining.evaluate.measure.release import release_seconds

RATE = 48_000
SILENCE = np.zeros(RATE, np.float32)


def shaped(tone: NDArray[np.float32], corners: list[tuple[float, float]]) -> NDArray[np.float32]:
    """The tone times straight lines between (seconds, gain)."""
    seconds, gains = zip(*corners, strict=True)
    return (tone * np.interp(np.arange(len(tone)) / RATE, seconds, gains)).astype(np.float32)


@pytest.mark.parametrize("pitch", [36, 72])
@pytest.mark.parametrize("rise", [0.05, 0.2, 0.5])
def test_a_linear_rise_measures_seven_tenths_of_itself(tone, rise, pitch) -> None:
    audio = shaped(tone(pitch, 1.5), [(0.1, 0.0), (0.1 + rise, 1.0)])
    assert attack_seconds(audio, RATE) == pytest.approx(0.7 * rise, abs=0.012)
    assert onset_seconds(audio, RATE) == pytest.approx(0.1 + 0.1 * rise, abs=0.01)


@pytest.mark.parametrize("leading", [0.0, 0.03, 0.25])
def test_a_sudden_note_begins_where_it_begins(tone, leading) -> None:
    audio = np.concatenate([np.zeros(round(leading * RATE), np.float32), tone(60)])
    assert onset_seconds(audio, RATE) == pytest.approx(leading, abs=0.009)
    assert attack_seconds(audio, RATE) == pytest.approx(0.0, abs=0.016)


def test_level_does_not_change_attack(tone) -> None:
    audio = shaped(tone(60), [(0.0, 0.0), (0.3, 1.0)])
    assert attack_seconds(0.01 * audio, RATE) == attack_seconds(audio, RATE)


@pytest.mark.parametrize("held", [0.2, 1.0])
@pytest.mark.parametrize("decay_db_per_second", [60.0, 300.0])
def test_the_release_ends_60_db_down(tone, held, decay_db_per_second) -> None:
    moments = np.arange(round((held + 1.5) * RATE)) / RATE
    gains = 10 ** (-np.maximum(moments - held, 0) * decay_db_per_second / 20)
    audio = tone(60, held + 1.5) * gains.astype(np.float32)
    assert release_seconds(audio, RATE, held) == pytest.approx(60 / decay_db_per_second, abs=0.015)


def test_a_note_that_ended_before_its_key_has_no_release(tone) -> None:
    early = np.concatenate([tone(60, 0.3), SILENCE])
    assert release_seconds(early, RATE, 0.5) == 0
    assert release_seconds(tone(60, 1.0), RATE, 0.4) == pytest.approx(0.6, abs=0.002)


def test_level_is_that_of_the_loudest_400_ms(tone) -> None:
    sine = tone(69, 1.0, n_harmonics=1, amplitude=0.5)
    assert level_db(sine, RATE) == pytest.approx(-9.03, abs=0.02)
    assert level_db(0.1 * sine, RATE) == pytest.approx(-29.03, abs=0.02)
    assert level_db(np.concatenate([SILENCE, sine, SILENCE]), RATE) == pytest.approx(-9.03, abs=0.02)
    assert level_db(sine[: RATE // 5], RATE) == pytest.approx(-12.04, abs=0.02)


@pytest.mark.parametrize("audio", [SILENCE, SILENCE[:0]], ids=["silence", "nothing"])
def test_silence_has_no_shape(audio) -> None:
    assert onset_seconds(audio, RATE) is None
    assert attack_seconds(audio, RATE) is None
    assert release_seconds(audio, RATE, 0.2) == 0
    assert level_db(audio, RATE) == SILENCE_DB
