"""Tuning: detuned, octave-off, unsteady and unpitched sounds."""

from __future__ import annotations

import numpy as np
import pytest

from timbrel.pitch import PitchMeter
from timbrel_bundle.yin import track_pitch
from timbrel_posttraining.evaluate.measure.tuning import measure_tuning, tuning_of

RATE = 48_000


@pytest.fixture(scope="module")
def meter() -> PitchMeter:
    return PitchMeter()


@pytest.mark.parametrize("pitch", [36, 60, 84, 94])
@pytest.mark.parametrize(
    ("cents", "in_tune", "within_15"), [(0, True, True), (30, True, False), (-80, False, False)]
)
def test_detuning_is_measured_by_both_trackers(meter, tone, pitch, cents, in_tune, within_15) -> None:
    audio = tone(pitch + cents / 100)
    tuning = measure_tuning(meter, audio, RATE, pitch)
    assert tuning_of(pitch, None, track_pitch(audio, RATE)).cents == pytest.approx(cents, abs=3)
    assert tuning.cents == pytest.approx(cents, abs=10)
    assert (tuning.in_tune, tuning.within_15) == (in_tune, within_15)
    assert tuning.swift_in_tune == in_tune
    assert not tuning.octave_error


@pytest.mark.parametrize("octaves", [-1, 1, 2])
def test_whole_octaves_off_are_octave_errors(meter, tone, octaves) -> None:
    tuning = measure_tuning(meter, tone(60 + 12 * octaves), RATE, 60)
    assert not tuning.in_tune and tuning.octave_error
    assert not measure_tuning(meter, tone(60 + 12 * octaves + 4), RATE, 60).octave_error


def test_one_tracker_is_enough_to_be_in_tune(tone) -> None:
    track = track_pitch(tone(60), RATE)
    tuning = tuning_of(60, 72.0, track)
    assert tuning.in_tune and not tuning.swift_in_tune and not tuning.octave_error
    assert tuning.cents == pytest.approx(0, abs=3)
    assert tuning_of(72, 72.3, track).in_tune and not tuning_of(72, 72.3, track).within_15


def test_what_has_no_pitch_is_not_in_tune(meter, noise) -> None:
    for audio in (np.zeros(0, np.float32), np.zeros(RATE, np.float32), 0.1 * noise):
        tuning = measure_tuning(meter, audio, RATE, 60)
        assert tuning_of(60, None, track_pitch(audio, RATE)).cents is None
        assert not tuning.in_tune and not tuning.octave_error
        assert tuning.spread_cents is None and tuning.jump_cents == 0.0


def test_spread_is_that_of_the_vibrato(tone) -> None:
    steady = tuning_of(69, None, track_pitch(tone(69, 1.5), RATE))
    assert steady.spread_cents is not None and steady.spread_cents < 1 and steady.jump_cents < 2
    moments = np.arange(2 * RATE) / RATE
    cents = 40 * np.sin(2 * np.pi * 2.0 * moments)
    wave = np.sin(2 * np.pi * np.cumsum(440 * 2 ** (cents / 1200)) / RATE).astype(np.float32)
    vibrato = tuning_of(69, None, track_pitch(0.3 * wave, RATE))
    # Half the width between the deciles of a sine is sin(0.4 pi) of its amplitude.
    assert vibrato.spread_cents == pytest.approx(40 * np.sin(0.4 * np.pi), rel=0.1)
    assert vibrato.jump_cents < 20


def test_a_jump_within_the_note_is_seen_but_not_in_its_faint_tail(tone) -> None:
    both = np.concatenate([tone(60, 0.5), tone(67, 0.5)])
    assert tuning_of(60, None, track_pitch(both, RATE)).jump_cents > 300
    faint = np.concatenate([tone(60, 0.5), 0.005 * tone(67, 0.5)])
    assert tuning_of(60, None, track_pitch(faint, RATE)).jump_cents < 20


@pytest.mark.parametrize("rate", [16_000, 24_000, 44_100])
def test_the_sample_rate_does_not_matter(meter, tone, rate) -> None:
    assert measure_tuning(meter, tone(57, sample_rate=rate), rate, 57).within_15


def test_a_tone_in_noise_keeps_its_pitch(tone, noise) -> None:
    track = track_pitch(tone(50, 1.0) + 0.03 * noise, RATE)
    assert tuning_of(50, None, track).within_15
