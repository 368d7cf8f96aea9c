from __future__ import annotations

import sys

import numpy as np
import pytest
from requirements_gate import require_module

from timbrel.errors import MissingExtraError
from timbrel.pitch import PitchMeter, frequency, is_in_tune, midi_pitch

RATE = 24000


@pytest.fixture(scope="module")
def meter() -> PitchMeter:
    require_module("swift_f0", "demo")
    return PitchMeter()


def tone(pitch: float, seconds: float = 1.0) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """A tone with five harmonics."""
    time = np.arange(int(RATE * seconds)) / RATE
    partials = [np.sin(2 * np.pi * n * frequency(pitch) * time) / n for n in range(1, 6)]
    return (0.3 * np.sum(partials, axis=0)).astype(np.float32)


@pytest.mark.parametrize("pitch", [40, 60, 69.3, 90])
def test_measures_a_tone_within_ten_cents(meter: PitchMeter, pitch: float) -> None:
    measured = meter.measure(tone(pitch), RATE)
    assert measured == pytest.approx(pitch, abs=0.1)


def test_the_attack_does_not_count(meter: PitchMeter) -> None:
    audio = np.concatenate([tone(90, 0.05), tone(60, 1.0)])
    assert meter.measure(audio, RATE) == pytest.approx(60, abs=0.1)


def test_silence_noise_and_next_to_nothing_have_no_pitch(meter: PitchMeter) -> None:
    assert meter.measure(np.zeros(RATE, np.float32), RATE) is None
    assert meter.measure(np.zeros(0, np.float32), RATE) is None
    assert meter.measure(tone(60, 0.01), RATE) is None


def test_hertz_and_midi() -> None:
    assert frequency(60) == pytest.approx(261.6256, abs=1e-4)
    assert midi_pitch(frequency(47.25)) == pytest.approx(47.25)


def test_in_tune_is_half_a_semitone_either_way() -> None:
    assert is_in_tune(60, 60.5) and is_in_tune(60, 59.5)
    assert not is_in_tune(60, 60.51) and not is_in_tune(60, 72.0)
    assert not is_in_tune(60, None)


def test_without_the_tracker_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "swift_f0", None)
    with pytest.raises(MissingExtraError, match=r"timbrel\[demo\]"):
        PitchMeter()
