"""Harmonic-to-noise ratio, brightness and MFCCs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import butter, sosfilt

from timbrel_posttraining.evaluate.measure.brightness import centroid_hz
from timbrel_posttraining.evaluate.measure.harmonicity import LIMIT_DB, harmonic_to_noise_db
from timbrel_posttraining.evaluate.measure.mfcc import cosine, mfcc

RATE = 48_000
SILENCE = np.zeros(RATE, np.float32)


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
    assert -LIMIT_DB <= harmonic_to_noise_db(noise, RATE, 60) < -5
    assert harmonic_to_noise_db(SILENCE, RATE, 60) is None
    assert harmonic_to_noise_db(tone(60, 0.05), RATE, 60) is None


def test_the_centroid_of_a_sine_is_its_frequency(tone) -> None:
    fade = np.interp(np.arange(38_400), [0, 4800, 33_600, 38_400], [0, 1, 1, 0]).astype(np.float32)
    for pitch, hertz in ((69, 440.0), (93, 1760.0)):
        audio = fade * tone(pitch, n_harmonics=1)
        assert centroid_hz(audio, RATE) == pytest.approx(hertz, rel=0.03)
        assert centroid_hz(0.01 * audio, RATE) == pytest.approx(centroid_hz(audio, RATE), rel=1e-3)
    assert centroid_hz(tone(60, n_harmonics=12), RATE) > centroid_hz(tone(60, n_harmonics=4), RATE)
    assert centroid_hz(SILENCE, RATE) is None


def test_mfcc_follow_the_colour_and_not_the_level_or_pitch(noise) -> None:
    def coloured(low: float, high: float) -> np.ndarray:
        return sosfilt(butter(2, (low, high), "bandpass", fs=RATE, output="sos"), noise).astype(np.float32)

    dark, bright = coloured(100, 800), coloured(2000, 8000)
    assert mfcc(dark, RATE).shape == (12,)
    assert np.allclose(mfcc(0.1 * dark, RATE), mfcc(dark, RATE), atol=0.05)
    assert cosine(mfcc(dark, RATE), mfcc(dark[:24_000], RATE)) > 0.99
    assert cosine(mfcc(dark, RATE), mfcc(bright, RATE)) < 0.5


def test_the_first_coefficient_kept_is_the_tilt() -> None:
    """Counted from 1, the second coefficient is half a cosine over the bands."""
    impulse = np.zeros(24_000, np.float32)
    impulse[12_000] = 1.0
    flat = mfcc(impulse, 24_000)
    assert np.abs(flat).max() < 0.1
    falling = mfcc(sosfilt(butter(1, 300, fs=24_000, output="sos"), impulse).astype(np.float32), 24_000)
    assert falling[0] > 20 and falling[0] == np.abs(falling).max()


def test_cosine_of_known_vectors() -> None:
    assert cosine(np.array([1.0, 0.0]), np.array([1.0, 1.0])) == pytest.approx(np.sqrt(0.5))
    assert cosine(np.array([1.0, 2.0]), np.array([-2.0, -4.0])) == pytest.approx(-1)
    assert np.isnan(cosine(mfcc(SILENCE, RATE), np.ones(12)))
