"""Two trackers against tones of known pitch, and what their readings mean."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from timbrel.library.render.harmonics import HarmonicSum
from timbrel.library.render.level import Trimmed
from timbrel.library.render.measure import measure
from timbrel.library.render.pitch import (
    Tracker,
    TrackerPair,
    correction_cents,
    find_trackers,
    first_decides,
    is_far_off,
    is_in_tune,
    strongest_partial,
)
from timbrel_bundle.audio import resample
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


def test_of_two_readings_the_one_nearer_to_the_pitch_asked_counts(tone: Tone) -> None:
    class Deaf:
        name = "deaf"

        def measure(self, audio: npt.NDArray[np.float32], sample_rate: int) -> float | None:
            return None

    class OctaveHigher(Yin):
        def measure(self, audio: npt.NDArray[np.float32], sample_rate: int) -> float | None:
            heard = super().measure(audio, sample_rate)
            return None if heard is None else heard + 12.0

    audio, silence = tone(72, 0.6), np.zeros(SAMPLE_RATE, dtype=np.float32)
    for pair in (TrackerPair(OctaveHigher(), Yin()), TrackerPair(Yin(), Deaf())):
        assert pair.nearest(72, audio, SAMPLE_RATE) == pytest.approx(72.0, abs=0.02)
        assert pair.nearest(72, silence, SAMPLE_RATE) is None
    assert TrackerPair(OctaveHigher(), Yin()).nearest(84, audio, SAMPLE_RATE) == pytest.approx(84.0, abs=0.02)


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


BELL = ((1.0, 1.0), (2.742, 0.35), (4.368, 0.07), (6.405, 0.07))
"""Partials of an FM bell and their amplitudes: no period lies near its pitch."""


@pytest.mark.parametrize("asked", [36, 60, 84])
def test_a_bell_has_the_pitch_of_its_strongest_partial(asked: int) -> None:
    seconds = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    hertz = 440.0 * 2.0 ** ((asked + 0.1 - 69) / 12)
    bell = sum(level * np.sin(2 * np.pi * hertz * ratio * seconds) for ratio, level in BELL)
    audio = (0.1 * bell * 10 ** (-10 * seconds / 20)).astype(np.float32)
    misled = (asked - 0.8, asked + 13.1)
    assert strongest_partial(asked, misled, audio, SAMPLE_RATE) == pytest.approx(asked + 0.1, abs=0.02)
    coarse = resample(audio, SAMPLE_RATE, 8000)
    assert strongest_partial(asked, misled, coarse, 8000) == pytest.approx(asked + 0.1, abs=0.02)
    assert strongest_partial(asked + 2, misled, audio, SAMPLE_RATE) is None, "it is another note"
    assert strongest_partial(asked, (None, None), audio, SAMPLE_RATE) is None, "noise has some strongest one"
    assert all(strongest_partial(asked, misled, audio[:n], SAMPLE_RATE) is None for n in (0, 100, 4800))
    assert all(strongest_partial(asked, misled, audio, rate) is None for rate in (1, 40, 8000))
    assert strongest_partial(asked, misled, audio, 12_000) is None, "it is two octaves lower"


@pytest.mark.parametrize("below", [12, 19.02, 24, 27.86])
def test_a_strong_harmonic_of_another_note_is_not_the_note(below: float, tone: Tone) -> None:
    number = round(2 ** (below / 12))
    audio = tone(72 - below, 1.2, harmonics=(*(number - 1) * (0.1,), 1.0, 0.1))
    assert strongest_partial(72, (72 - below, None), audio, SAMPLE_RATE) is None
    assert strongest_partial(72, (71.0, None), audio, SAMPLE_RATE) == pytest.approx(72, abs=0.02)


def test_a_bell_that_misleads_both_trackers_is_in_tune() -> None:
    class Misled:
        def __init__(self, name: str, heard: float) -> None:
            self.name, self._heard = name, heard

        def measure(self, audio: npt.NDArray[np.float32], sample_rate: int) -> float | None:
            return self._heard

    seconds = np.arange(2 * SAMPLE_RATE) / SAMPLE_RATE
    audio = sum(0.1 * level * np.sin(2 * np.pi * 261.6 * ratio * seconds) for ratio, level in BELL)
    bell = np.asarray(audio, np.float32)
    pair = TrackerPair(Misled("one", 59.2), Misled("other", 79.1))
    found = measure(bell, Trimmed(bell, 0), SAMPLE_RATE, 60, 1.0, pair)
    assert found.pitch == 59.2 and found.other_pitch == pytest.approx(60.0, abs=0.02)
    assert found.trackers == "one+partial" and is_in_tune(60, *found.heard)
    assert measure(bell, Trimmed(bell, 0), SAMPLE_RATE, 62, 1.0, pair).heard == (59.2, 79.1)
