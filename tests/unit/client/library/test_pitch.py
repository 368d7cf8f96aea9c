"""Two trackers against tones of known pitch, and what their readings mean."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from timbrel.library.render.harmonics import HarmonicSum
from timbrel.library.render.pitch import (
    Tracker,
    correction_cents,
    find_trackers,
    first_decides,
    is_far_off,
    is_in_tune,
)
from timbrel_bundle.yin import Yin

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


@pytest.mark.parametrize(
    ("one", "other", "far_off", "correction"),
    [
        (60.0, 60.0, False, 0),
        (60.04, 60.04, False, 0),
        (60.12, 60.10, False, -10),
        (59.80, 59.70, False, 20),
        (60.50, 60.49, False, -49),
        (60.12, 60.02, False, 0),  # one of them hears nothing amiss
        (60.12, 59.88, False, 0),  # they contradict each other
        (60.12, 72.14, False, -12),  # one tracker's octave error: it tells the cents all the same
        (60.12, 24.08, False, -8),
        (59.80, 72.12, False, 0),
        (60.12, 79.14, False, 0),  # no octave
        (72.12, 72.12, True, 0),
        (60.00, 48.00, False, 0),
        (60.10, 61.00, False, 0),
        (72.00, 72.00, True, 0),
        (61.00, 48.00, True, 0),
        (60.51, 60.52, True, 0),
        (None, 72.0, False, 0),
        (72.0, None, False, 0),
        (None, None, False, 0),
    ],
)
def test_both_trackers_have_to_agree(
    one: float | None, other: float | None, far_off: bool, correction: int
) -> None:
    for pair in ((one, other), (other, one)):
        assert is_far_off(60, *pair) is far_off
        assert correction_cents(60, *pair) == correction


def test_in_tune_is_within_half_a_semitone_by_either() -> None:
    assert is_in_tune(60, 60.4, 72.0)
    assert is_in_tune(60, None, 59.6)
    assert not is_in_tune(60, 72.0, 60.6)
    assert not is_in_tune(60, None, None)
    assert is_in_tune(60, 60.6, None, tune=-20)


@pytest.mark.parametrize("one", [59.96, 60.0, 60.049])
@pytest.mark.parametrize("other", [None, 36.0, 59.4, 59.8, 60.0, 60.1, 60.6, 72.0])
def test_a_first_reading_that_settles_it_leaves_nothing_to_a_second(one: float, other: float | None) -> None:
    assert first_decides(60, one)
    assert not is_far_off(60, one, other) and not is_far_off(60, one, None)
    assert correction_cents(60, one, other) == correction_cents(60, one, None) == 0
    assert is_in_tune(60, one, other) and is_in_tune(60, one, None)


@pytest.mark.parametrize("one", [None, 59.94, 60.06, 60.6, 72.0])
def test_any_other_first_reading_calls_for_a_second(one: float | None) -> None:
    assert not first_decides(60, one)
