"""How much of a note is periodic, and how much is noise."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from timbrel.pitch import frequency
from timbrel_training.notes.spectrum import (
    SAMPLE_RATE,
    at_measuring_rate,
    frames_of,
    hann,
    loud_frames,
)

WINDOW = 2048
"""Samples at 24 kHz: 85 ms, five periods of the lowest note that is judged."""

HOP = 1024
"""Samples."""

FFT = 2 * WINDOW
"""Zero-padded, so that the autocorrelation does not wrap around."""

SEARCHED_CENTS = np.arange(-50.0, 51.0, 2.0)
"""Periods tried around the one given: a note may be a little out of tune, and vibrato moves it."""

LIMIT_DB = 40.0
"""Ratios are kept within plus and minus this: beyond, the method's own error decides."""


def harmonic_to_noise_db(audio: NDArray[np.float32], sample_rate: int, pitch: float) -> float | None:
    """Harmonic-to-noise ratio in dB, the median over loud frames; None of silence or of less than 85 ms.

    After Boersma 1993, "Accurate short-term analysis of the fundamental frequency and the harmonics-to-noise
    ratio of a sampled sound": the autocorrelation at one period, freed of the window's own, is the periodic
    share r of the power, and the ratio is r / (1 - r). The period is looked for within 50 cents of `pitch`.

    Args:
        audio: [samples], mono.
        sample_rate: Hz.
        pitch: where the note sounds, as a MIDI note number, fractions allowed.
    """
    frames = frames_of(at_measuring_rate(audio, sample_rate), WINDOW, HOP)
    spectrum = np.fft.rfft(frames * hann(WINDOW), FFT)
    power = np.asarray(spectrum.real**2 + spectrum.imag**2, dtype=np.float32)
    loud = power[loud_frames(power)]
    if not len(loud):
        return None
    periods = SAMPLE_RATE / (frequency(pitch) * 2.0 ** (SEARCHED_CENTS / 1200.0))
    periodic = (_autocorrelation(loud, periods) / _window_autocorrelation(periods)).max(axis=1)
    edge = 1.0 / (1.0 + 10.0 ** (LIMIT_DB / 10.0))
    share = np.clip(periodic, edge, 1.0 - edge)
    return float(np.median(10.0 * np.log10(share / (1.0 - share))))


def _autocorrelation(power: NDArray[np.floating], lags: NDArray[np.float64]) -> NDArray[np.float64]:
    """The autocorrelation [frames, lags] of power [frames, bins], as a share of the power.

    Lags are in samples and need not be whole: it is the sum of each bin's cosine.
    """
    bins = np.arange(FFT // 2 + 1)
    twice = np.where((bins == 0) | (bins == FFT // 2), 1.0, 2.0)[:, None]
    cosines = twice * np.cos(2.0 * np.pi / FFT * bins[:, None] * lags)
    return np.asarray(power @ cosines / (power @ twice), dtype=np.float64)


def _window_autocorrelation(lags: NDArray[np.float64]) -> NDArray[np.float64]:
    """[lags]"""
    return _autocorrelation(_window_power()[None], lags)[0]


@functools.cache
def _window_power() -> NDArray[np.float64]:
    return np.asarray(np.abs(np.fft.rfft(hann(WINDOW).astype(np.float64), FFT)) ** 2)
