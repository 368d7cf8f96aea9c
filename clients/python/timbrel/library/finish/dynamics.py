"""The level of an instrument over velocity: one rising curve, on which every sample has its place.

A sampler gives a velocity the nearest layer's samples. Played as they are, level is a staircase, whose steps
are as uneven as single renderings are. Here the layers' median levels are joined by one curve for the whole
keyboard. Each sample plays at the curve's level at its own velocity, above and below it the layer follows the
curve, and so it meets its neighbours where they begin. Over the keyboard level is a smooth curve, too. A
level is the loudest 400 ms of the first second that a held key plays, in LUFS.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from timbrel.library.render.level import PEAK_DB, SILENCE_DB

VELOCITIES = range(1, 128)

LEAST_STEP_DB = 0.03
"""A velocity is at least so much louder than the one below it."""

LARGEST_STEP_DB = 0.8
"""And at most so much: a step of a decibel is where a listener begins to hear one."""

BORDER_STEP_DB = 0.4
"""From layer to layer it is at least so much louder: no two samples measure the same in every way."""

EVEN_SEMITONES = 12
"""A pitch is about as loud as those nearer than this to it."""

LONE_EXPONENT = 2.0
"""The amplitude of a single layer goes with this power of the velocity, as samplers have it by default."""

Curve = npt.NDArray[np.float64]
"""dB at each of VELOCITIES: [127]"""

Zone = tuple[int, int]
"""Lowest and highest velocity of a layer, or of a part of one."""


class SampleLevel(NamedTuple):
    """The loudness of a sample file."""

    pitch: int
    velocity: int
    loudness: float
    """The loudest 400 ms of the first second that a held key plays of it, in LUFS."""

    peak_db: float

    @property
    def is_silent(self) -> bool:
        return self.peak_db <= SILENCE_DB


def velocity_zones(velocities: Sequence[int]) -> dict[int, Zone]:
    """Gives each of some rising velocities the range of its layer: 1..127 in all, cut halfway between
    neighbours."""
    cuts = [(one + other) // 2 for one, other in pairwise(velocities)]
    lows, highs = [1, *(cut + 1 for cut in cuts)], [*cuts, 127]
    return dict(zip(velocities, zip(lows, highs, strict=True), strict=True))


@dataclass(frozen=True)
class Dynamics:
    """The levels of an instrument over velocity, fitted to its samples."""

    curve: Curve
    """Level at each velocity, over the pitch's own level: rising, by LARGEST_STEP_DB at most."""

    zones: dict[int, Zone]
    """The layer of each velocity that was rendered."""

    pitch_levels: dict[int, float]
    """Of each pitch over the curve."""

    headroom_db: float
    """Taken off every sample, so that none clips at the top of its layer."""

    @classmethod
    def fit(cls, samples: Sequence[SampleLevel]) -> Dynamics:
        """Fits the curve to the samples of an instrument, one or more; silent ones say nothing of it."""
        sounding = [each for each in samples if not each.is_silent] or samples
        layers: dict[int, list[float]] = defaultdict(list)
        for each in sounding:
            layers[each.velocity].append(each.loudness)
        knots = {velocity: median(levels) for velocity, levels in sorted(layers.items())}
        curve = fit_curve(knots)
        pitches: dict[int, list[float]] = defaultdict(list)
        for each in sounding:
            pitches[each.pitch].append(each.loudness - curve[each.velocity - 1])
        own = {pitch: fmean(each) for pitch, each in pitches.items()}
        zones = velocity_zones(sorted({each.velocity for each in samples}))
        found = cls(curve, zones, even_levels(own), 0.0)
        highest = max(found.gain_db(each) + each.peak_db for each in samples)
        return replace(found, headroom_db=max(0.0, highest - PEAK_DB))

    def gain_db(self, sample: SampleLevel) -> float:
        """Gives what the sample is turned up by at the top of its layer; 0 of a silent one."""
        if sample.is_silent:
            return 0.0
        top = self.zones[sample.velocity][1]
        wanted = self.pitch_levels[sample.pitch] + float(self.curve[top - 1])
        return wanted - sample.loudness - self.headroom_db

    def fall_db(self, zone: Zone) -> Curve:
        """Gives the level at each velocity of a layer over that at its top, 0 or below: [velocities]."""
        low, high = zone
        return np.asarray(self.curve[low - 1 : high] - self.curve[high - 1])

    @cached_property
    def slices(self) -> dict[Zone, list[tuple[Zone, float]]]:
        """Cuts each layer into ranges that play at one level each: (velocities, dB over the layer's top)."""
        return {zone: list(self._cut(zone, _is_flat)) for zone in self.zones.values()}

    @cached_property
    def segments(self) -> dict[Zone, list[tuple[Zone, float, float]]]:
        """Cuts each layer into straight lines of decibels: (velocities, dB at the lowest, at the highest)."""
        return {
            zone: [(part, *self._ends(part, zone)) for part, _ in self._cut(zone, _is_straight)]
            for zone in self.zones.values()
        }

    def _ends(self, part: Zone, zone: Zone) -> tuple[float, float]:
        low, high = (float(self.curve[each - 1] - self.curve[zone[1] - 1]) for each in part)
        return low, high

    def _cut(self, zone: Zone, fits: Callable[[Curve], bool]) -> Iterable[tuple[Zone, float]]:
        """Yields stretches as long as they fit, and the mean level of each over the layer's top."""
        low, top = zone
        while low <= top:
            high = low
            while high < top and fits(self.curve[low - 1 : high + 1]):
                high += 1
            yield (low, high), float(self.curve[low - 1 : high].mean() - self.curve[top - 1])
            low = high + 1


