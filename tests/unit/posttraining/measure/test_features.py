"""The features of notes whose level, colour and noise are known."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from numpy.typing import NDArray

from timbrel.pitch import PitchMeter
from timbrel_posttraining.evaluate.measure.features import (
    HNR_LIMIT_DB,
    SILENCE_DB,
    Envelope,
    NoteFeatures,
    brightness_hz,
    harmonic_to_noise_db,
    level_db,
    measure_note,
)
from timbrel_training.notes.spectrum import log_mel, power_spectrum

RATE = 48_000
SILENCE = np.zeros(RATE, np.float32)


def brightness_of(audio: NDArray[np.float32], sample_rate: int) -> float | None:
    return brightness_hz(power_spectrum(audio, sample_rate))


@pytest.fixture(scope="module")
def meter() -> PitchMeter:
    return PitchMeter()


def test_a_note_is_measured_in_full(meter, tone) -> None:
    audio = np.concatenate([tone(64, 0.8), np.zeros(RATE // 2, np.float32)])
    features, mel = measure_note(audio, RATE, 64, 0.6, meter)
    assert features.seconds == pytest.approx(1.3)
    assert features.within_15
    assert features.release_seconds == pytest.approx(0.2, abs=0.015)
    assert features.level_db == pytest.approx(level_db(audio, RATE), abs=0.1)
    assert features.harmonic_to_noise_db > 25
    assert np.abs(mel - log_mel(audio, RATE)).max() < 0.1


def test_noise_around_an_out_of_tune_note_is_judged_at_its_own_pitch(meter, tone) -> None:
    features, _ = measure_note(tone(67), RATE, 60, 0.5, meter)
    assert not features.in_tune
    assert features.harmonic_to_noise_db > 25


def test_features_survive_json(meter, tone) -> None:
    features, _ = measure_note(tone(72), RATE, 72, 0.5, meter, point=(0.25, -0.5), truncated=True)
    values = json.loads(json.dumps(asdict(features), allow_nan=False))
    assert values["in_tune"] is True
    assert NoteFeatures(**values) == features
    assert (features.x, features.y, features.truncated) == (0.25, -0.5, True)


@pytest.mark.parametrize("n_samples", [0, 1, 480, 3000, RATE])
def test_silence_of_any_length_can_be_measured(meter, n_samples) -> None:
    features, _ = measure_note(np.zeros(n_samples, np.float32), RATE, 60, 0.3, meter)
    assert not features.in_tune
    assert math.isnan(features.attack_seconds) and math.isnan(features.brightness)
    json.dumps(asdict(features))


@pytest.mark.parametrize("n_samples", [1, 480, 3000])
def test_a_click_can_be_measured(meter, n_samples) -> None:
    features, mel = measure_note(np.full(n_samples, 0.5, np.float32), RATE, 60, 0.3, meter)
    json.dumps(asdict(features))
    assert mel.shape[1] == 80


def shaped(tone: NDArray[np.float32], corners: list[tuple[float, float]]) -> NDArray[np.float32]:
    """The tone times straight lines between (seconds, gain)."""
    seconds, gains = zip(*corners, strict=True)
    return (tone * np.interp(np.arange(len(tone)) / RATE, seconds, gains)).astype(np.float32)


@pytest.mark.parametrize("pitch", [36, 72])
@pytest.mark.parametrize("rise", [0.05, 0.2, 0.5])
def test_a_linear_rise_measures_seven_tenths_of_itself(tone, rise, pitch) -> None:
    audio = shaped(tone(pitch, 1.5), [(0.1, 0.0), (0.1 + rise, 1.0)])
    assert Envelope.of(audio, RATE).attack_seconds == pytest.approx(0.7 * rise, abs=0.012)
    assert Envelope.of(audio, RATE).onset_seconds == pytest.approx(0.1 + 0.1 * rise, abs=0.01)


@pytest.mark.parametrize("leading", [0.0, 0.03, 0.25])
def test_a_sudden_note_begins_where_it_begins(tone, leading) -> None:
    audio = np.concatenate([np.zeros(round(leading * RATE), np.float32), tone(60)])
    assert Envelope.of(audio, RATE).onset_seconds == pytest.approx(leading, abs=0.009)
    assert Envelope.of(audio, RATE).attack_seconds == pytest.approx(0.0, abs=0.016)


def test_level_does_not_change_attack(tone) -> None:
    audio = shaped(tone(60), [(0.0, 0.0), (0.3, 1.0)])
    assert Envelope.of(0.01 * audio, RATE).attack_seconds == Envelope.of(audio, RATE).attack_seconds


@pytest.mark.parametrize("held", [0.2, 1.0])
@pytest.mark.parametrize("decay_db_per_second", [60.0, 300.0])
def test_the_release_ends_60_db_down(tone, held, decay_db_per_second) -> None:
    moments = np.arange(round((held + 1.5) * RATE)) / RATE
    gains = 10 ** (-np.maximum(moments - held, 0) * decay_db_per_second / 20)
    audio = tone(60, held + 1.5) * gains.astype(np.float32)
    assert Envelope.of(audio, RATE).release_seconds(held) == pytest.approx(
        60 / decay_db_per_second, abs=0.015
    )


def test_a_note_that_ended_before_its_key_has_no_release(tone) -> None:
    early = np.concatenate([tone(60, 0.3), SILENCE])
    assert Envelope.of(early, RATE).release_seconds(0.5) == 0
    assert Envelope.of(tone(60, 1.0), RATE).release_seconds(0.4) == pytest.approx(0.6, abs=0.002)


def test_level_is_that_of_the_loudest_400_ms(tone) -> None:
    sine = tone(69, 1.0, n_harmonics=1, amplitude=0.5)
    assert level_db(sine, RATE) == pytest.approx(-9.03, abs=0.02)
    assert level_db(0.1 * sine, RATE) == pytest.approx(-29.03, abs=0.02)
    assert level_db(np.concatenate([SILENCE, sine, SILENCE]), RATE) == pytest.approx(-9.03, abs=0.02)
    assert level_db(sine[: RATE // 5], RATE) == pytest.approx(-12.04, abs=0.02)


@pytest.mark.parametrize("audio", [SILENCE, SILENCE[:0]], ids=["silence", "nothing"])
def test_silence_has_no_shape(audio) -> None:
    assert Envelope.of(audio, RATE).onset_seconds is None
    assert Envelope.of(audio, RATE).attack_seconds is None
    assert Envelope.of(audio, RATE).release_seconds(0.2) == 0
    assert level_db(audio, RATE) == SILENCE_DB


@pytest.mark.parametrize("pitch", [36, 60, 94])
@pytest.mark.parametrize("ratio_db", [0, 10, 20])
def test_harmonic_to_noise_is_the_known_ratio(tone, noise, pitch, ratio_db) -> None:
    # The noise that counts lies below 12 kHz; made at 24 kHz, all of it does.
    note = tone(pitch, 2.0, sample_rate=24_000, n_harmonics=5)
    gain = np.sqrt(np.mean(note**2)) * 10 ** (-ratio_db / 20)
    assert harmonic_to_noise_db(note + gain * noise, 24_000, pitch) == pytest.approx(ratio_db, abs=1.5)


def test_pure_tones_and_pure_noise_are_the_ends(tone, noise) -> None:
    assert harmonic_to_noise_db(tone(60), RATE, 60) > 30
    assert harmonic_to_noise_db(tone(60.3), RATE, 60) > 30
    assert -HNR_LIMIT_DB <= harmonic_to_noise_db(noise, RATE, 60) < -5
    assert harmonic_to_noise_db(SILENCE, RATE, 60) is None
    assert harmonic_to_noise_db(tone(60, 0.05), RATE, 60) is None


def test_the_centroid_of_a_sine_is_its_frequency(tone) -> None:
    fade = np.interp(np.arange(38_400), [0, 4800, 33_600, 38_400], [0, 1, 1, 0]).astype(np.float32)
    for pitch, hertz in ((69, 440.0), (93, 1760.0)):
        audio = fade * tone(pitch, n_harmonics=1)
        assert brightness_of(audio, RATE) == pytest.approx(hertz, rel=0.03)
        assert brightness_of(0.01 * audio, RATE) == pytest.approx(brightness_of(audio, RATE), rel=1e-3)
    assert brightness_of(tone(60, n_harmonics=12), RATE) > brightness_of(tone(60, n_harmonics=4), RATE)
    assert brightness_of(SILENCE, RATE) is None
