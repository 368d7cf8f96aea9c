"""The timbre map: does the timbre encoder find the instrument again, and nothing of pitch and velocity?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import estimates
from timbrel_posttraining.evaluate.evaluation_set import EvaluationSet, Take
from timbrel_posttraining.evaluate.report import CellValue, Figure, SectionReport, Table
from timbrel_posttraining.evaluate.sections.section import Section
from timbrel_posttraining.evaluate.takes import Measurements
from timbrel_training.notes.split import Split

N_NEAREST = 5
"""Published points among which the right one is looked for."""
APART_FACTOR = 2.0
"""An instrument stands apart where its nearest neighbour is this many times its own notes' spread away."""
SPREAD_NOTES = 12
"""Notes of each instrument that its spread is measured by: by three it is too large for one in ten."""
SPLITS = {"trained": Split.TRAIN, "held_out": Split.HELD_OUT_CELL}
FEWEST = 3
"""Notes that a probe needs to have seen."""
MOST_NEIGHBOURS = 15
"""A probe asks so many where two thousand notes are known; fewer of fewer notes, so that they stay near."""
AT_ONCE = 200
"""Notes whose neighbours are looked for together."""

Rows = NDArray[np.int64]
"""[n], notes of the library."""
Points = NDArray[np.float64]
"""[n, 2], points of the map."""


class Locate(Section):
    """Judges where notes land on the map: those that the bundle wrote, and those it was never shown."""

    name = "locate"

    def __init__(self, notes: EvaluationSet) -> None:
        self.notes = notes
        trained = notes.pick(Split.TRAIN, notes.count)
        held_out = notes.pick(Split.HELD_OUT_CELL, notes.count)
        of_each = notes.pick_each(Split.TRAIN, min(SPREAD_NOTES, notes.count), "spread")
        self.rows = {"generated": trained, "trained": trained, "held_out": held_out, "of_each": of_each}
        self.takes: dict[str, list[Take]] = {
            "generated": [notes.generated(int(row)) for row in trained],
            "trained": [notes.source(int(row)) for row in trained],
            "held_out": [notes.source(int(row)) for row in held_out],
            "of_each": [notes.source(int(row)) for row in of_each],
        }
        self.requested = list(chain.from_iterable(self.takes.values()))

    def judge(self, measured: Measurements) -> SectionReport:
        points = {name: measured.points(takes) for name, takes in self.takes.items()}
        spread = spreads(points["of_each"], self.notes.instrument_of[self.rows["of_each"]], self.notes.points)
        figures = (*self._found(points), *self._apart(spread))
        method = (
            "Every note's sound alone is located as `timbrel locate` does it; the published points are then "
            "ranked by their distance to where it lands. "
            f"An instrument's spread is the median distance from its point of {SPREAD_NOTES} of its trained "
            "source notes."
        )
        tables = (self._overlaps(spread),)
        return SectionReport(self.name, "Locating", method, figures, tables)

    def _found(self, points: dict[str, Points]) -> Iterator[Figure]:
        labels = {
            "generated": "notes that the bundle wrote",
            "trained": "source notes of trained cells",
            "held_out": "source notes of held-out cells",
        }
        for name, label in labels.items():
            rank = ranks(points[name], self.notes.instrument_of[self.rows[name]], self.notes.points)
            nearest, among = estimates.share(rank == 0), estimates.share(rank < N_NEAREST)
            yield Figure(f"locate.{name}_nearest", f"right point nearest: {label}", nearest, "%")
            label = f"right point among the nearest {N_NEAREST}: {label}"
            yield Figure(f"locate.{name}_among_{N_NEAREST}", label, among, "%")

    def _apart(self, spread: NDArray[np.float64]) -> Iterator[Figure]:
        spacing = self.notes.spacing
        known = ~np.isnan(spread)
        apart = estimates.share(spacing[known] >= APART_FACTOR * spread[known])
        label = f"instruments whose spacing is at least {APART_FACTOR:g} times their spread"
        yield Figure("locate.apart", label, apart, "%")
        yield Figure("locate.spacing", "from a point to the nearest other", estimates.median(spacing))
        yield Figure("locate.spread", "spread of an instrument's notes", estimates.median(spread))

    def _overlaps(self, spread: NDArray[np.float64]) -> Table:
        between = np.linalg.norm(self.notes.points[:, None] - self.notes.points[None], axis=2)
        np.fill_diagonal(between, np.inf)
        rows: list[tuple[CellValue, ...]] = []
        for number, name in enumerate(self.notes.instruments):
            spacing = float(between[number].min())
            if spacing < APART_FACTOR * spread[number]:
                nearest = self.notes.instruments[int(between[number].argmin())]
                rows.append((name, nearest, round(spacing, 4), round(float(spread[number]), 4)))
        return Table("Overlaps", ("instrument", "nearest other", "spacing", "spread"), tuple(rows))


@dataclass(frozen=True, eq=False)
class Placed:
    """Notes, and where on the map they landed; those that landed nowhere are left out."""

    rows: Rows
    points: Points


