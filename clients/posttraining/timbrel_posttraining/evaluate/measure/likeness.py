"""Likeness of a note to its source, measure by measure. Both begin at their onsets: delays do not count."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, find_peaks, sosfilt

from timbrel.pitch import frequency
from timbrel_posttraining.evaluate.measure.features import Envelope, level_db
from timbrel_posttraining.evaluate.measure.masked_spectrum import (
    RANGE_DB,
    SAMPLE_RATE,
    MaskedSpectrum,
    Values,
    from_onset,
    power_spectrum,
)
from timbrel_posttraining.evaluate.measure.note_statistics import N_RANGES, decay_of, modulation_of

HELD_DB = 0.1
"""A cell is held where its level moves by at most this from one frame to the next."""
N_PARTIALS = 16
"""Partials compared."""
PARTIAL_SECONDS = 1.0
"""They are measured over so long from the onset on."""
PARTIAL_DB = 50.0
"""Partials and third octaves count that are at most this far below the strongest."""
PROMINENCE_DB = 18.0
"""A partial stands out of the median of its surroundings by so much: the peaks of noise do by about 12."""
REACH_CENTS = 50.0
"""A partial of the source is looked for so far around."""
VALLEY_WINDOW = 8192
"""Samples: 256 ms, which resolves the partials of the lowest notes."""
VALLEY_HOP = 2048
"""Samples."""
THIRD_OCTAVES_HZ = 100.0 * 2.0 ** (np.arange(22) / 3.0)
"""Centres of the bands in which formants are compared: 100 Hz to 12.8 kHz."""
PEAKED_HZ = 500.0
"""How peaked a wave is counts above: phases below are hardly heard."""
PEAKED_WINDOW = 2048
"""Samples: 64 ms, two periods of the lowest notes."""
ATTACK_SECONDS = 0.08
"""From the onset on, the time that the attack is looked for in."""
ATTACKED_DB = 3.0
"""The attack is over where the level is first so near to the highest."""


@dataclass(frozen=True)
class Likeness:
    """A note beside its source: signed values are the note's less the source's (NaN of silence)."""

    log_mel_db: float  # mean over what is heard, levels matched
    moved_db: tuple[float, ...]  # by range: how much the levels move that the source holds
    held: tuple[int, ...]  # by range: how many these are
    modulation_db: tuple[float, ...]  # by range: rms modulation at 2 to 50 Hz, as a ratio
    cents: tuple[float, ...]  # error of the partials' frequencies; REACH_CENTS where there is none
    partial_db: tuple[float, ...]  # error of their levels, matched by their median
    valley_db: float  # signed: depth of the valleys between the partials
    third_octave_db: float  # mean error of third octaves, levels matched
    peaked_db: float  # signed: how peaked the wave is, which is how partials' phases lie to one another
    attack_ms: float  # signed
    decay_db_per_s: tuple[float, ...]  # by range, signed
    level_db: float  # signed


def likeness(
    source: NDArray[np.float32], note: NDArray[np.float32], sample_rate: int, pitch: int
) -> Likeness:
    """Compares a note with its source, both audio [samples] at `sample_rate` Hz, of one MIDI note number.

    Notes that were not held for the same time are compared as far as the caller cuts them.
    """
    a, b = from_onset(source, sample_rate), from_onset(note, sample_rate)
    masked_a, masked_b = MaskedSpectrum.of(a), MaskedSpectrum.of(b)
    peaks = partials_of(a, pitch)
    cents, partial_db = partial_errors(a, b, peaks)
    valleys = valley_depths(b, peaks) - valley_depths(a, peaks)
    steps, held = moved(masked_a, masked_b)
    return Likeness(
        log_mel_db=masked_log_mel(masked_a, masked_b),
        moved_db=_numbers(steps),
        held=tuple(held.tolist()),
        modulation_db=_numbers(_total_modulation(masked_b) - _total_modulation(masked_a)),
        cents=_numbers(cents),
        partial_db=_numbers(partial_db),
        valley_db=float(np.median(valleys)) if len(valleys) else float("nan"),
        third_octave_db=third_octave_error(a, b),
        peaked_db=peakedness(b) - peakedness(a),
        attack_ms=1000.0 * (attack_seconds(b) - attack_seconds(a)),
        decay_db_per_s=_numbers(_by_range(decay_of(masked_b)[0] - decay_of(masked_a)[0])),
        level_db=level_db(note, sample_rate) - level_db(source, sample_rate),
    )


def masked_log_mel(source: MaskedSpectrum, note: MaskedSpectrum) -> float:
    """Returns the mean difference in dB of what is heard in either; silence follows the shorter.

    Levels are matched by the median difference of what is heard in both.
    """
    n = max(len(source.levels), len(note.levels))
    (a, heard_a), (b, heard_b) = (_followed_by_silence(masked, n) for masked in (source, note))
    either, both = heard_a | heard_b, heard_a & heard_b
    away = b - a - (np.median((b - a)[both]) if both.any() else 0.0)
    return float(np.abs(away)[either].mean()) if either.any() else float("nan")


def moved(source: MaskedSpectrum, note: MaskedSpectrum) -> tuple[Values, NDArray[np.int64]]:
    """Returns by range [6] how the levels move that the source holds, in dB per 10 ms, and their number.

    The movement is the median of each range; NaN where the source holds nothing.
    """
    (a, audible), (b, _) = source.steady, note.steady
    n = min(len(a), len(b))
    steps = np.abs(np.diff(a[:n], axis=0))
    held = (steps <= HELD_DB) & audible[:n][1:] & audible[:n][:-1]
    ranges = np.split(np.where(held, np.abs(np.diff(b[:n], axis=0)), np.nan), N_RANGES, axis=1)
    counts = np.array([int(np.count_nonzero(~np.isnan(part))) for part in ranges], dtype=np.int64)
    medians = [np.nanmedian(part) if n else np.nan for part, n in zip(ranges, counts, strict=True)]
    return np.array(medians), counts


def partials_of(signal: NDArray[np.float32], pitch: int) -> Values:
    """Finds the frequencies in Hz of the first 16 partials, wherever they are, from the onset on."""
    levels, spacing = _spectrum(signal)
    width = max(1, int(frequency(pitch) / spacing))
    first = int(0.7 * width)
    height = levels[first:].max(initial=-200.0) - PARTIAL_DB
    candidates, _ = find_peaks(levels, height=height, distance=max(1, int(0.6 * width)))
    found: list[float] = []
    for peak in map(int, candidates[candidates >= first]):
        around = np.median(levels[max(0, peak - width // 2) : peak + width // 2 + 1])
        if levels[peak] >= around + PROMINENCE_DB and len(found) < N_PARTIALS:
            found.append(_vertex(levels, peak)[0] * spacing)
    return np.array(found)


def partial_errors(
    source: NDArray[np.float32], note: NDArray[np.float32], peaks: Values
) -> tuple[Values, Values]:
    """Compares the partials [n] in Hz of a source with a note's strongest peaks near them: errors in cents
    and in dB, [16] each, levels matched by their median; NaN behind the last partial."""
    cents, decibels = np.full(N_PARTIALS, np.nan), np.full((2, N_PARTIALS), np.nan)
    for row, signal in enumerate((source, note)):
        levels, spacing = _spectrum(signal)
        for number, hertz in enumerate(peaks):
            low, high = (
                int(hertz * 2.0 ** (sign * REACH_CENTS / 1200.0) / spacing + 0.5) for sign in (-1, 1)
            )
            low, high = max(1, low), min(max(high, low + 1), len(levels) - 2)
            strongest = low + int(np.argmax(levels[low : high + 1]))
            place, decibels[row, number] = _vertex(levels, strongest)
            if row:
                away = 1200.0 * abs(np.log2(max(place, 1.0) * spacing / hertz))
                cents[number] = min(away, REACH_CENTS)
    away = decibels[1] - decibels[0]
    return cents, np.abs(away - np.nanmedian(away)) if len(peaks) else away


def valley_depths(signal: NDArray[np.float32], peaks: Values) -> Values:
    """Measures in dB how deep the spectrum is between neighbouring partials [n] in Hz, [n - 1]."""
    power = power_spectrum(signal[: int(PARTIAL_SECONDS * SAMPLE_RATE)], VALLEY_WINDOW, VALLEY_HOP)
    levels = 10.0 * np.log10(power[: max(1, len(power) - VALLEY_WINDOW // VALLEY_HOP)].mean(axis=0) + 1e-20)
    spacing, floor = SAMPLE_RATE / VALLEY_WINDOW, levels.max() - RANGE_DB
    depths = []
    for low, high in itertools.pairwise(peaks):
        inside = levels[int((0.7 * low + 0.3 * high) / spacing) : int((0.3 * low + 0.7 * high) / spacing) + 1]
        tops = [levels[int(top / spacing) - 1 : int(top / spacing) + 3].max() for top in (low, high)]
        depths.append(max(np.mean(tops), floor) - max(np.median(inside), floor))
    return np.array(depths)


def third_octave_error(source: NDArray[np.float32], note: NDArray[np.float32]) -> float:
    """Returns the mean difference in dB of third-octave levels, matched by their median."""
    n = max(1, min(len(source), len(note)))
    a, b = (_third_octaves(signal[:n]) for signal in (source, note))
    kept = a > a.max() - PARTIAL_DB
    away = np.maximum(b, a.max() - RANGE_DB) - np.maximum(a, a.max() - RANGE_DB)
    return float(np.abs(away - np.median(away[kept]))[kept].mean()) if a.max() > -150.0 else float("nan")


def peakedness(signal: NDArray[np.float32]) -> float:
    """Returns how peaked a wave at 32 kHz is behind its attack, as its kurtosis above 500 Hz in dB: 1.8 of a
    sine, 4.8 of noise, more of pulses; NaN of what is shorter or silent."""
    wave = sosfilt(butter(4, PEAKED_HZ, "high", fs=SAMPLE_RATE, output="sos"), signal.astype(np.float64))
    begin = int(ATTACK_SECONDS * SAMPLE_RATE)
    end = min(len(wave), begin + int(PARTIAL_SECONDS * SAMPLE_RATE))
    starts = range(begin, end - PEAKED_WINDOW + 1, PEAKED_WINDOW // 2)
    powers = [np.square(wave[start : start + PEAKED_WINDOW]) for start in starts]
    found = [np.square(power).mean() / power.mean() ** 2 for power in powers if power.mean() > 1e-14]
    return 10.0 * float(np.log10(np.median(found))) if found else float("nan")


def attack_seconds(signal: NDArray[np.float32]) -> float:
    """Returns the seconds from the onset until the level is near its highest of the first 80 ms."""
    level = Envelope.of(signal[: int(ATTACK_SECONDS * SAMPLE_RATE)], SAMPLE_RATE).level
    if not level.any():
        return float("nan")
    return float(np.argmax(level >= level.max() * 10.0 ** (-ATTACKED_DB / 20.0))) / 1000.0


def _numbers(values: NDArray[np.floating]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _followed_by_silence(masked: MaskedSpectrum, n: int) -> tuple[Values, NDArray[np.bool_]]:
    missing = ((0, n - len(masked.levels)), (0, 0))
    return np.pad(masked.levels, missing, constant_values=-RANGE_DB), np.pad(masked.audible, missing)


def _total_modulation(masked: MaskedSpectrum) -> Values:
    """The rms modulation at 2 to 50 Hz in dB re 1 dB, by range [6]."""
    power = 10.0 ** (modulation_of(masked) / 10.0)
    known = ~np.isnan(power).all(axis=0)
    return np.where(known, 10.0 * np.log10(np.nansum(power, axis=0) + 1e-12), np.nan)


def _by_range(values: Values) -> Values:
    """The mean of values [36] that are known, by range [6]."""
    known = ~np.isnan(values).reshape(N_RANGES, -1)
    total = np.where(known, values.reshape(N_RANGES, -1), 0.0).sum(axis=1)
    return np.where(known.any(axis=1), total / np.maximum(known.sum(axis=1), 1), np.nan)


def _spectrum(signal: NDArray[np.float32]) -> tuple[Values, float]:
    """The level in dB [bins] over the first second, and the bins' spacing in Hz."""
    piece = signal[: int(PARTIAL_SECONDS * SAMPLE_RATE)]
    n = int(2 * PARTIAL_SECONDS * SAMPLE_RATE)
    window = np.hanning(len(piece) + 2)[1:-1]
    spectrum = np.abs(np.fft.rfft(piece * window, n)) * 2.0 / max(window.sum(), 1.0)
    return 20.0 * np.log10(spectrum + 1e-10), SAMPLE_RATE / n


def _vertex(levels: Values, peak: int) -> tuple[float, float]:
    """Place in bins and height of the parabola through a peak and its neighbours."""
    before, middle, after = levels[peak - 1 : peak + 2]
    curve = before - 2.0 * middle + after
    shift = float(np.clip(0.5 * (before - after) / curve, -0.5, 0.5)) if curve < 0.0 else 0.0
    return peak + shift, float(middle - 0.25 * (before - after) * shift)


def _third_octaves(signal: NDArray[np.float32]) -> Values:
    """Levels in dB [22] over the whole signal."""
    power = power_spectrum(signal, VALLEY_WINDOW, VALLEY_HOP).mean(axis=0)
    frequencies = np.fft.rfftfreq(VALLEY_WINDOW, 1.0 / SAMPLE_RATE)
    edges = np.searchsorted(
        frequencies, [*THIRD_OCTAVES_HZ / 2.0 ** (1 / 6), THIRD_OCTAVES_HZ[-1] * 2.0 ** (1 / 6)]
    )
    return 10.0 * np.log10(np.add.reduceat(power, edges)[:-1] + 1e-20)
