"""Is a written note nearer to the very note than what a sampler with gaps between its samples plays?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import estimates
from timbrel_posttraining.evaluate.evaluation_set import EvaluationSet, Kind, Take, pick_some
from timbrel_posttraining.evaluate.report import CellValue, Figure, SectionReport, Table
from timbrel_posttraining.evaluate.sections.realism import MEASURES, Realism, auc_of, over_known
from timbrel_posttraining.evaluate.takes import Measurements
from timbrel_training.notes.split import Split

MOST_NOTES = 400
"""Notes are at most so many, and half as many for each of ..."""
SPACINGS = (2, 4, 6, 12)
"""Semitones from one sample of the sampler to the next."""

CANDIDATES = {"sampler": "sampler", "generated": "written"}
"""What is held against the source notes."""

COMPARED = ("log_mel", "all_partials")
"""Names of the likenesses that are compared, of realism.MEASURES."""


class Gaps(Realism):
    """Holds written notes and those of samplers with gaps against source notes of held-out cells."""

    name: ClassVar[str] = "gaps"

    def __init__(self, notes: EvaluationSet) -> None:
        self.spacings: list[int] = []
        """Semitones between the samples of the sampler that each row is played by."""
        super().__init__(notes)
        self.learnt = sorted({notes.semitones_apart(row) for row in self.rows})
        """Semitones between the pitches that the bundle learnt from."""
        self.sources_of = [notes.library.sources[int(notes.library.source[row])] for row in self.rows]

    def chosen(self, notes: EvaluationSet) -> list[int]:
        rows = notes.pick(Split.HELD_OUT_CELL, min(notes.count, MOST_NOTES))
        chosen: list[int] = []
        for spacing in SPACINGS:
            fit = [row for row in rows.tolist() if notes.semitones_apart(row) in (1, spacing)]
            fit = [row for row in fit if notes.sampler(row, spacing) is not None]
            some = pick_some(np.array(fit, dtype=np.int64), MOST_NOTES // 2, notes.rng(f"gaps {spacing}"))
            chosen += some.tolist()
            self.spacings += [spacing] * len(some)
        return chosen

    def candidates(self, notes: EvaluationSet) -> dict[str, list[Take | None]]:
        places = zip(self.rows, self.spacings, strict=True)
        return {
            "sampler": [notes.sampler(row, spacing) for row, spacing in places],
            "generated": [notes.take(Kind.GENERATED, row) for row in self.rows],
        }

    def judge(self, measured: Measurements) -> SectionReport:
        tests = {name: self.told(measured, name) for name in CANDIDATES}
        values = {
            (measure, name): MEASURES[measure][2](self.found(measured, name)[1])
            for measure in COMPARED
            for name in CANDIDATES
        }
        spacings = np.array(self.spacings)
        figures: list[Figure] = []
        for spacing in sorted(set(self.spacings)):
            flags, gap = spacings == spacing, f"samples {spacing} semitones apart"
            for name, candidate in CANDIDATES.items():
                auc = auc_of(tests[name], flags)
                figures.append(Figure(f"gaps.auc.{name}.{spacing}", f"AUC, {gap}: {candidate}", auc))
            for measure in COMPARED:
                what, unit, _ = MEASURES[measure]
                pair = {name: values[measure, name][flags] for name in CANDIDATES}
                for name, candidate in CANDIDATES.items():
                    label = f"{what}, {gap}: {candidate}"
                    middle = estimates.median(pair[name], groups=self.cells[flags])
                    figures.append(Figure(f"gaps.{measure}.{name}.{spacing}", label, middle, unit))
                label = f"{what}, {gap}: written nearer than the sampler"
                nearer = estimates.joint(_share_nearer, *pair.values(), groups=self.cells[flags])
                figures.append(Figure(f"gaps.{measure}.nearer.{spacing}", label, nearer, "%"))
        rows: list[tuple[CellValue, ...]] = [
            (
                group,
                spacing,
                int(flags.sum()),
                *(float(over_known(np.nanmedian, each[None, flags])[0]) for each in values.values()),
            )
            for group, of_group in self._groups()
            for spacing in sorted(set(self.spacings))
            if (flags := of_group & (spacings == spacing)).any()
        ]
        labels = (f"{MEASURES[measure][0]} {CANDIDATES[name]}" for measure, name in values)
        learnt = ", ".join("all" if each == 1 else f"one in {each}" for each in self.learnt)
        method = (
            "The sampler has every 2nd, 4th, 6th or 12th semitone of each instrument at two velocities, and "
            "plays the nearest one faster or slower. The bundle writes the same notes, none of which either "
            f"has had. Of an instrument's semitones it learnt from {learnt}: where that is all, from more "
            "than the sampler has; `notes.spacings` trains a bundle on as few. Fonts are samplers, too: "
            "between their samples a source note is made as this sampler makes its. Instruments are listed "
            "for the widest gap."
        )
        table = Table("Medians in dB", ("", "semitones", "notes", *labels), tuple(rows))
        return SectionReport(self.name, "Against a sampler with gaps", method, tuple(figures), (table,))

    def _groups(self) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Yields kinds of sound, sources, and instruments at the widest gap, with flags [n] of their rows."""
        yield from self.of_kinds
        sources = np.array(self.sources_of, dtype=object)
        for source in sorted(set(self.sources_of)):
            yield source, sources == source
        widest = np.array(self.spacings) == max(self.spacings, default=0)
        yield from ((name, flags & widest) for name, flags in self.of_instruments)


def _share_nearer(sampler: NDArray[np.float64], written: NDArray[np.float64]) -> float:
    return float(np.mean(written < sampler))
