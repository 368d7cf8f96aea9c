"""Locating: does the timbre encoder find the instrument again?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import statistics
from timbrel_posttraining.evaluate.figure import Cell, Figure, SectionReport, Table
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import Material
from timbrel_posttraining.evaluate.sections.section import Wanted
from timbrel_posttraining.evaluate.take import Take
from timbrel_training.notes.split import Split

AMONG = 5
APART_FACTOR = 2.0
"""An instrument stands apart where its nearest neighbour is this many times its own notes' spread away."""


class Locate:
    """Where notes land on the map: those that the bundle wrote, and those that it was never shown."""

    name = "locate"

    def __init__(self, material: Material) -> None:
        self.material = material
        trained = material.pick(Split.TRAIN, material.count)
        held_out = material.pick(Split.HELD_OUT_CELL, material.count)
        self.rows = {"generated": trained, "trained": trained, "held_out": held_out}
        self.takes: dict[str, list[Take]] = {
            "generated": [material.generated(int(row)) for row in trained],
            "trained": [material.source(int(row)) for row in trained],
            "held_out": [material.source(int(row)) for row in held_out],
        }

    def wanted(self) -> Iterator[Wanted]:
        for takes in self.takes.values():
            yield from ((take, True) for take in takes)

    def judge(self, heard: Heard) -> SectionReport:
        points = {name: heard.points(takes) for name, takes in self.takes.items()}
        spread = spreads(
            points["trained"], self.material.instrument_of[self.rows["trained"]], self.material.points
        )
        figures = (*self._found(points), *self._apart(spread))
        method = (
            "Every note's sound alone, with nothing said about its pitch, goes through the bundle's codec "
            "and timbre encoder; the published points are then ranked by their distance to where it lands. "
            "An instrument's spread is the median distance of its trained source notes from its point."
        )
        tables = (self._overlaps(spread),)
        return SectionReport(self.name, "Locating", method, figures, tables)

    def _found(self, points: dict[str, NDArray[np.float64]]) -> Iterator[Figure]:
        labels = {
            "generated": "notes that the bundle wrote",
            "trained": "source notes of trained cells",
            "held_out": "source notes of held-out cells",
        }
        for name, label in labels.items():
            rank = ranks(points[name], self.material.instrument_of[self.rows[name]], self.material.points)
            yield Figure(
                f"locate.{name}_nearest", f"right point nearest: {label}", statistics.share(rank == 0), "%"
            )
            among = statistics.share(rank < AMONG)
            yield Figure(
                f"locate.{name}_among_{AMONG}", f"right point among the nearest {AMONG}: {label}", among, "%"
            )

    def _apart(self, spread: NDArray[np.float64]) -> Iterator[Figure]:
        spacing = self.material.spacing
        known = ~np.isnan(spread)
        apart = statistics.share(spacing[known] >= APART_FACTOR * spread[known])
        yield Figure(
            "locate.apart",
            f"instruments whose spacing is at least {APART_FACTOR:g} times their spread",
            apart,
            "%",
        )
        yield Figure("locate.spacing", "from a point to the nearest other", statistics.median(spacing))
        yield Figure("locate.spread", "spread of an instrument's notes", statistics.median(spread))

    def _overlaps(self, spread: NDArray[np.float64]) -> Table:
        between = np.linalg.norm(self.material.points[:, None] - self.material.points[None], axis=2)
        np.fill_diagonal(between, np.inf)
        rows: list[tuple[Cell, ...]] = []
        for number, name in enumerate(self.material.instruments):
            spacing = float(self.material.spacing[number])
            if spacing < APART_FACTOR * spread[number]:
                nearest = self.material.instruments[int(between[number].argmin())]
                rows.append((name, nearest, round(spacing, 4), round(float(spread[number]), 4)))
        return Table("Overlaps", ("instrument", "nearest other", "spacing", "spread"), tuple(rows))


def ranks(
    located: NDArray[np.float64], instrument: NDArray[np.int64], points: NDArray[np.float64]
) -> NDArray[np.int64]:
    """[n], how many of `points` [m, 2] are nearer to where each note landed [n, 2] than its instrument's.

    All of them are where it landed nowhere.
    """
    away = np.linalg.norm(located[:, None] - points[None], axis=2)
    own = away[np.arange(len(located)), instrument]
    nearer = np.isnan(own)[:, None] | (away < own[:, None])
    return np.asarray(nearer.sum(axis=1), dtype=np.int64)


def spreads(
    located: NDArray[np.float64], instrument: NDArray[np.int64], points: NDArray[np.float64]
) -> NDArray[np.float64]:
    """[m], the median distance of each instrument's notes [n, 2] from its point; NaN where it has none."""
    away = np.linalg.norm(located - points[instrument], axis=1)
    found = [away[(instrument == number) & ~np.isnan(away)] for number in range(len(points))]
    return np.array([float(np.median(of)) if len(of) else np.nan for of in found])
