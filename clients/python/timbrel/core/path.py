"""Ways across the timbre map: what lies between timbres."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

from timbrel.errors import FieldViolation, InvalidRequestError

Point = tuple[float, float]
"""(x, y) of the timbre map."""


def morph(a: tuple[float, float], b: tuple[float, float], steps: int) -> list[tuple[float, float]]:
    """Points on the straight line from one timbre to another, evenly spaced, both ends included.

    A timbre is fixed for a note's whole length: a morph is a series of notes.

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
        raise _refusal("points", f"must be 2 or more, got {len(corners)}")
    if steps < 2:
        raise _refusal("steps", f"must be 2 or more, got {steps}")
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
        raise _refusal("points", f"each must be a pair (x, y), got {point!r}") from None
    if not math.hypot(x, y) <= 1.0 + 1e-6:
        raise _refusal("points", f"each must lie in the unit disc, got ({x:g}, {y:g})")
    return x, y


def _refusal(field: str, description: str) -> InvalidRequestError:
    return InvalidRequestError.of([FieldViolation(field, description)])
