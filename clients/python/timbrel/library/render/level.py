"""Measures how loud a sound is, over time and to the ear, and finds where it begins and ends.

Audio is float32 [samples], mono, full scale at 1. The loudness is that of the loudest 400 ms, K-weighted: the
momentary loudness of EBU Tech 3341 on the filter of ITU-R BS.1770-4, of which only the magnitude is applied,
in the spectrum.
"""

from __future__ import annotations

from collections.abc import Iterable
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

BLOCK_SECONDS = 0.4
HOP_SECONDS = 0.1

TARGET_LUFS = -16.0
"""The loudest note of an instrument is brought to this."""

PEAK_DB = -1.0
"""No true peak goes beyond: what players interpolate between samples must not clip."""

FILTER_RATE = 48_000
"""Hz: the rate that the standard states its coefficients for."""

WRAP_SECONDS = 0.05
"""The high pass has died away by then."""

BLOCK_WRAPS = 8
"""Length of the transforms: a quarter of each is overlap."""

_SHELF = ((1.53512485958697, -2.69169618940638, 1.19839281085285), (1.0, -1.69065929318241, 0.73248077421585))
_HIGH_PASS = ((1.0, -2.0, 1.0), (1.0, -1.99004745483398, 0.99007225036621))

_FAST_FACTORS = (4, 5, 6, 7)
"""Quick transforms have one of these lengths times a power of two: no prime factor lies above 7, and there is
never a quarter more than was asked for."""


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


def loudness(audio: Audio, sample_rate: int) -> float:
    """Measures the loudest 400 ms of audio [samples] in LUFS; silence follows a shorter note."""
    block = round(BLOCK_SECONDS * sample_rate)
    hop = round(HOP_SECONDS * sample_rate)
    weighted = _weighted(np.pad(audio, (0, max(0, block - len(audio)))), sample_rate)
    sums = np.zeros(len(weighted) + 1)
    np.cumsum(np.square(weighted), out=sums[1:])
    power = float((sums[block::hop] - sums[:-block:hop]).max() / block)
    return float(max(SILENCE_DB, -0.691 + 10.0 * np.log10(max(power, 1e-12))))


def instrument_gain_db(notes: Iterable[tuple[float, float]]) -> float:
    """Chooses one gain for notes (LUFS, true peak in dB) of one instrument: levels keep their distances."""
    sounding = [(lufs, peak) for lufs, peak in notes if peak > SILENCE_DB]
    if not sounding:
        return 0.0
    loudest, highest = max(lufs for lufs, _ in sounding), max(peak for _, peak in sounding)
    return min(TARGET_LUFS - loudest, PEAK_DB - highest)


def _weighted(audio: Audio, sample_rate: int) -> npt.NDArray[np.float64]:
    """Weighs the sound as the ear does: [samples]. Silence lies before and behind it.

    In blocks, of which both ends are thrown away: several short transforms are quicker than a long one.
    """
    wrap = round(WRAP_SECONDS * sample_rate)
    size = fast_length(BLOCK_WRAPS * wrap)
    hop = size - 2 * wrap
    n_blocks = -(-len(audio) // hop)
    padded = np.zeros(n_blocks * hop + 2 * wrap)
    padded[wrap : wrap + len(audio)] = audio
    spectra = np.fft.rfft(np.lib.stride_tricks.sliding_window_view(padded, size)[::hop])
    spectra *= _magnitude(size, sample_rate)
    # The way back in single precision: half the time, and right to a millionth of a decibel.
    blocks = np.fft.irfft(spectra.astype(np.complex64), size)[:, wrap : wrap + hop]
    return np.asarray(blocks.reshape(-1)[: len(audio)], dtype=np.float64)


@lru_cache(maxsize=32)
def _magnitude(size: int, sample_rate: int) -> npt.NDArray[np.float64]:
    """Computes the filter's gain at each frequency of a transform of this size."""
    hertz = np.fft.rfftfreq(size, 1.0 / sample_rate)
    turn = np.exp(-2j * np.pi * np.minimum(hertz, FILTER_RATE / 2) / FILTER_RATE)
    return np.abs(_response(_SHELF, turn) * _response(_HIGH_PASS, turn))


def _response(
    filter_: tuple[tuple[float, ...], tuple[float, ...]], turn: npt.NDArray[np.complex128]
) -> npt.NDArray[np.complex128]:
    """Evaluates a second-order section's transfer function at z^-1 = turn."""
    above, below = filter_
    return np.polyval(above[::-1], turn) / np.polyval(below[::-1], turn)


def fast_length(n_samples: int) -> int:
    """Finds the least length from `n_samples` up whose FFT is quick: a large prime takes ten times longer."""
    if n_samples <= _FAST_FACTORS[0]:
        return max(1, n_samples)
    octave = 1 << max(0, (n_samples - 1).bit_length() - 3)
    return next(first * octave for first in (*_FAST_FACTORS, 8) if first * octave >= n_samples)


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
