"""The loudness of a note to the ear, and how much louder a whole instrument is to be made.

It is the loudest 400 ms, K-weighted: the momentary loudness of EBU Tech 3341 on the filter of ITU-R
BS.1770-4, of which only the magnitude is applied, in the spectrum.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from timbrel.library.render.level import SILENCE_DB, Audio

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
    """Chooses one gain for all notes of an instrument, so that their levels keep their distances.

    Args:
        notes: the loudness in LUFS and the true peak in dB of each.
    """
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
    spectra = np.fft.rfft(sliding_window_view(padded, size)[::hop])
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
