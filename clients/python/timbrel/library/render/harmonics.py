"""A pitch tracker in the spectrum: the fundamental whose harmonics hold the most, and whose gaps the least.

After Camacho and Harris 2008, "A sawtooth waveform inspired pitch estimator" (SWIPE'): the square root of the
spectrum is weighed with a comb that is positive at the first and the prime harmonics, so that no octave below
scores as well, and negative between them. One window for all pitches, and the frequency is then read off the
harmonics' own peaks.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from timbrel_bundle.yin import ONSET_SECONDS, SAMPLE_RATE, Values, at_measuring_rate, midi_pitch

FRAME = 3072
"""Samples: 128 ms, six periods of the lowest fundamental."""

HOP = 960
"""Samples: 40 ms."""

FFT_SIZE = 8192
BIN_HERTZ = SAMPLE_RATE / FFT_SIZE

LOWEST_HERTZ = 47.0
HIGHEST_HERTZ = 2400.0
CENTS_STEP = 20.0
"""Between candidates; the peaks themselves give the rest."""

HARMONICS = (1, 2, 3, 5, 7, 11, 13)
HIGHEST_HARMONIC_HERTZ = 8000.0

N_FINE_HARMONICS = 5
"""The frequency is read off these: higher ones of strings and bars are sharp."""

LOBE_BINS = 6
"""Half the width of a sinusoid's peak in the spectrum of a windowed frame."""

VOICED_FROM = 0.5
"""Least share of the power that lies in the harmonics, beyond what would lie there of white noise."""

QUIET_DB = 40.0
"""Frames this far below the loudest one are left out."""


class HarmonicSum:
    """Measures pitch, 47 to 2400 Hz, by the harmonics in the spectrum."""

    name = "harmonic-sum"

    def measure(self, audio: npt.NDArray[np.float32], sample_rate: int) -> float | None:
        """Takes the median over voiced frames from 50 ms on; see `Tracker.measure`."""
        signal = at_measuring_rate(audio, sample_rate)
        padded = np.pad(signal, (0, max(0, FRAME - len(signal))))
        frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP].astype(np.float64)
        spectra = np.abs(np.fft.rfft(frames * np.hanning(FRAME), FFT_SIZE))
        power = np.square(frames).mean(axis=1)
        seconds = (np.arange(len(frames)) * HOP + FRAME / 2) / SAMPLE_RATE
        kept = (power > power.max() * 10.0 ** (-QUIET_DB / 10.0)) & (seconds >= ONSET_SECONDS)
        if not kept.any():
            return None
        candidates, combs = _combs()
        strongest = candidates[(np.sqrt(spectra[kept]) @ combs.T).argmax(axis=1)]
        voiced = []
        for spectrum, start in zip(spectra[kept], strongest, strict=True):
            if _is_voiced(spectrum, hertz := _read_off(spectrum, start)):
                voiced.append(hertz)
        return midi_pitch(float(np.median(voiced))) if voiced else None


def _is_voiced(spectrum: Values, hertz: float) -> bool:
    """Tells whether the power lies in the harmonics of `hertz`, far more than that of noise would."""
    bins = np.arange(round(0.5 * LOWEST_HERTZ / BIN_HERTZ), len(spectrum))
    ratio = bins * BIN_HERTZ / hertz
    harmonic = np.rint(ratio)
    near = (np.abs(ratio - harmonic) * hertz <= LOBE_BINS * BIN_HERTZ) & (harmonic >= 1)
    power = np.square(spectrum[bins])
    share, of_noise = power[near].sum() / max(power.sum(), 1e-20), near.mean()
    return bool(share - of_noise >= VOICED_FROM * (1.0 - of_noise))


@cache
def _combs() -> tuple[Values, Values]:
    """Makes the candidates in Hz [n], and their combs [n, bins], each of norm 1."""
    n_candidates = int(1200.0 * np.log2(HIGHEST_HERTZ / LOWEST_HERTZ) / CENTS_STEP) + 1
    candidates = LOWEST_HERTZ * 2.0 ** (np.arange(n_candidates) * CENTS_STEP / 1200.0)
    bins = np.arange(FFT_SIZE // 2 + 1, dtype=np.float64) * BIN_HERTZ
    combs = np.stack([_comb(hertz, bins) for hertz in candidates])
    norms = np.sqrt(np.square(combs).sum(axis=1, keepdims=True))
    return np.asarray(candidates, dtype=np.float64), np.asarray(combs / norms, dtype=np.float64)


def _comb(hertz: float, bins: Values) -> Values:
    """Makes SWIPE's kernel over the bins: cosine lobes at the harmonics, half as deep ones between."""
    ratio = bins / hertz
    comb = np.zeros_like(bins)
    for harmonic in HARMONICS:
        if harmonic * hertz > HIGHEST_HARMONIC_HERTZ:
            break
        distance = np.abs(ratio - harmonic)
        lobe = distance < 0.25
        comb[lobe] += np.cos(2.0 * np.pi * ratio[lobe])
        valley = (distance >= 0.25) & (distance < 0.75)
        comb[valley] += 0.5 * np.cos(2.0 * np.pi * ratio[valley])
    return comb * np.sqrt(np.divide(1.0, bins, out=np.zeros_like(bins), where=bins > 0.0))


def _read_off(spectrum: Values, start: float) -> float:
    """Reads the fundamental, in Hz, off the peaks near multiples of `start`, each weighed by its level."""
    total, weight = 0.0, 0.0
    for harmonic in range(1, N_FINE_HARMONICS + 1):
        reach = max(2, round(0.04 * harmonic * start / BIN_HERTZ))
        middle = round(harmonic * start / BIN_HERTZ)
        low, high = max(1, middle - reach), min(len(spectrum) - 1, middle + reach + 1)
        if high - low < 3:
            break
        peak = low + int(spectrum[low:high].argmax())
        if not low < peak < high - 1:
            continue
        before, at, after = np.log(spectrum[peak - 1 : peak + 2] + 1e-12)
        offset = 0.5 * (before - after) / min(before - 2.0 * at + after, -1e-9)
        level = float(spectrum[peak])
        total += level * harmonic * (peak + offset) * BIN_HERTZ
        weight += level * harmonic * harmonic
    return total / weight if weight else start