def _is_flat(levels: Curve) -> bool:
    # Two such stretches side by side, and the step between them, differ by less than a decibel in the middle.
    return float(levels[-1] - levels[0]) <= 0.5


def _is_straight(levels: Curve) -> bool:
    return bool(np.abs(levels - np.linspace(levels[0], levels[-1], len(levels))).max() <= 0.1)


def even_levels(levels: dict[int, float]) -> dict[int, float]:
    """Gives each pitch the level, in dB, of a line through those around it, of which the nearer count for
    more: what goes up or down over the keyboard stays, a pitch that stands out does not."""
    at, own = np.array(list(levels)), np.array(list(levels.values()))
    even = {}
    for pitch in levels:
        weights = 1.0 - ((at - pitch) / EVEN_SEMITONES) ** 2
        near = weights > 0.0
        degree = min(1, int(np.count_nonzero(near)) - 1)
        line = np.polyfit(at[near] - pitch, own[near], degree, w=np.sqrt(weights[near]))
        even[pitch] = float(line[-1])
    return even


def fit_curve(knots: dict[int, float]) -> Curve:
    """Draws a curve through the levels of layers in dB, by velocity, rising, one or more, as powers of the
    velocity; bends it where it is too steep. Beyond the outermost layers it goes on as between the last
    two."""
    at, levels = np.log10(np.array(list(knots))), np.array(list(knots.values()))
    place = np.log10(np.array(VELOCITIES))
    if len(knots) == 1:
        drawn = levels[0] + 20.0 * LONE_EXPONENT * (place - at[0])
    else:
        slopes = np.diff(levels) / np.diff(at)
        below = levels[0] + slopes[0] * np.minimum(0.0, place - at[0])
        above = slopes[-1] * np.maximum(0.0, place - at[-1])
        drawn = np.interp(place, at, levels) + below - levels[0] + above
    tops = [high for _, high in velocity_zones(list(knots)).values()][:-1]
    least = np.where(np.isin(VELOCITIES[:-1], tops), BORDER_STEP_DB, LEAST_STEP_DB)
    rising = np.pad(np.cumsum(np.clip(np.diff(drawn), least, LARGEST_STEP_DB)), (1, 0))
    known = np.array(list(knots)) - 1
    return np.asarray(rising + (levels - rising[known]).mean(), dtype=np.float64)
