"""Additive notes."""

from __future__ import annotations

import numpy as np
from simple_notes import SyntheticSource

SOURCE = SyntheticSource(n_instruments=2, pitches=(57, 69), n_draws=3)


def test_the_same_notes_come_again() -> None:
    first, second = list(SOURCE), list(SOURCE)
    assert len(first) == 12
    assert all(np.array_equal(a.audio, b.audio) for a, b in zip(first, second, strict=True))


def test_notes_sound_at_the_pitch_asked() -> None:
    for note in SOURCE:
        spectrum = np.abs(np.fft.rfft(note.audio, 2**17))
        frequency = np.argmax(spectrum) * note.sample_rate / 2**17
        assert abs(12 * np.log2(frequency / 440) + 69 - note.pitch) < 0.3


def test_blown_notes_last_as_long_as_they_are_held() -> None:
    for note in SOURCE.notes("Synthetic 1"):
        assert 0.1 < note.seconds - note.held_seconds < 0.3


def test_harder_is_louder() -> None:
    notes = sorted(SOURCE.notes("Synthetic 1"), key=lambda note: note.velocity)
    rms = [float(np.sqrt(np.mean(note.audio[480:2400] ** 2))) for note in notes]
    assert rms == sorted(rms)


def test_audio_is_finite_float32_within_range() -> None:
    for note in SyntheticSource(n_instruments=2, pitches=(0, 127), n_draws=1):
        assert note.audio.dtype == np.float32 and np.isfinite(note.audio).all()
        assert float(np.abs(note.audio).max(initial=0)) < 1
