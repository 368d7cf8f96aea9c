"""The level of a sound over time, and its silent ends. Audio is float32 [samples], mono, full scale at 1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from timbrel_bundle.audio import resample

Audio = npt.NDArray[np.float32]
Envelope = npt.NDArray[np.float64]

ENVELOPE_SECONDS = 0.002

OVERSAMPLING = 4
"""True peaks are looked for at so many times the rate, as ITU-R BS.1770-4, annex 2, has it."""

PEAK_SHARE = 0.5
"""A wave rises between two samples by a quarter above what it is at those around them, not by twice as much:
where the samples stay below this share of the largest, its true peak is not looked for."""

PEAK_MARGIN = 256
"""Samples around that stretch: more than the resampling filter's reach."""

SILENCE_DB = -120.0
"""Stands for silence, whose logarithm is none."""

LEAD_IN_SECONDS = 0.005
"""So much is left before the onset: too short to be felt, long enough for a fade without a click."""

ONSET_DB = -40.0
"""A note begins where it first comes this near to its loudest moment."""

END_DB = -66.0
"""It ends where it was last this near."""

FADE_SECONDS = 0.05
CUT_FADE_SECONDS = 0.25
"""The fade of a note that was cut at the bundle's cap while it still sounded."""


def decibels(amplitude: float) -> float:
    """Gives 20 log10 of an amplitude, not below SILENCE_DB."""
    return float(20.0 * np.log10(max(amplitude, 10.0 ** (SILENCE_DB / 20.0))))


def rms_db(audio: Audio) -> float:
    """Measures the level of a stretch of sound in dB of full scale; SILENCE_DB for none."""
    return decibels(float(np.sqrt(np.mean(np.square(audio, dtype=np.float64))))) if len(audio) else SILENCE_DB


def envelope(audio: Audio, sample_rate: int) -> Envelope:
    """Takes the root mean square over 2 ms around each sample: [samples]."""
    width = max(1, round(ENVELOPE_SECONDS * sample_rate))
    return np.asarray(np.sqrt(power_envelope(audio, sample_rate) / width), dtype=np.float64)


def power_envelope(audio: Audio, sample_rate: int) -> Envelope:
    """Takes the mean square over 2 ms around each sample, to within a constant factor: [samples]."""
    width = max(1, round(ENVELOPE_SECONDS * sample_rate))
    first = width // 2 + 1
    sums = np.zeros(len(audio) + width)
    np.square(audio, out=sums[first : first + len(audio)], dtype=np.float64)
    np.cumsum(sums, out=sums)
    power = sums[width:] - sums[:-width]
    return np.maximum(power, 0.0, out=power)


def true_peak(audio: Audio, sample_rate: int) -> float:
    """Finds the largest amplitude, between the samples too, where resampling may bring it to light."""
    level = np.abs(audio)
    largest = float(level.max(initial=0.0))
    if largest == 0.0:
        return 0.0
    near = np.flatnonzero(level >= PEAK_SHARE * largest)
    loud = audio[max(0, near[0] - PEAK_MARGIN) : near[-1] + 1 + PEAK_MARGIN]
    return float(np.abs(resample(loud, sample_rate, OVERSAMPLING * sample_rate)).max(initial=largest))


@dataclass(frozen=True)
class Trimmed:
    """A note from just before its onset until it has died away."""

    audio: Audio
    """[samples]"""

    removed: int
    """Samples taken off the start; below 0 where silence was put there."""


def trim(audio: Audio, sample_rate: int, truncated: bool = False) -> Trimmed:
    """Cuts a note so that its onset lies LEAD_IN_SECONDS after the start, and fades both ends.

    What is silent altogether stays as it is.
    """
    power = power_envelope(audio, sample_rate)
    loudest = float(power.max(initial=0.0))
    if loudest <= 0.0:
        return Trimmed(audio, 0)
    onset = int(np.argmax(power >= loudest * 10.0 ** (ONSET_DB / 10.0)))
    last = len(power) - 1 - int(np.argmax(power[::-1] >= loudest * 10.0 ** (END_DB / 10.0)))
    fade = round((CUT_FADE_SECONDS if truncated else FADE_SECONDS) * sample_rate)
    # A note that has died away is faded in what lies behind its end, one that was cut before it.
    end = min(len(audio), last + 1 + (0 if truncated else fade))
    lead_in = round(LEAD_IN_SECONDS * sample_rate)
    removed = onset - lead_in
    kept = np.pad(audio[max(0, removed) : end], (max(0, -removed), 0))
    return Trimmed(_faded(kept, lead_in, fade), removed)


def _faded(audio: Audio, n_in: int, n_out: int) -> Audio:
    """Fades both ends by raised cosines, in place."""
    n_in, n_out = min(n_in, len(audio) // 2), min(n_out, len(audio) // 2)
    if n_in:
        audio[:n_in] *= _rise(n_in)
    if n_out:
        audio[-n_out:] *= _rise(n_out)[::-1]
    return audio


@lru_cache(maxsize=32)
def _rise(n_samples: int) -> Audio:
    """Rises from 0 to 1, both ends included."""
    turn = np.linspace(0.0, np.pi, n_samples)
    return (0.5 - 0.5 * np.cos(turn)).astype(np.float32)
