"""The masked spectrum of a note: its levels over time in bands about as wide as the ear's, and what is heard.

Nothing is judged that nobody hears: levels are floored 60 dB below the note's peak, where a louder band masks
them at the same time, and where what sounded just before does (after Zwicker and Fastl, "Psychoacoustics");
what is above 14 kHz is left out. Levels are relative to the note's own peak: its loudness says nothing.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import soxr
from numpy.typing import NDArray

from timbrel_training.notes.cleaning import without_offset

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]

SAMPLE_RATE = 32_000
"""Hz."""
HOP = 320
"""Samples: 10 ms."""
FRAME_RATE = SAMPLE_RATE / HOP
WINDOW = 1024
"""Samples: 32 ms."""

LOWEST_HZ, HIGHEST_HZ = 60.0, 14_000.0
N_BANDS = 36
"""Bands, evenly spaced in mel, each about as wide as a critical band."""

RANGE_DB = 60.0
"""Levels further below the note's peak are floored."""
SILENCE_DB = -90.0
"""No level below this is heard, whatever the note's peak; 0 dB is a sine of amplitude 1."""
MASKING_DB = 6.0
"""A band masks its neighbours this far below its own level, less a slope for each band further off."""
UPWARD_DB, DOWNWARD_DB = 12.0, 25.0
"""Slopes of masking towards higher and lower bands."""
FORWARD_DB, FORWARD_SLOPE_DB = 10.0, 2.5
"""What sounded before masks this far below its level, less so much for each 10 ms that passed."""
AUDIBLE_DB = 3.0
"""A level counts as heard where it is so far above what masks it."""
ONSET_DB = 25.0
"""A note begins, and its steady part ends, where its level is so far below its peak."""
ATTACK_FRAMES = 8
"""Frames of the attack: the steady part begins behind it."""


@dataclass(frozen=True)
class MaskedSpectrum:
    """Levels of a note from its onset on, in frames of 10 ms."""

    levels: Values
    """[frames, 36], dB below the note's peak, at least the masking threshold."""
    audible: Flags
    """[frames, 36], which of them are heard."""
    end: int
    """The frame behind the last one that is within 25 dB of the loudest."""

    @classmethod
    def of(cls, signal: NDArray[np.float32]) -> MaskedSpectrum:
        """Measures a signal as `from_onset` returns it."""
        power = power_spectrum(signal, WINDOW, HOP) @ _filters()
        levels = np.asarray(10.0 * np.log10(power + 1e-20), dtype=np.float64)
        peak = levels.max(initial=SILENCE_DB)
        levels -= peak
        threshold = np.maximum(_masked_by_neighbours(levels), _masked_by_the_past(levels))
        threshold = np.maximum(threshold, max(-RANGE_DB, SILENCE_DB - peak))
        total = 10.0 * np.log10(power.sum(axis=1) + 1e-20)
        loud = np.flatnonzero(total >= total.max(initial=-200.0) - ONSET_DB)
        end = int(loud[-1]) + 1 if len(loud) else 0
        return cls(np.maximum(levels, threshold), levels > threshold + AUDIBLE_DB, end)

    @property
    def steady(self) -> tuple[Values, Flags]:
        """Levels and audible cells between the attack and the end."""
        return self.levels[ATTACK_FRAMES : self.end], self.audible[ATTACK_FRAMES : self.end]


def from_onset(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Returns audio [samples] at 32 kHz, without a DC offset, from where it is first at most 25 dB below its
    highest sample. Raises ValueError: it holds numbers that are no sound, infinite ones or NaN."""
    signal = np.asarray(audio, dtype=np.float32)
    if not np.isfinite(signal).all():
        raise ValueError("the audio holds samples that are not finite")
    signal = without_offset(signal, sample_rate)
    if sample_rate != SAMPLE_RATE and len(signal):
        signal = np.asarray(soxr.resample(signal, sample_rate, SAMPLE_RATE), dtype=np.float32)
    height = np.abs(signal)
    onset = np.argmax(height >= height.max(initial=0.0) * 10.0 ** (-ONSET_DB / 20.0)) if len(signal) else 0
    return signal[int(onset) :]


def power_spectrum(signal: NDArray[np.float32], length: int, hop: int) -> NDArray[np.float32]:
    """Returns power [frames, bins] of Hann windows, one every `hop` samples; silence follows the signal.

    A sine of amplitude 1 peaks at 1.
    """
    padded = np.pad(signal, (0, length))
    frames = np.lib.stride_tricks.sliding_window_view(padded, length)[::hop]
    window = np.hanning(length + 1)[:-1].astype(np.float32)
    spectrum = np.fft.rfft(frames * (window * (2.0 / window.sum())))
    return np.asarray(spectrum.real**2 + spectrum.imag**2, dtype=np.float32)


@functools.cache
def band_edges() -> Values:
    """Returns edges and centres of the bands in Hz, [38]: band n goes from n to n + 2."""
    low, high = (2595.0 * np.log10(1.0 + hertz / 700.0) for hertz in (LOWEST_HZ, HIGHEST_HZ))
    return np.asarray(700.0 * (10.0 ** (np.linspace(low, high, N_BANDS + 2) / 2595.0) - 1.0))


@functools.cache
def _filters() -> NDArray[np.float32]:
    """Triangular filters [513, 36], 1 in the middle."""
    bins = np.fft.rfftfreq(WINDOW, 1.0 / SAMPLE_RATE)[:, None]
    low, centre, high = band_edges()[:-2], band_edges()[1:-1], band_edges()[2:]
    sides = np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre))
    return np.clip(sides, 0.0, None).astype(np.float32)


def _masked_by_neighbours(levels: Values) -> Values:
    """Works out the threshold [frames, bands] that louder bands at the same time set."""
    threshold = np.full_like(levels, -np.inf)
    for distance in range(1, 6):
        up = levels[:, :-distance] - MASKING_DB - UPWARD_DB * distance
        down = levels[:, distance:] - MASKING_DB - DOWNWARD_DB * distance
        threshold[:, distance:] = np.maximum(threshold[:, distance:], up)
        threshold[:, :-distance] = np.maximum(threshold[:, :-distance], down)
    return threshold


def _masked_by_the_past(levels: Values) -> Values:
    """Works out the threshold [frames, bands] that what sounded before sets."""
    ramp = FORWARD_SLOPE_DB * np.arange(len(levels))[:, None]
    held = np.maximum.accumulate(levels + ramp, axis=0) - ramp  # decays from every peak on
    threshold = np.full_like(levels, -np.inf)
    threshold[1:] = held[:-1] - FORWARD_DB - FORWARD_SLOPE_DB
    return threshold
