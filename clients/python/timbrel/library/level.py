"""How loud a sound is over time. Audio is float32 [samples], mono, full scale at 1."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from timbrel_bundle.audio import resample

Audio = npt.NDArray[np.float32]
Envelope = npt.NDArray[np.float64]

ENVELOPE_SECONDS = 0.002

OVERSAMPLING = 4
"""As ITU-R BS.1770-4, annex 2, has it for true peaks."""

SILENCE_DB = -120.0
"""Stands for silence, of which the logarithm does not speak."""


def decibels(amplitude: float) -> float:
    """20 log10, not below SILENCE_DB."""
    return float(20.0 * np.log10(max(amplitude, 10.0 ** (SILENCE_DB / 20.0))))


def rms_db(audio: Audio) -> float:
    """The level of a stretch of sound in dB of full scale; SILENCE_DB for none."""
    return decibels(float(np.sqrt(np.mean(np.square(audio, dtype=np.float64))))) if len(audio) else SILENCE_DB


def envelope(audio: Audio, sample_rate: int) -> Envelope:
    """[samples]: the root mean square over 2 ms around each sample."""
    width = max(1, round(ENVELOPE_SECONDS * sample_rate))
    before = width // 2
    padded = np.pad(np.square(audio, dtype=np.float64), (before + 1, width - 1 - before))
    sums = np.cumsum(padded)
    power = np.maximum(sums[width:] - sums[:-width], 0.0)[: len(audio)] / width
    return np.asarray(np.sqrt(power), dtype=np.float64)


def true_peak(audio: Audio, sample_rate: int) -> float:
    """The largest amplitude, between the samples too: what resampling may bring to light."""
    if len(audio) == 0:
        return 0.0
    return float(
        np.abs(resample(audio, sample_rate, OVERSAMPLING * sample_rate)).max(initial=np.abs(audio).max())
    )
