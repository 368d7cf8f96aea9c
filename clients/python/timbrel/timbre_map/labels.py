"""Places for the names of points in a picture: beside them, over no other name and no other point."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Point = tuple[float, float]

ANGLES = 24
RINGS = 14
"""How many distances are tried, each a mark's radius further out than the last."""

NOTHING = 1e-12
"""Areas below are rounding."""


@dataclass(frozen=True)
class Box:
    """A rectangle, y upwards."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def holds(self, other: Box) -> bool:
        """Whether the other lies within."""
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.bottom <= other.bottom
            and other.top <= self.top
        )

    def shared_area(self, other: Box) -> float:
        """Of the overlap; 0 for none."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(width, 0.0) * max(height, 0.0)

    def nearest_point(self, point: Point) -> Point:
        """The point of the rectangle that is nearest to another."""
        return min(max(point[0], self.left), self.right), min(max(point[1], self.bottom), self.top)


def place_labels(
    points: Sequence[Point],
    sizes: Sequence[tuple[float, float]],
    mark_radius: float,
    frame: Box,
    obstacles: Sequence[Box] = (),
) -> list[Box]:
    """A box for each point's label, greedily: the most crowded points choose first, near places before far.

    Where everything near is taken, the place that hides the least.

    Args:
        points: where the marks are.
        sizes: width and height of each label.
        mark_radius: of the marks.
        frame: what labels stay within, as far as there is room.
        obstacles: what else is not to be written over.
    """
    marks = [Box(x - mark_radius, y - mark_radius, x + mark_radius, y + mark_radius) for x, y in points]
    placed: dict[int, Box] = {}
    for index in sorted(range(len(points)), key=lambda each: _room(points, each)):
        taken = [*marks, *obstacles, *placed.values()]
        placed[index] = _best(_candidates(points[index], sizes[index], mark_radius), taken, frame)
    return [placed[index] for index in range(len(points))]


def _room(points: Sequence[Point], index: int) -> float:
    """Distance to the nearest other point."""
    return min(
        (math.dist(points[index], other) for place, other in enumerate(points) if place != index),
        default=math.inf,
    )


def _candidates(point: Point, size: tuple[float, float], mark_radius: float) -> Iterator[Box]:
    """Boxes around a point, the best first: right, left, above, below, then in rings."""
    width, height = size
    for ring in range(RINGS):
        gap = mark_radius * (1.3 + ring)
        for angle in _angles(ring):
            across, up = math.cos(angle), math.sin(angle)
            # The box's edge, not its middle, keeps the gap.
            x = point[0] + across * gap + _side(across) * width / 2
            y = point[1] + up * gap + _side(up) * height / 2
            yield Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _angles(ring: int) -> Iterator[float]:
    if ring == 0:
        yield from (0.0, math.pi, math.pi / 2, -math.pi / 2)
    for step in range(ANGLES):
        yield 2 * math.pi * step / ANGLES


def _side(part: float) -> float:
    """-1 to 1: on which side of a point a box lies, level with it where it hardly lies on either."""
    return max(-1.0, min(1.0, 1.6 * part))


def _best(candidates: Iterator[Box], taken: Sequence[Box], frame: Box) -> Box:
    """The first that hides nothing; where there is none, the one that hides least."""
    hidden: list[tuple[float, int, Box]] = []
    for index, box in enumerate(candidates):
        cost = _hidden_area(box, taken, frame)
        if cost <= NOTHING:
            return box
        hidden.append((cost, index, box))
    return min(hidden, key=lambda each: each[:2])[2]


def _hidden_area(box: Box, taken: Sequence[Box], frame: Box) -> float:
    """What a box covers of others, and what of it lies beyond the frame."""
    outside = (box.right - box.left) * (box.top - box.bottom) - box.shared_area(frame)
    return sum(box.shared_area(other) for other in taken if box.overlaps(other)) + max(0.0, outside)