class MapQuality(Section):
    """Probes where source notes land: trained ones by one another, held-out ones by the trained."""

    name = "map"

    def __init__(self, notes: EvaluationSet) -> None:
        self.notes = notes
        self.rows = {name: notes.pick(split, notes.count) for name, split in SPLITS.items()}
        self.takes = {name: [notes.source(int(row)) for row in rows] for name, rows in self.rows.items()}
        self.requested = list(chain.from_iterable(self.takes.values()))

    def judge(self, measured: Measurements) -> SectionReport:
        placed = {name: self._placed(measured, name) for name in SPLITS}
        figures: list[Figure] = []
        if len(placed["trained"].rows) >= FEWEST:
            for name in SPLITS:
                if len(placed[name].rows):
                    figures.extend(self._probe(name, placed[name], placed["trained"]))
        n_asked = neighbours_of(len(placed["trained"].rows))
        method = (
            f"Source notes where the timbre encoder puts them. A probe predicts from the {n_asked} "
            "nearest trained notes, itself left out. R^2 is the share of the variance it explains (guessing "
            "the mean gives 0); beside it the same probe on shuffled values. Labels stand beside always "
            "guessing the commonest."
        )
        return SectionReport(self.name, "The map", method, tuple(figures))

    def _placed(self, measured: Measurements, name: str) -> Placed:
        points = measured.points(self.takes[name])
        somewhere = ~np.isnan(points).any(axis=1)
        return Placed(self.rows[name][somewhere], points[somewhere])

    def _probe(self, name: str, asked: Placed, known: Placed) -> Iterator[Figure]:
        neighbours = nearest_known(known.points, asked.points, same=asked is known)
        yield from self._numbers(name, asked.rows, known.rows, neighbours)
        yield from self._labels(name, asked.rows, known.rows, neighbours)

    def _numbers(self, name: str, asked: Rows, known: Rows, neighbours: NDArray[np.intp]) -> Iterator[Figure]:
        library = self.notes.library
        shuffled = self.notes.rng("map").permutation(len(known))
        for what, column in (("pitch", library.pitch), ("velocity", library.velocity)):
            values, true = column[known].astype(np.float64), column[asked].astype(np.float64)
            for suffix, told in (("", values), (".chance", values[shuffled])):
                label = f"{what} from (x, y), R^2{_by_chance(suffix)}: {_label(name)}"
                estimate = estimates.joint(explained, true, predict_number(told, neighbours))
                yield Figure(f"map.{what}.{name}{suffix}", label, estimate)

    def _labels(self, name: str, asked: Rows, known: Rows, neighbours: NDArray[np.intp]) -> Iterator[Figure]:
        notes = self.notes
        families = np.unique(np.array(notes.families), return_inverse=True)[1].astype(np.int64)
        of_map = np.arange(len(notes.instruments), dtype=np.int64)
        for what, labels in (("instrument", of_map), ("family", families)):
            values, true = labels[notes.instrument_of[known]], labels[notes.instrument_of[asked]]
            commonest = np.full(len(true), np.bincount(values).argmax())
            for suffix, guessed in (("", predict_label(values, neighbours)), (".chance", commonest)):
                label = f"{what} from (x, y), right{_by_chance(suffix)}: {_label(name)}"
                yield Figure(f"map.{what}.{name}{suffix}", label, estimates.share(guessed == true), "%")


def _by_chance(suffix: str) -> str:
    return " by chance" if suffix else ""


def _label(name: str) -> str:
    return f"{name.replace('_', '-')} notes"


def ranks(located: Points, instrument: NDArray[np.int64], points: Points) -> NDArray[np.int64]:
    """Counts, [n], the `points` [m, 2] that are nearer to where a note landed [n, 2] than its instrument's.

    All of them are where it landed nowhere.
    """
    away = np.linalg.norm(located[:, None] - points[None], axis=2)
    own = away[np.arange(len(located)), instrument]
    nearer = np.isnan(own)[:, None] | (away < own[:, None])
    return np.asarray(nearer.sum(axis=1), dtype=np.int64)


def spreads(located: Points, instrument: NDArray[np.int64], points: Points) -> NDArray[np.float64]:
    """The median distances [m] of each instrument's notes [n, 2] from its point; NaN where it has none."""
    away = np.linalg.norm(located - points[instrument], axis=1)
    found = [away[(instrument == number) & ~np.isnan(away)] for number in range(len(points))]
    return np.array([float(np.median(of)) if len(of) else np.nan for of in found])


def nearest_known(known: Points, asked: Points, *, same: bool = False) -> NDArray[np.intp]:
    """Finds the known points [m, 2] nearest to each one asked [n, 2]: [n, k], see `neighbours_of`. `same`:
    those asked are the known ones, and none counts as its own neighbour."""
    k = neighbours_of(len(known))
    found = np.empty((len(asked), k), dtype=np.intp)
    for first in range(0, len(asked), AT_ONCE):  # all distances at once may be more than memory holds
        away = np.linalg.norm(asked[first : first + AT_ONCE, None] - known[None], axis=2)
        rows = np.arange(len(away))
        if same:
            away[rows, first + rows] = np.inf
        found[first + rows] = np.argpartition(away, k - 1, axis=1)[:, :k]
    return found


def neighbours_of(n_known: int) -> int:
    """Says how many neighbours to ask where `n_known` points are known: at least 1."""
    return max(1, min(MOST_NEIGHBOURS, round(n_known**0.5 / 3)))


def predict_number(values: NDArray[np.float64], neighbours: NDArray[np.intp]) -> NDArray[np.float64]:
    """Predicts the mean of the neighbours' values, [n]."""
    return np.asarray(values[neighbours].mean(axis=1), dtype=np.float64)


def predict_label(labels: NDArray[np.int64], neighbours: NDArray[np.intp]) -> NDArray[np.int64]:
    """Predicts the label that most of the neighbours have, [n]; of equally many the smallest."""
    n_labels = int(labels.max(initial=0)) + 1
    return np.array(
        [np.bincount(row, minlength=n_labels).argmax() for row in labels[neighbours]], dtype=np.int64
    )


def explained(values: NDArray[np.float64], predicted: NDArray[np.float64]) -> float:
    """R^2, the share of the values' variance that is explained. Always guessing the mean gives 0."""
    total = float(((values - values.mean()) ** 2).sum())
    return 1.0 - float(((values - predicted) ** 2).sum()) / total if total > 0 else float("nan")
