"""Velocity: as loud, and as much brighter for a harder touch, as the source?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import statistics
from timbrel_posttraining.evaluate.figure import Figure, SectionReport
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import Material, pick_some
from timbrel_posttraining.evaluate.sections.section import Wanted
from timbrel_posttraining.evaluate.take import Kind, Take
from timbrel_training.notes.split import Split

VELOCITIES = (20, 50, 80, 110)
REACH = 15
"""A note stands for the velocity asked where it is at most this far from it."""
FEWEST = 3
"""Notes of a cell that brightness can be ranked over."""

Cell = dict[int, int]
"""Velocity of VELOCITIES -> note of the library."""


class Velocity:
    """Cells (instrument and pitch of one source) that the library has at three or four of the velocities."""

    name = "velocity"

    def __init__(self, material: Material) -> None:
        self.cells = choose_cells(material, max(1, material.count // 8))
        makers = {
            Kind.SOURCE: material.source,
            Kind.RECONSTRUCTION: material.reconstruction,
            Kind.GENERATED: material.generated,
        }
        self.takes: dict[Kind, list[dict[int, Take]]] = {
            kind: [{velocity: make(row) for velocity, row in cell.items()} for cell in self.cells]
            for kind, make in makers.items()
        }

    def wanted(self) -> Iterator[Wanted]:
        for cells in self.takes.values():
            yield from ((take, True) for cell in cells for take in cell.values())

    def judge(self, heard: Heard) -> SectionReport:
        figures = (
            *self._level(heard, Kind.GENERATED),
            *self._level(heard, Kind.RECONSTRUCTION),
            *self._brightness(heard),
        )
        method = (
            f"{len(self.cells)} cells (instrument and pitch of one source) that the library has near at "
            f"least {FEWEST} of the velocities {', '.join(map(str, VELOCITIES))} (at most {REACH} away; "
            "nothing is rendered anew). Each note is asked of the bundle with its own velocity and hold. "
            "The level error is the largest of the four velocities' medians; brightness is ranked within "
            "each cell."
        )
        return SectionReport(self.name, "Response to velocity", method, figures)

    def _level(self, heard: Heard, kind: Kind) -> Iterator[Figure]:
        errors, asked = self._level_errors(heard, kind)
        suffix = "" if kind is Kind.GENERATED else f".{kind}"
        worst = statistics.joint(worst_median, np.abs(errors), asked)
        yield Figure(f"velocity.level_error{suffix}", f"level error, worst velocity: {kind}", worst, "dB")
        for velocity in VELOCITIES:
            at = errors[asked == velocity]
            label = f"level near velocity {velocity}, {kind} less source"
            yield Figure(f"velocity.level_bias.{velocity}.{kind}", label, statistics.median(at), "dB")
            label = f"level error near velocity {velocity}: {kind}"
            yield Figure(
                f"velocity.level_error.{velocity}.{kind}", label, statistics.median(np.abs(at)), "dB"
            )

    def _level_errors(self, heard: Heard, kind: Kind) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Per note the level less that of the source, in dB, and the velocity that it stands for."""
        pairs = [
            (velocity, heard.record(cell[velocity]).level_db - heard.record(source[velocity]).level_db)
            for source, cell in zip(self.takes[Kind.SOURCE], self.takes[kind], strict=True)
            for velocity in cell
        ]
        table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
        return table[:, 1], table[:, 0]

    def _brightness(self, heard: Heard) -> Iterator[Figure]:
        sources = [self._brightnesses(heard, cell) for cell in self.takes[Kind.SOURCE]]
        for kind in (Kind.RECONSTRUCTION, Kind.GENERATED):
            made = [self._brightnesses(heard, cell) for cell in self.takes[kind]]
            ranks = [statistics.rank_correlation(a, b) for a, b in zip(sources, made, strict=True)]
            label = f"brightness over velocity, rank correlation with the source: {kind}"
            yield Figure(f"velocity.brightness.{kind}", label, statistics.mean(ranks))

    @staticmethod
    def _brightnesses(heard: Heard, cell: dict[int, Take]) -> list[float]:
        return [heard.record(take).brightness for take in cell.values()]


def choose_cells(material: Material, n: int) -> list[Cell]:
    """At most `n` cells of training notes, at random, each with a note for at least FEWEST velocities."""
    rows = material.rows_of(Split.TRAIN)
    keys = material.voice_of[rows] * 128 + material.library.pitch[rows]
    order = np.argsort(keys, kind="stable")
    groups = np.split(rows[order], np.flatnonzero(np.diff(keys[order])) + 1)
    cells = [cell for group in groups if len(cell := cell_of(material, group)) >= FEWEST]
    chosen = pick_some(np.arange(len(cells)), n, material.rng("velocity"))
    return [cells[int(number)] for number in chosen]


def cell_of(material: Material, rows: NDArray[np.int64]) -> Cell:
    """For each of VELOCITIES the nearest note of these, where one is within reach; no note twice."""
    cell: Cell = {}
    if not len(rows):
        return cell
    played = material.library.velocity[rows].astype(int)
    for velocity in VELOCITIES:
        away = np.abs(played - velocity)
        nearest = int(np.argmin(away))
        if away[nearest] <= REACH and int(rows[nearest]) not in cell.values():
            cell[velocity] = int(rows[nearest])
    return cell


def worst_median(errors: NDArray[np.float64], asked: NDArray[np.float64]) -> float:
    """The largest of the medians of the errors, velocity by velocity."""
    return max(float(np.median(errors[asked == velocity])) for velocity in np.unique(asked))
