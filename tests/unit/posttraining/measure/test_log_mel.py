"""Log-mel spectrograms and their distance."""

from __future__ import annotations

import numpy as np
import pytest

from timbrel_training.notes.spectrum import FLOOR_DB, log_mel, log_mel_distance, mel_filters

RATE = 48_000


def test_shape_and_scale(tone) -> None:
    mel = log_mel(tone(69, 1.0, n_harmonics=1, amplitude=1.0), RATE)
    assert mel.shape == (1 + 24_000 // 256, 80)
    centres = mel_filters().argmax(axis=0) * 24_000 / 1024
    assert centres[mel[40].argmax()] == pytest.approx(440, abs=40)
    # A filter averages over its bins, so a sine of amplitude 1 stays some dB below 0.
    assert -12 < mel.max() <= 0
    assert np.allclose(mel_filters().sum(axis=0), 1, atol=1e-5)


def test_silence_is_the_floor_and_nothing_has_no_frames() -> None:
    assert log_mel(np.zeros(RATE, np.float32), RATE).max() == pytest.approx(FLOOR_DB)
    assert log_mel(np.zeros(0, np.float32), RATE).shape == (0, 80)


def test_a_change_of_level_is_its_own_distance(noise) -> None:
    reference = log_mel(0.1 * noise, RATE)
    assert log_mel_distance(reference, reference) == 0
    assert log_mel_distance(reference, reference - 6) == pytest.approx(6, abs=0.02)
    assert log_mel_distance(reference, log_mel(0.2 * noise, RATE)) == pytest.approx(6.02, abs=0.02)


def test_what_lies_60_db_below_the_references_peak_does_not_count() -> None:
    reference = np.full((10, 80), -30.0, np.float32)
    silence = np.full((10, 80), FLOOR_DB, np.float32)
    assert log_mel_distance(reference, silence) == pytest.approx(60)
    assert log_mel_distance(silence + 5, silence) == pytest.approx(5)
    half = reference.copy()
    half[:, 40:] = -100.0
    assert log_mel_distance(half, half + np.where(np.arange(80) < 40, 0, -15)) == 0


def test_the_shorter_note_is_followed_by_silence() -> None:
    reference = np.full((10, 80), -30.0, np.float32)
    assert log_mel_distance(reference, reference[:5]) == pytest.approx(30)
    assert log_mel_distance(reference[:5], reference) == pytest.approx(30)
    assert log_mel_distance(reference, reference[:0]) == pytest.approx(60)
    assert log_mel_distance(reference[:0], reference[:0]) == 0


def test_half_precision_keeps_the_distance(tone) -> None:
    a, b = log_mel(tone(60), RATE), log_mel(tone(61), RATE)
    kept = log_mel_distance(a.astype(np.float16), b.astype(np.float16))
    assert kept == pytest.approx(log_mel_distance(a, b), abs=0.02)
