"""Identity: is a note recognisably of the instrument that was asked for?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import statistics
from timbrel_posttraining.evaluate.figure import Cell, Figure, SectionReport, Table
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import Material
from timbrel_posttraining.evaluate.neighbours import unlikeness
from timbrel_posttraining.evaluate.sections.section import Wanted
from timbrel_posttraining.evaluate.take import Kind, Take
from timbrel_training.notes.split import Split

HOLD_SCALE = 1.0
"""Notes are compared while held, so that of the candidates the velocity decides."""


class Identity:
    """Notes beside the source notes of every instrument at the same pitch."""

    name = "identity"

    def __init__(self, material: Material) -> None:
        self.material = material
        self.rows = [int(row) for row in material.pick(Split.TRAIN, max(1, material.count // 2))]
        self.candidates = [candidates_of(material, row) for row in self.rows]
        others = [other_draw_of(material, row) for row in self.rows]
        self.takes: dict[Kind, list[Take | None]] = {
            Kind.SOURCE: [None if other is None else material.source(other) for other in others],
            Kind.RECONSTRUCTION: [material.reconstruction(row) for row in self.rows],
            Kind.GENERATED: [material.generated(row) for row in self.rows],
        }
        """What is judged of each row, in place of its very note; None where there is nothing."""

    def wanted(self) -> Iterator[Wanted]:
        for takes in self.takes.values():
            yield from ((take, False) for take in takes if take is not None)
        for rows in self.candidates:
            yield from ((self.material.source(row), False) for row in rows)

    def judge(self, heard: Heard) -> SectionReport:
        heard_as = {kind: self._nearest(heard, takes) for kind, takes in self.takes.items()}
        asked = self.material.instrument_of[self.rows]
        right = {kind: (nearest == asked)[nearest >= 0] for kind, nearest in heard_as.items()}
        labels = {kind: str(kind) for kind in right} | {Kind.SOURCE: "another source note of the cell"}
        figures = [
            Figure(
                f"identity.{kind}", f"of the instrument asked: {label}", statistics.share(right[kind]), "%"
            )
            for kind, label in labels.items()
            if len(right[kind])
        ]
        ratio = statistics.joint(ratio_of_shares, right[Kind.GENERATED], right[Kind.RECONSTRUCTION])
        figures.insert(
            0, Figure("identity.ratio", "generated as a share of the reconstruction's", ratio, "%")
        )
        method = (
            f"{len(self.rows)} notes, each against a source note of every instrument at the same pitch, one "
            "from each font that has it: an instrument is whatever its fonts make of it. Of the library's "
            "notes they are those nearest in velocity and hold (nothing is rendered anew), the very note "
            "among them. The nearest in log-mel distance, over the time for which the key is held in both, "
            "all clipped 60 dB below the judged note's peak, tells the instrument. To read them by: for each "
            "note, that source note of its cell which is played most like it, judged in the same way."
        )
        table = self._confusions(heard_as[Kind.GENERATED], asked)
        return SectionReport(self.name, "Identity", method, tuple(figures), (table,))

    def _nearest(self, heard: Heard, takes: Sequence[Take | None]) -> NDArray[np.int64]:
        """[takes], the instrument that each is nearest to; -1 where there is no take."""
        nearest = []
        for take, rows in zip(takes, self.candidates, strict=True):
            if take is None:
                nearest.append(-1)
                continue
            sources = [self.material.source(row) for row in rows]
            nearest.append(int(self.material.instrument_of[rows[heard.nearest(take, sources)]]))
        return np.array(nearest, dtype=np.int64)

    def _confusions(self, heard_as: NDArray[np.int64], asked: NDArray[np.int64]) -> Table:
        """Per instrument, how often it was recognised, and what it was most often taken for otherwise."""
        rows: list[tuple[Cell, ...]] = []
        for number, name in enumerate(self.material.instruments):
            found = heard_as[asked == number]
            if len(found):
                wrong = found[found != number]
                taken_for = (
                    self.material.instruments[int(np.bincount(wrong).argmax())] if len(wrong) else None
                )
                rows.append((name, len(found), 100 * float((found == number).mean()), taken_for))
        columns = ("instrument", "notes", "recognised: generated %", "else taken for")
        return Table("By instrument", columns, tuple(rows))


def candidates_of(material: Material, row: int) -> NDArray[np.int64]:
    """Of each instrument, from each source, the note at this pitch that is played most like this one.

    Of its own instrument and source that is the note itself.
    """
    library = material.library
    rows = np.flatnonzero(material.usable & (library.pitch == library.pitch[row]))
    order = rows[np.argsort(unlikeness(material, row, rows, HOLD_SCALE), kind="stable")]
    kind = material.instrument_of.astype(np.int64) * len(library.sources) + library.source
    _, first = np.unique(kind[order], return_index=True)
    chosen = order[first]
    chosen[kind[chosen] == kind[row]] = row
    return chosen.astype(np.int64)


def other_draw_of(material: Material, row: int) -> int | None:
    """Another note of the same instrument, source and pitch, played most like this one; None if alone."""
    library = material.library
    same = material.usable & (library.pitch == library.pitch[row]) & (library.source == library.source[row])
    rows = np.flatnonzero(same & (material.instrument_of == material.instrument_of[row]))
    others = rows[rows != row]
    if not len(others):
        return None
    return int(others[np.argmin(unlikeness(material, row, others, HOLD_SCALE))])


def ratio_of_shares(part: NDArray[np.float64], whole: NDArray[np.float64]) -> float:
    """The one share as a share of the other; NaN where that is nothing."""
    return float(part.mean() / whole.mean()) if whole.any() else float("nan")
