"""The short-time spectrum that the measurements share: windows of 1024 samples every 256, at 24 kHz."""

from __future__ import annotations

import numpy as np
import soxr
from numpy.typing import NDArray

SAMPLE_RATE = 24_000
"""Hz. What is above 12 kHz is not judged: a codec of any rate is compared on what all of them carry."""

WINDOW = 1024
"""Samples."""

HOP = 256
"""Samples."""

LOUD_DB = 20.0
"""A frame is loud where its energy is at most this far below the loudest frame's."""


def at_measuring_rate(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """The audio at 24 kHz."""
    if sample_rate == SAMPLE_RATE or not len(audio):
        return audio
    return np.asarray(soxr.resample(audio, sample_rate, SAMPLE_RATE), dtype=np.float32)


def frames_of(audio: NDArray[np.float32], length: int, hop: int) -> NDArray[np.float32]:
    """Overlapping pieces [frames, length] that lie wholly inside the audio; a view of it, not a copy."""
    if len(audio) < length:
        return np.zeros((0, length), np.float32)
    return np.lib.stride_tricks.sliding_window_view(audio, length)[::hop]


def power_spectrum(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Power [frames, 513] of Hann windows centred every 256 samples; a sine of amplitude 1 peaks at 1."""
    if not len(audio):
        return np.zeros((0, WINDOW // 2 + 1), np.float32)
    padded = np.pad(at_measuring_rate(audio, sample_rate), WINDOW // 2)
    window = hann(WINDOW)
    spectrum = np.fft.rfft(frames_of(padded, WINDOW, HOP) * (window * (2.0 / window.sum())))
    return np.asarray(spectrum.real**2 + spectrum.imag**2, dtype=np.float32)


def loud_frames(power: NDArray[np.float32]) -> NDArray[np.bool_]:
    """[frames], which frames of power [frames, bins] are loud; none of silence."""
    energy = power.sum(axis=1)
    peak = energy.max(initial=0.0)
    return np.asarray((energy > 0.0) & (energy >= peak * 10.0 ** (-LOUD_DB / 10.0)))


def hann(length: int) -> NDArray[np.float32]:
    """A periodic Hann window [length]."""
    return np.hanning(length + 1)[:-1].astype(np.float32)
