"""The bundle as a whole: the variety of its seeds, and its size."""

from __future__ import annotations

from itertools import chain

import numpy as np

from timbrel_posttraining.evaluate import estimates
from timbrel_posttraining.evaluate.evaluation_set import EvaluationSet, Take
from timbrel_posttraining.evaluate.report import Figure, SectionReport
from timbrel_posttraining.evaluate.sections.section import Section
from timbrel_posttraining.evaluate.takes import Measurements
from timbrel_training.notes.split import Split

MAX_VELOCITY_STEP = 8
MAX_HOLD_RATIO = 1.2
"""Two notes differ by at most so much where they count as draws of one cell."""
MEGABYTE = 1e6


class Variety(Section):
    """Compares notes asked with two seeds, and pairs of source notes that were played nearly alike."""

    name = "variety"
    in_full = False

    def __init__(self, notes: EvaluationSet) -> None:
        n = max(1, notes.count // 8)
        twins = choose_twins(notes, n)
        rows = [int(row) for row in notes.pick(Split.TRAIN, n)]
        self.sources: list[tuple[Take, Take]] = [(notes.source(a), notes.source(b)) for a, b in twins]
        self.generated = [(notes.generated(row, 0), notes.generated(row, 1)) for row in rows]
        self.requested = list(chain.from_iterable((*self.sources, *self.generated)))

    def judge(self, measured: Measurements) -> SectionReport:
        figures = []
        for who, pairs in (("generated", self.generated), ("source", self.sources)):
            distances = np.array([measured.held_distance(a, b) for a, b in pairs])
            label = f"log-mel distance of two {'seeds' if who == 'generated' else 'draws of a cell'}: {who}"
            figures.append(Figure(f"variety.{who}", label, estimates.median(distances), "dB"))
        method = (
            f"{len(self.generated)} notes asked with two seeds each, beside {len(self.sources)} pairs of "
            f"source notes of one cell and source whose velocities differ by at most {MAX_VELOCITY_STEP} and "
            f"whose holds by at most a factor of {MAX_HOLD_RATIO:g}; over the time for which both keys are "
            "held."
        )
        return SectionReport(self.name, "Variety between seeds", method, tuple(figures))


class Size(Section):
    """Adds up the files that have to be downloaded or shipped."""

    name = "bundle"

    def __init__(self, notes: EvaluationSet) -> None:
        self.megabytes = sum(file.size for file in notes.bundle.manifest.files) / MEGABYTE

    def judge(self, measured: Measurements) -> SectionReport:
        size = estimates.Estimate(value=self.megabytes, low=self.megabytes, high=self.megabytes, n=1)
        figure = Figure("bundle.megabytes", "all files of the bundle", size, "MB")
        return SectionReport(self.name, "Size", "As the manifest lists them.", (figure,))


def choose_twins(notes: EvaluationSet, n: int) -> list[tuple[int, int]]:
    """Picks at most `n` pairs of training notes of one cell that are played nearly alike; no note twice."""
    library = notes.library
    rows = notes.rows_of(Split.TRAIN)
    keys = notes.voice_of[rows] * 128 + library.pitch[rows]
    order = np.lexsort((library.velocity[rows], keys))
    rows, keys = rows[order], keys[order]
    velocity, hold = library.velocity[rows].astype(int), np.log(library.held_seconds[rows])
    alike = (
        (np.diff(keys) == 0)
        & (np.abs(np.diff(velocity)) <= MAX_VELOCITY_STEP)
        & (np.abs(np.diff(hold)) <= np.log(MAX_HOLD_RATIO))
    )
    starts = notes.rng("variety").permutation(np.flatnonzero(alike))
    used: set[int] = set()
    pairs: list[tuple[int, int]] = []
    for start in map(int, starts):
        if not used & {start, start + 1} and len(pairs) < n:
            used |= {start, start + 1}
            pairs.append((int(rows[start]), int(rows[start + 1])))
    return pairs
