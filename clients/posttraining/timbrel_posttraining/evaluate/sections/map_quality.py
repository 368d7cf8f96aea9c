"""The map: it should tell the instrument, and neither pitch nor velocity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import statistics
from timbrel_posttraining.evaluate.figure import Figure, SectionReport
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import Material
from timbrel_posttraining.evaluate.probe import (
    explained,
    nearest,
    neighbours_of,
    predict_label,
    predict_number,
)
from timbrel_posttraining.evaluate.sections.section import Wanted
from timbrel_training.notes.split import Split

SPLITS = {"trained": Split.TRAIN, "held_out": Split.HELD_OUT_CELL}
FEWEST = 3
"""Notes that a probe needs to have seen."""


Rows = NDArray[np.int64]
"""[n], notes of the library."""


@dataclass(frozen=True, eq=False)
class Placed:
    """Notes, and where on the map they landed; those that landed nowhere are left out."""

    rows: Rows
    points: NDArray[np.float64]  # [n, 2]


class MapQuality:
    """Probes of where source notes land: trained ones by one another, held-out ones by the trained."""

    name = "map"

    def __init__(self, material: Material) -> None:
        self.material = material
        self.rows = {name: material.pick(split, material.count) for name, split in SPLITS.items()}
        self.takes = {name: [material.source(int(row)) for row in rows] for name, rows in self.rows.items()}

    def wanted(self) -> Iterator[Wanted]:
        for takes in self.takes.values():
            yield from ((take, True) for take in takes)

    def judge(self, heard: Heard) -> SectionReport:
        placed = {name: self._placed(heard, name) for name in SPLITS}
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

    def _placed(self, heard: Heard, name: str) -> Placed:
        points = heard.points(self.takes[name])
        somewhere = ~np.isnan(points).any(axis=1)
        return Placed(self.rows[name][somewhere], points[somewhere])

    def _probe(self, name: str, asked: Placed, known: Placed) -> Iterator[Figure]:
        neighbours = nearest(known.points, asked.points, same=asked is known)
        yield from self._numbers(name, asked.rows, known.rows, neighbours)
        yield from self._labels(name, asked.rows, known.rows, neighbours)

    def _numbers(self, name: str, asked: Rows, known: Rows, neighbours: NDArray[np.intp]) -> Iterator[Figure]:
        library = self.material.library
        shuffled = self.material.rng("map").permutation(len(known))
        for what, column in (("pitch", library.pitch), ("velocity", library.velocity)):
            values, true = column[known].astype(np.float64), column[asked].astype(np.float64)
            for suffix, told in (("", values), (".chance", values[shuffled])):
                label = f"{what} from (x, y), R^2{_by_chance(suffix)}: {_label(name)}"
                estimate = statistics.joint(explained, true, predict_number(told, neighbours))
                yield Figure(f"map.{what}.{name}{suffix}", label, estimate)

    def _labels(self, name: str, asked: Rows, known: Rows, neighbours: NDArray[np.intp]) -> Iterator[Figure]:
        material = self.material
        families = np.unique(np.array(material.families), return_inverse=True)[1].astype(np.int64)
        of_map = np.arange(len(material.instruments), dtype=np.int64)
        for what, labels in (("instrument", of_map), ("family", families)):
            values, true = labels[material.instrument_of[known]], labels[material.instrument_of[asked]]
            commonest = np.full(len(true), np.bincount(values).argmax())
            for suffix, guessed in (("", predict_label(values, neighbours)), (".chance", commonest)):
                label = f"{what} from (x, y), right{_by_chance(suffix)}: {_label(name)}"
                yield Figure(f"map.{what}.{name}{suffix}", label, statistics.share(guessed == true), "%")


def _by_chance(suffix: str) -> str:
    return " by chance" if suffix else ""


def _label(name: str) -> str:
    return f"{name.replace('_', '-')} notes"
