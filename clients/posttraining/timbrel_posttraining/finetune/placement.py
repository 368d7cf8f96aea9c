"""Placement of the new instruments on the bundle's map, each at a distance from all others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from timbrel_bundle.layout import TIMBRE_ENCODER
from timbrel_posttraining.finetune.base import Base
from timbrel_posttraining.finetune.samples import Tell
from timbrel_training.timbre.map import MapPoint
from timbrel_training.token_table import TokenTable

N_ANGLES = 64
N_RADII = 100
"""Directions and distances tried: steps of a hundredth of the disc's radius and of 6 degrees."""

Point = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Placement:
    """The points of N samples of M instruments."""

    own: NDArray[np.float32]  # [N, 2], of each sample
    where: NDArray[np.float32]  # [M, 2], of each instrument


def place_samples(base: Base, samples: TokenTable, distance: float, tell: Tell) -> Placement:
    """Places samples where the timbre encoder sees them, moved off other instruments if need be.

    Args:
        base: whose timbre encoder and map they are.
        samples: coded samples.
        distance: to keep from every other instrument.
        tell: receives a line for each instrument.
    """
    own = locate(base, samples)
    taken = base.chart.centroids
    names = [point.instrument for point in base.chart.points]
    where = []
    for index, name in enumerate(samples.instruments):
        rows = samples.instrument == index
        seen = own[rows].mean(axis=0)
        found = find_place(seen, taken, distance)
        tell(_describe(name, seen, found, taken, names))
        own[rows] += found - seen
        where.append(found)
        taken, names = np.concatenate([taken, found[None]]), [*names, name]
    radius = np.linalg.norm(own, axis=1, keepdims=True)
    return Placement(own / np.maximum(radius, 1.0), np.stack(where))


def locate(base: Base, table: TokenTable) -> NDArray[np.float32]:
    """Finds where the bundle's timbre encoder sees each note, float32 [N, 2] in the unit disc."""
    session = base.bundle.session(TIMBRE_ENCODER, inputs=["codes", "n_frames"], outputs=["timbre"])
    points = []
    for index in range(table.n_notes):
        codes = table.note(index).astype(np.int64)[None]
        given = {"codes": codes, "n_frames": np.array([codes.shape[1]], dtype=np.int64)}
        points.append(session.run(["timbre"], given)[0][0])
    return np.stack(points).astype(np.float32)


def find_place(wanted: Point, others: Point, distance: float) -> Point:
    """Finds the point [2] of the unit disc nearest to `wanted` that keeps its distance from all others.

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


def new_points(samples: TokenTable, where: NDArray[np.float32]) -> list[MapPoint]:
    """Lists the samples' instruments as a map has them, at their points `where` [M, 2]."""
    found = []
    for index, (name, family) in enumerate(zip(samples.instruments, samples.families, strict=True)):
        pitches = samples.pitch[samples.instrument == index]
        x, y = where[index].tolist()
        found.append(MapPoint(name, family, x, y, int(pitches.min()), int(pitches.max())))
    return found


def _around(centre: Point) -> Point:
    """Lists points [n, 2] of the unit disc around one of them, nearest first."""
    radius = np.repeat(np.linspace(2.0 / N_RADII, 2.0, N_RADII), N_ANGLES)
    angle = np.tile(np.linspace(0.0, 2.0 * np.pi, N_ANGLES, endpoint=False), N_RADII)
    points = centre + np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    inside: Point = points[np.hypot(points[:, 0], points[:, 1]) <= 1.0].astype(np.float32)
    return inside


def _gap(points: Point, others: Point) -> NDArray[np.float64]:
    """Distance of each point [n, 2] to the nearest of the others [m, 2]."""
    return np.linalg.norm(points[:, None].astype(np.float64) - others[None], axis=2).min(axis=1)


def _describe(name: str, seen: Point, found: Point, taken: Point, names: list[str]) -> str:
    """Says in one line where an instrument went."""
    at = f"({found[0]:.2f}, {found[1]:.2f})"
    if not len(taken):
        return f"{name}: at {at}"
    gaps = np.linalg.norm(taken - seen, axis=1)
    near = f"{gaps.min():.2f} from {names[int(gaps.argmin())]}"
    if (found == seen).all():
        return f"{name}: at {at}, {near}"
    return f"{name}: heard at ({seen[0]:.2f}, {seen[1]:.2f}), {near}: too near, so moved to {at}"
