"""Instruments: is a note recognisably of the one asked?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import estimates
from timbrel_posttraining.evaluate.evaluation_set import LOOSE_HOLD_SCALE, EvaluationSet, Kind, Take
from timbrel_posttraining.evaluate.report import CellValue, Figure, SectionReport, Table
from timbrel_posttraining.evaluate.sections.section import Section
from timbrel_posttraining.evaluate.takes import Measurements
from timbrel_training.notes.split import Split


class Identity(Section):
    """Compares notes with the source notes of every instrument at the same pitch."""

    name = "identity"
    in_full = False

    def __init__(self, notes: EvaluationSet) -> None:
        self.notes = notes
        self.rows = [int(row) for row in notes.pick(Split.TRAIN, max(1, notes.count // 2))]
        self.candidates = [candidates_of(notes, row) for row in self.rows]
        self.takes: dict[Kind, list[Take | None]] = {
            Kind.SOURCE: [notes.another_draw(row) for row in self.rows],
            Kind.RECONSTRUCTION: [notes.take(Kind.RECONSTRUCTION, row) for row in self.rows],
            Kind.GENERATED: [notes.generated(row) for row in self.rows],
        }
        """The takes judged of each row, in place of its very note; None where there is nothing."""
        judged = [take for takes in self.takes.values() for take in takes if take is not None]
        self.requested = judged + [notes.source(row) for rows in self.candidates for row in rows]

    def judge(self, measured: Measurements) -> SectionReport:
        recognised_as = {kind: self._nearest(measured, takes) for kind, takes in self.takes.items()}
        asked = self.notes.instrument_of[self.rows]
        right = {kind: (nearest == asked)[nearest >= 0] for kind, nearest in recognised_as.items()}
        labels = {kind: str(kind) for kind in right} | {Kind.SOURCE: "another source note of the cell"}
        ratio = estimates.joint(ratio_of_shares, right[Kind.GENERATED], right[Kind.RECONSTRUCTION])
        figures = [Figure("identity.ratio", "generated as a share of the reconstruction's", ratio, "%")]
        figures += [
            Figure(f"identity.{kind}", f"of the instrument asked: {label}", estimates.share(right[kind]), "%")
            for kind, label in labels.items()
            if len(right[kind])
        ]
        method = (
            f"{len(self.rows)} notes, each against a source note of every instrument at the same pitch, one "
            "from each font that has it: an instrument is whatever its fonts make of it. Of the dataset's "
            "notes they are those nearest in velocity and hold (nothing is rendered anew), the very note "
            "among them. The nearest in log-mel distance, over the time for which the key is held in both, "
            "all clipped 60 dB below the judged note's peak, tells the instrument. To read them by: for each "
            "note, that source note of its cell which is played most like it, judged in the same way."
        )
        table = self._confusions(recognised_as[Kind.GENERATED], asked)
        return SectionReport(self.name, "Identity", method, tuple(figures), (table,))

    def _nearest(self, measured: Measurements, takes: Sequence[Take | None]) -> NDArray[np.int64]:
        """[takes], the instrument that each is nearest to; -1 where there is no take."""
        nearest = []
        for take, rows in zip(takes, self.candidates, strict=True):
            if take is None:
                nearest.append(-1)
                continue
            sources = [self.notes.source(row) for row in rows]
            nearest.append(int(self.notes.instrument_of[rows[measured.nearest(take, sources)]]))
        return np.array(nearest, dtype=np.int64)

    def _confusions(self, recognised_as: NDArray[np.int64], asked: NDArray[np.int64]) -> Table:
        """Tabulates how often each instrument was recognised, and what it was mostly taken for otherwise."""
        rows: list[tuple[CellValue, ...]] = []
        for number, name in enumerate(self.notes.instruments):
            found = recognised_as[asked == number]
            if len(found):
                wrong = found[found != number]
                taken_for = self.notes.instruments[int(np.bincount(wrong).argmax())] if len(wrong) else None
                rows.append((name, len(found), 100 * float((found == number).mean()), taken_for))
        columns = ("instrument", "notes", "recognised: generated %", "else taken for")
        return Table("By instrument", columns, tuple(rows))


class Apart(Section):
    """Compares source notes with another instrument's of the same pitch: a scale for other distances."""

    name = "apart"
    in_full = False

    def __init__(self, notes: EvaluationSet) -> None:
        rows = notes.rows_of(Split.TRAIN)
        pitch, instrument = notes.library.pitch[rows], notes.instrument_of[rows]
        self.pairs: list[tuple[int, int]] = []
        for row in notes.pick(Split.TRAIN, max(1, notes.count // 4), self.name):
            others = rows[(pitch == notes.library.pitch[row]) & (instrument != notes.instrument_of[row])]
            if (other := notes.most_alike(int(row), others)) is not None:
                self.pairs.append((int(row), other))
        self.takes = [tuple(notes.source(row) for row in pair) for pair in self.pairs]
        self.requested = list(chain.from_iterable(self.takes))

    def judge(self, measured: Measurements) -> SectionReport:
        distances = np.array([measured.distance(first, second) for first, second in self.takes])
        estimate = estimates.median(distances)
        figure = Figure("apart.log_mel", "log-mel distance of two instruments", estimate, "dB")
        method = (
            "Source notes, each beside the note of any other instrument at the same pitch that is played "
            "most like it (velocity and hold)."
        )
        return SectionReport(self.name, "Two different instruments", method, (figure,))


def candidates_of(notes: EvaluationSet, row: int) -> NDArray[np.int64]:
    """Finds, of each instrument and source, the note at this pitch that is played most like this one.

    Of its own instrument and source that is the note itself.
    """
    library = notes.library
    rows = np.flatnonzero(notes.usable & (library.pitch == library.pitch[row]))
    order = rows[np.argsort(notes.unlikeness(row, rows, LOOSE_HOLD_SCALE), kind="stable")]
    _, first = np.unique(notes.voice_of[order], return_index=True)
    chosen = order[first]
    chosen[notes.voice_of[chosen] == notes.voice_of[row]] = row
    return chosen.astype(np.int64)


def ratio_of_shares(part: NDArray[np.float64], whole: NDArray[np.float64]) -> float:
    """The one share as a share of the other; NaN where that is nothing."""
    return float(part.mean() / whole.mean()) if whole.any() else float("nan")
