"""The stiffness of strings: how much further apart their partials lie the higher they are.

Partial n of a stiff string lies at n * sqrt((1 + B n^2) / (1 + B)) times its first (Fletcher, 1964): of a
piano the 20th may be where the 24th of a flute would be. B, the inharmonicity coefficient, is the stiffness
here; it is 0 where partials are multiples of the first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LARGEST = 0.02
"""The stiffest strings: the shortest of a piano."""
BEGIN_SECONDS, END_SECONDS, SHORTEST_SECONDS = 0.03, 0.8, 0.1
"""It is measured between the first two of these since the onset, on so much at least."""
HIGHEST_HZ = 14_000.0
"""No partial is looked for above ..."""
RANGE_DB = 75.0
"""... and none so far below the strongest."""
REACH = 0.15
"""A partial is looked for this far around where those below say that it is, as a share of the first."""
STANDS_OUT_DB = 12.0
"""It stands out of the median of its surroundings by so much."""
STRAYS, STRAYS_OF_SHIFT = 0.04, 0.15
"""What lies further from where the others say is no partial of this string: a share of the first, and one of
how far it is from its multiple."""
FEWEST = 6
"""Partials that tell a stiffness."""
MOST_MISSED = 4
"""Behind so many in a row that are not there no more are looked for."""
DOUBT = 100.0
"""The first two or three partials alone say little of a stiffness: it is taken for small."""
KEPT_AT_LEAST = 0.7
"""So many of those that were found must lie where the others say."""
LEAST_SHIFT = 0.06
"""The highest partial must lie so far from its multiple, as a share of the first, ..."""
CLOSER = 0.4
"""... and partials this much closer to where the others say than to multiples."""
MOST_CORRECTED = 0.03
"""A fundamental that was off by more was another one."""

Array = NDArray[np.float64]


class Stiffness(NamedTuple):
    """A stiffness as it was measured."""

    value: float
    """B; 0: the partials are multiples of the first, or nothing else could be told."""
    scale: float
    """Factor from the fundamental that was given to the string's first partial."""
    certainty: float
    """Of 1: how far it can be trusted; a note of few partials says little."""


def stretched(number: Array, stiffness: float) -> Array:
    """Returns where partials of these numbers lie, as multiples of the first."""
    return np.asarray(number * np.sqrt((1 + stiffness * number**2) / (1 + stiffness)))


def number_at(place: Array, stiffness: float) -> Array:
    """Returns the numbers, fractions too, of partials that would lie at these multiples of the first."""
    square = place**2 * (1 + stiffness)
    return np.asarray(np.sqrt(2 * square / (1 + np.sqrt(1 + 4 * stiffness * square))))


def measure_stiffness(
    audio: NDArray[np.float32], fundamental: float, sample_rate: int, held_seconds: float
) -> Stiffness:
    """Measures a note, float32 [S] from its onset on, of about this fundamental in Hz.

    Partials are found one after the other, each near where those below it say (after Rauhala, Lehtonen and
    Valimaki, 2007), and a line through the squares of their frequencies by the squares of their numbers tells
    the stiffness.
    """
    end = min(max(held_seconds - 0.01, 0.2), END_SECONDS)
    part = audio[round(BEGIN_SECONDS * sample_rate) : round(end * sample_rate)]
    if len(part) < SHORTEST_SECONDS * sample_rate:
        return Stiffness(0.0, 1.0, 0.0)
    n = 1 << int(np.ceil(np.log2(2 * len(part))))
    power = np.abs(np.fft.rfft(part * np.hanning(len(part) + 2)[1:-1], n)) ** 2
    level = 10 * np.log10(power + 1e-20)
    bins = n / sample_rate
    numbers, found, tried = _partials(level, fundamental * bins, round(HIGHEST_HZ * bins))
    certainty = min(1.0, len(numbers) / 8)
    if len(numbers) < FEWEST:
        return Stiffness(0.0, 1.0, 0.0)
    harmonic = np.abs(found / np.median(found / numbers) - numbers)
    unstretched = Stiffness(0.0, 1.0, certainty if np.median(harmonic) < STRAYS else 0.0)
    first, value = _line(numbers, found)
    shift = stretched(numbers, value) - numbers
    away = np.abs(found / first - numbers - shift)
    kept = away <= STRAYS + STRAYS_OF_SHIFT * shift
    if kept.sum() < max(FEWEST, KEPT_AT_LEAST * tried):
        return unstretched
    first, value = _line(numbers[kept], found[kept])
    shift = stretched(numbers, value) - numbers
    away = np.abs(found / first - numbers - shift)
    scale = first / (fundamental * bins)
    closer = away[kept].mean() < CLOSER * harmonic[kept].mean()
    if shift[kept][-1] < LEAST_SHIFT or not closer or abs(scale - 1) > MOST_CORRECTED:
        return unstretched
    return Stiffness(value, scale, certainty)


def _partials(level: Array, fundamental: float, end: int) -> tuple[Array, Array, int]:
    """Returns the numbers of partials and their places in a spectrum in dB, in bins as the fundamental is,
    and how many were looked for."""
    numbers: list[float] = []
    found: list[float] = []
    least = level.max() - RANGE_DB
    missed, first, value, number = 0, fundamental, 0.0, 0
    while missed < MOST_MISSED:
        number += 1
        place = first * float(stretched(np.array(float(number)), value))
        low, high = int(place - REACH * first), int(place + REACH * first) + 2
        around = level[max(1, int(place - 0.5 * first)) : int(place + 0.5 * first) + 1]
        if high >= min(end, len(level) - 1) or low < 1:
            break
        peak = low + int(level[low:high].argmax())
        inside = low < peak < high - 1
        if inside and level[peak] > max(least, float(np.median(around)) + STANDS_OUT_DB):
            before, top, after = level[peak - 1 : peak + 2]
            curve = before - 2 * top + after
            numbers.append(number)
            found.append(peak + (0.5 * (before - after) / curve if curve < 0 else 0.0))
            first, value = _line(np.array(numbers), np.array(found))
            missed = 0
        else:
            missed += 1
    return np.array(numbers), np.array(found), max(0, number - 1 - missed)


def _line(numbers: Array, found: Array) -> tuple[float, float]:
    """Returns the first partial's place and the stiffness that fit partials best."""
    square, ratio = numbers**2, (found / numbers) ** 2
    s, sx, sxx = numbers.sum(), (numbers * square).sum(), (numbers * square**2).sum() + DOUBT
    sy, sxy = (numbers * ratio).sum(), (numbers * square * ratio).sum()
    slope = max(0.0, (s * sxy - sx * sy) / (s * sxx - sx**2))
    level = max((sy - slope * sx) / s, 1e-12)  # 0 or less: these are no partials of one string
    value = min(slope / level, LARGEST)
    return float(np.sqrt(level * (1 + value))), float(value)
