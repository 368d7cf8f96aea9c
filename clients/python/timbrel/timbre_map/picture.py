"""The timbre map as a PNG picture: the disc, the families in colours, a name beside each point."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timbrel.core.timbre import Instrument
from timbrel.demo import literal, plain_style, require_matplotlib
from timbrel.errors import refusal
from timbrel_bundle.files import atomic_write

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

    def shared_area(self, other: Box) -> float:
        """The area of the overlap; 0 for none."""
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

    Where everything near is taken, the place that hides the least. Labels have these widths and heights, stay
    within the frame as far as there is room, and keep off marks and obstacles.
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
    """The area of others that a box covers, and of itself beyond the frame."""
    outside = (box.right - box.left) * (box.top - box.bottom) - box.shared_area(frame)
    return sum(box.shared_area(other) for other in taken if box.overlaps(other)) + max(0.0, outside)


INCHES = 8.5
DPI = 150
ROOMY = 50
"""Names for which a picture of INCHES has room: with more it is larger."""

MARK_RADIUS = 0.014
"""The radius of a point's mark, in units of the map."""

MOST_NAMES = 300
"""With more instruments than that the picture has their points only: names would hide one another."""

DARKENING = 0.78
"""Factor to matplotlib's colours, for names in them to be read."""

LABEL_PADDING = 0.006
"""Kept free around a name, in units of the map."""

EDGE_BOXES = 720
"""In how many pieces names see the disc's edge, which they keep off."""

MARGIN = 0.22
"""Around the disc, in units of the map, for names of points at its edge."""


def check_picture_path(path: str | os.PathLike[str]) -> Path:
    """The path, if a picture can be written there. Raises InvalidRequestError: it does not end in .png, or
    there is no such folder; MissingExtraError: matplotlib, which the demo extra brings, is not installed."""
    target = Path(path)
    if target.suffix.lower() != ".png":
        raise refusal("out", f"{target} must end in .png")
    if target.is_dir():
        raise refusal("out", f"{target} is a folder")
    if not target.parent.is_dir():
        raise refusal("out", f"the folder {target.parent} does not exist")
    require_matplotlib()
    return target


def inches(n_names: int) -> float:
    """Returns the width and height of a picture of so many names, which stay as large as they are."""
    return INCHES * max(1.0, math.sqrt(min(n_names, MOST_NAMES) / ROOMY))


@plain_style()
def draw_map(instruments: Sequence[Instrument], path: Path, title: str) -> None:
    """Draws the map to a PNG file, whole or not at all; raises as `require_matplotlib` does."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    side = inches(len(instruments))
    figure = Figure(figsize=(side, side), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.06, 0.05, 0.91, 0.90))
    _draw_disc(axes, title)
    colours = _colours(sorted({each.family for each in instruments}))
    for family, colour in colours.items():
        x, y = zip(*(each.timbre for each in instruments if each.family == family), strict=True)
        axes.scatter(x, y, s=34, color=colour, label=literal(family), zorder=3, linewidths=0)
    _draw_names(figure, axes, instruments, colours)
    if colours:
        axes.legend(
            loc="lower left",
            fontsize=7,
            frameon=False,
            handletextpad=0.2,
            borderaxespad=0.0,
            labelspacing=0.35,
        )
    content = io.BytesIO()
    # No version and no date: equal maps make equal files.
    figure.savefig(content, format="png", dpi=DPI, metadata={"Software": None})
    atomic_write(path, content.getvalue())


def _draw_disc(axes: Any, title: str) -> None:
    from matplotlib.patches import Circle

    axes.add_patch(Circle((0.0, 0.0), 1.0, facecolor="#f6f6f4", edgecolor="#888888", linewidth=1.0, zorder=0))
    axes.plot((-1.0, 1.0), (0.0, 0.0), color="#cccccc", linewidth=0.6, zorder=1)
    axes.plot((0.0, 0.0), (-1.0, 1.0), color="#cccccc", linewidth=0.6, zorder=1)
    limit = 1.0 + MARGIN
    ticks = (-1.0, -0.5, 0.0, 0.5, 1.0)
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xticks=ticks, yticks=ticks)
    axes.tick_params(labelsize=8, color="#888888", labelcolor="#555555")
    axes.spines[:].set_visible(False)
    axes.set_title(literal(title), fontsize=11)


def _colours(families: Sequence[str]) -> dict[str, Any]:
    """A colour for each family, as far apart as they come, all dark enough to read on white."""
    from matplotlib import color_sequences
    from matplotlib.colors import to_rgb

    palette = [to_rgb(colour) for name in ("tab10", "Dark2") for colour in color_sequences[name]]
    return {
        family: tuple(DARKENING * part for part in palette[index % len(palette)])
        for index, family in enumerate(families)
    }


def _draw_names(figure: Any, axes: Any, instruments: Sequence[Instrument], colours: dict[str, Any]) -> None:
    """Names where they hide neither a point nor each other, with a line to their point where they are far."""
    if len(instruments) > MOST_NAMES:
        return
    sizes = [_text_size(figure, axes, literal(each.name)) for each in instruments]
    limit = 1.0 + MARGIN
    frame = Box(-limit, -limit, limit, limit)
    points = [each.timbre for each in instruments]
    places = place_labels(points, sizes, MARK_RADIUS, frame, list(_edge()))
    for each, box in zip(instruments, places, strict=True):
        axes.text(
            (box.left + box.right) / 2,
            (box.bottom + box.top) / 2,
            literal(each.name),
            fontsize=8,
            color=colours[each.family],
            ha="center",
            va="center",
            zorder=4,
        )
        near = box.nearest_point(each.timbre)
        if math.dist(near, each.timbre) > 2.5 * MARK_RADIUS:
            axes.plot(
                *zip(each.timbre, near, strict=True), color=colours[each.family], linewidth=0.6, zorder=2
            )


def _edge() -> Iterator[Box]:
    """The disc's edge as small boxes."""
    size = 0.6 * math.pi / EDGE_BOXES
    for step in range(EDGE_BOXES):
        angle = 2 * math.pi * step / EDGE_BOXES
        x, y = math.cos(angle), math.sin(angle)
        yield Box(x - size, y - size, x + size, y + size)


def _text_size(figure: Any, axes: Any, name: str) -> tuple[float, float]:
    """Width and height that a name takes, in units of the map."""
    text = axes.text(0.0, 0.0, name, fontsize=8)
    box = text.get_window_extent(figure.canvas.get_renderer()).transformed(axes.transData.inverted())
    text.remove()
    return float(box.width) + 2 * LABEL_PADDING, float(box.height) + 2 * LABEL_PADDING
