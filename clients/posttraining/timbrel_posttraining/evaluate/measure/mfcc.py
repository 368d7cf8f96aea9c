"""The broad shape of a note's spectrum, whatever its pitch: mel-frequency cepstral coefficients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

from timbrel_training.notes.spectrum import RANGE_DB, log_mel_of_power, loud_frames, power_spectrum

N_COEFFICIENTS = 12
"""2 to 13, counted from 1: the first is the level."""


def mfcc(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Coefficients 2 to 13 [12], averaged over the loud frames; zeros of silence.

    The orthonormal DCT-II of the log-mel spectrogram in dB, clipped 60 dB below its peak.
    """
    return mfcc_of(power_spectrum(audio, sample_rate))


def mfcc_of(power: NDArray[np.float32]) -> NDArray[np.float32]:
    """As `mfcc`, of power [frames, 513]."""
    loud = power[loud_frames(power)]
    if not len(loud):
        return np.zeros(N_COEFFICIENTS, np.float32)
    mel = log_mel_of_power(loud)
    mean = np.maximum(mel, mel.max() - RANGE_DB).mean(axis=0)
    return np.asarray(dct(mean, norm="ortho")[1 : 1 + N_COEFFICIENTS], dtype=np.float32)


def cosine(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """The cosine of the angle between two vectors [d], -1 .. 1; NaN where one of them is zero."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.clip(a @ b / norms, -1.0, 1.0)) if norms > 0.0 else float("nan")
