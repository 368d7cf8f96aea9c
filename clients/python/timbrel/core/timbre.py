"""Timbres: points of the map, the instruments that name them, and the ways between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import SupportsIndex

import numpy as np

from timbrel.errors import refusal
from timbrel_bundle.errors import UnknownInstrumentError
from timbrel_bundle.timbre_map import find_instrument
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Point = tuple[float, float]
"""(x, y) of the timbre map."""


@dataclass(frozen=True)
class Instrument:
    """An instrument of the timbre map: a point with a name.

    >>> violin = next(each for each in client.timbre_map() if each.name == "Violin")
    >>> violin.family, len(violin.timbre), violin.pitch_min < violin.pitch_max
    ('Strings', 2, True)

    Attributes:
        name: for example "Violin".
        family: for example "Strings".
        timbre: its point (x, y) in the unit disc.
        pitch_min: lowest MIDI note number it was trained on.
        pitch_max: highest MIDI note number it was trained on, inclusive.
    """

    name: str
    family: str
    timbre: tuple[float, float]
    pitch_min: int
    pitch_max: int


def instrument_from_pb(point: pb.TimbrePoint) -> Instrument:
    return Instrument(point.instrument, point.family, point_of(point), point.pitch_min, point.pitch_max)


def point_of(point: pb.TimbrePoint | pb.Timbre) -> tuple[float, float]:
    """The point (x, y) in the fewest digits that name the very same float32 again: 0.6, not 0.6000000238."""
    return float(str(np.float32(point.x))), float(str(np.float32(point.y)))


def parse_timbre(text: str) -> tuple[float, float] | str:
    """Reads "0.2,-0.4" as a point; what does not consist of such numbers is an instrument's name, "808" too.
    Raises InvalidRequestError: there is nothing, one number with a fraction, or more numbers than two."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) == 2:
        return numbers[0], numbers[1]
    if len(numbers) > 2 or not text.strip() or (numbers and not text.strip().isalnum()):
        raise refusal("timbre", f"must be an instrument's name or x,y, got {text!r}")
    return text.strip()


def instrument_point(timbre_map: pb.TimbreMap, name: str) -> tuple[float, float]:
    """The point of the instrument of this name, whatever its case. Raises InvalidRequestError: there is none;
    the message suggests the nearest names."""
    try:
        return point_of(find_instrument(timbre_map, name))
    except UnknownInstrumentError as error:
        raise refusal("timbre", str(error)) from None


def morph(a: tuple[float, float], b: tuple[float, float], steps: int) -> list[tuple[float, float]]:
    """Points on the straight line from one timbre to another, evenly spaced, both ends included.

    For a series of notes; one note that goes from a timbre to another is asked for with a path of its own.

        >>> timbrel.morph((0.0, 0.0), (0.5, -0.5), 3)
        [(0.0, 0.0), (0.25, -0.25), (0.5, -0.5)]

    Args:
        a, b: points (x, y) of the timbre map, whose disc has the radius 1; `Client.point` finds an
            instrument's.
        steps: how many points, 2 or more.

    Raises:
        InvalidRequestError: there are too few steps, or an end is no point of the unit disc.
    """
    return path([a, b], steps)


def path(points: Sequence[tuple[float, float]], steps: int) -> list[tuple[float, float]]:
    """Points along the straight lines that join several timbres, evenly spaced, both ends included.

        >>> timbrel.path([(0.0, 0.0), (0.5, 0.0), (0.5, 0.5)], 5)
        [(0.0, 0.0), (0.25, 0.0), (0.5, 0.0), (0.5, 0.25), (0.5, 0.5)]

    Args:
        points: two or more points (x, y) of the timbre map, whose disc has the radius 1. Those in between
            are passed, but are among the result only where a step falls on them.
        steps: how many points, 2 or more.

    Raises:
        InvalidRequestError: there are too few points or steps, or one is no point of the unit disc.
    """
    corners = [_checked(point) for point in points]
    if len(corners) < 2:
        raise refusal("points", f"must be 2 or more, got {len(corners)}")
    if not isinstance(steps, SupportsIndex) or steps.__index__() < 2:
        raise refusal("steps", f"must be a whole number, 2 or more, got {steps!r:.40}")
    walked = list(accumulate((math.dist(a, b) for a, b in pairwise(corners)), initial=0.0))
    way = [_at(corners, walked, walked[-1] * step / (steps - 1)) for step in range(1, steps - 1)]
    return [corners[0], *way, corners[-1]]


def _at(corners: Sequence[Point], walked: Sequence[float], distance: float) -> Point:
    """The point that is reached after this distance."""
    for (a, b), (begin, end) in zip(pairwise(corners), pairwise(walked), strict=True):
        if distance <= end and end > begin:
            share = (distance - begin) / (end - begin)
            return a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])
    return corners[-1]


def _checked(point: Sequence[float]) -> Point:
    try:
        x, y = (float(value) for value in point)
    except (TypeError, ValueError):
        raise refusal(
            "points", f"each must be a pair (x, y), as Client.point gives of a name, got {point!r:.60}"
        ) from None
    if not math.hypot(x, y) <= 1.0 + 1e-6:
        raise refusal("points", f"each must lie in the unit disc, got ({x:g}, {y:g})")
    return x, y
