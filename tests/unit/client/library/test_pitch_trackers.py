"""Two trackers against tones of known pitch."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from timbrel.library.pitch.harmonics import HarmonicSum
from timbrel.library.pitch.trackers import Tracker, find_trackers
from timbrel.library.pitch.yin import Yin

SAMPLE_RATE = 48_000

Tone = Callable[..., npt.NDArray[np.float32]]

SHAPES = {
    "saw": tuple(1 / k for k in range(1, 20)),
    "square": tuple((k % 2) / k for k in range(1, 20)),
    "sine": (1.0,),
    "strong octave": (0.1, 1.0, 0.5, 0.3),
}


@pytest.mark.parametrize("tracker", [Yin(), HarmonicSum()], ids=lambda tracker: tracker.name)
@pytest.mark.parametrize("shape", SHAPES)
def test_within_two_cents_over_five_octaves(tracker: Tracker, shape: str, tone: Tone) -> None:
    for pitch in (36, 41.3, 48, 60.13, 72, 84, 96):
        heard = tracker.measure(tone(pitch, 0.6, harmonics=SHAPES[shape]), SAMPLE_RATE)
        assert heard is not None and abs(heard - pitch) <= 0.02, f"{pitch}: {heard}"


@pytest.mark.parametrize("tracker", [Yin(), HarmonicSum()], ids=lambda tracker: tracker.name)
def test_noise_silence_and_next_to_nothing_have_no_pitch(tracker: Tracker) -> None:
    noise = np.random.default_rng(1).standard_normal(SAMPLE_RATE).astype(np.float32)
    assert tracker.measure(noise, SAMPLE_RATE) is None
    assert tracker.measure(np.zeros(SAMPLE_RATE, dtype=np.float32), SAMPLE_RATE) is None
    assert tracker.measure(noise[:100], SAMPLE_RATE) is None


@pytest.mark.parametrize("sample_rate", [16_000, 44_100, 96_000])
def test_any_sample_rate(sample_rate: int, tone: Tone) -> None:
    audio = tone(69, 0.5, sample_rate=sample_rate)
    for tracker in (Yin(), HarmonicSum()):
        heard = tracker.measure(audio, sample_rate)
        assert heard is not None and abs(heard - 69) < 0.02


def test_a_quiet_release_does_not_decide(tone: Tone) -> None:
    """A loud note of 0.5 s, then a long, soft one a third away."""
    audio = np.concatenate([tone(60, 0.5), tone(64, 2.0, level=0.001)])
    for tracker in (Yin(), HarmonicSum()):
        heard = tracker.measure(audio, SAMPLE_RATE)
        assert heard is not None and abs(heard - 60) < 0.1


def test_the_whole_of_a_long_note_is_listened_to(tone: Tone) -> None:
    """Its pitch is that of its longer part, which begins late."""
    audio = np.concatenate([tone(60, 2.0), tone(60.3, 3.0)])
    heard = Yin().measure(audio, SAMPLE_RATE)
    assert heard is not None and abs(heard - 60.3) < 0.02


def test_without_swift_f0_the_second_one_is_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "swift_f0", None)
    assert find_trackers().name == "yin+harmonic-sum"


def test_there_are_always_two_different_trackers() -> None:
    pair = find_trackers()
    assert pair.one.name != pair.other.name
    assert pair.name == f"{pair.one.name}+{pair.other.name}"
