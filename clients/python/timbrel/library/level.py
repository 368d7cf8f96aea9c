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

PEAK_SHARE = 0.5
"""A wave rises between two samples by a quarter above what it is at those around them, not by twice as much:
where the samples stay below this share of the largest, its true peak is not looked for."""

PEAK_MARGIN = 256
"""Samples around that stretch: more than the resampling filter's reach."""

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
    return np.asarray(np.sqrt(power_envelope(audio, sample_rate) / width), dtype=np.float64)


def power_envelope(audio: Audio, sample_rate: int) -> Envelope:
    """[samples]: the mean square over 2 ms around each sample, to within a constant factor."""
    width = max(1, round(ENVELOPE_SECONDS * sample_rate))
    first = width // 2 + 1
    sums = np.zeros(len(audio) + width)
    np.square(audio, out=sums[first : first + len(audio)], dtype=np.float64)
    np.cumsum(sums, out=sums)
    power = sums[width:] - sums[:-width]
    return np.maximum(power, 0.0, out=power)


def true_peak(audio: Audio, sample_rate: int) -> float:
    """The largest amplitude, between the samples too: what resampling may bring to light."""
    level = np.abs(audio)
    largest = float(level.max(initial=0.0))
    if largest == 0.0:
        return 0.0
    near = np.flatnonzero(level >= PEAK_SHARE * largest)
    loud = audio[max(0, near[0] - PEAK_MARGIN) : near[-1] + 1 + PEAK_MARGIN]
    return float(np.abs(resample(loud, sample_rate, OVERSAMPLING * sample_rate)).max(initial=largest))
