"""Where on the map a new instrument goes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

N_ANGLES = 64
N_RADII = 100
"""Directions and distances tried: steps of a hundredth of the disc's radius and of 6 degrees."""

Point = NDArray[np.float32]


def find_place(wanted: Point, others: Point, distance: float) -> Point:
    """The point [2] of the unit disc nearest to `wanted` that keeps its distance from all others.

    The decoder knows an instrument by its point alone: two at one point would become a mixture of both.

    Args:
        wanted: [2], in the unit disc, where the timbre encoder sees the instrument.
        others: [n, 2], the points that are taken.
        distance: to keep from each; where the disc is too full for it, the roomiest place is taken.
    """
    if not len(others) or _gap(wanted[None], others)[0] >= distance:
        return wanted
    candidates = _around(wanted)
    gaps = _gap(candidates, others)
    free = np.flatnonzero(gaps >= distance)
    return candidates[free[0] if len(free) else int(gaps.argmax())]


def _around(centre: Point) -> Point:
    """Points [n, 2] of the unit disc around one of them, nearest first."""
    radius = np.repeat(np.linspace(2.0 / N_RADII, 2.0, N_RADII), N_ANGLES)
    angle = np.tile(np.linspace(0.0, 2.0 * np.pi, N_ANGLES, endpoint=False), N_RADII)
    points = centre + np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    inside: Point = points[np.hypot(points[:, 0], points[:, 1]) <= 1.0].astype(np.float32)
    return inside


def _gap(points: Point, others: Point) -> NDArray[np.float64]:
    """Distance of each point [n, 2] to the nearest of the others [m, 2]."""
    return np.linalg.norm(points[:, None].astype(np.float64) - others[None], axis=2).min(axis=1)
