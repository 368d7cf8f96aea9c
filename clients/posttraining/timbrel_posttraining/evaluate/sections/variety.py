"""Variety: how much do two seeds differ, beside two recordings of one cell?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from timbrel_posttraining.evaluate import statistics
from timbrel_posttraining.evaluate.figure import Figure, SectionReport
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import Material
from timbrel_posttraining.evaluate.sections.section import Wanted
from timbrel_posttraining.evaluate.take import Take
from timbrel_training.notes.split import Split

MAX_VELOCITY_STEP = 8
MAX_HOLD_RATIO = 1.2


class Variety:
    """The same note asked twice with two seeds; and pairs of source notes that were played nearly alike."""

    name = "variety"

    def __init__(self, material: Material) -> None:
        n = max(1, material.count // 8)
        twins = choose_twins(material, n)
        rows = [int(row) for row in material.pick(Split.TRAIN, n)]
        self.sources: list[tuple[Take, Take]] = [(material.source(a), material.source(b)) for a, b in twins]
        self.generated = [(material.generated(row, 0), material.generated(row, 1)) for row in rows]

    def wanted(self) -> Iterator[Wanted]:
        for pair in (*self.sources, *self.generated):
            yield from ((take, False) for take in pair)

    def judge(self, heard: Heard) -> SectionReport:
        figures = []
        for who, pairs in (("generated", self.generated), ("source", self.sources)):
            distances = np.array([heard.held_distance(a, b) for a, b in pairs])
            label = f"log-mel distance of two {'seeds' if who == 'generated' else 'draws of a cell'}: {who}"
            figures.append(Figure(f"variety.{who}", label, statistics.median(distances), "dB"))
        method = (
            f"{len(self.generated)} notes asked with two seeds each, beside {len(self.sources)} pairs of "
            f"source notes of one cell and source whose velocities differ by at most {MAX_VELOCITY_STEP} and "
            f"whose holds by at most a factor of {MAX_HOLD_RATIO:g}; over the time for which both keys are "
            "held."
        )
        return SectionReport(self.name, "Variety between seeds", method, tuple(figures))


def choose_twins(material: Material, n: int) -> list[tuple[int, int]]:
    """At most `n` pairs of training notes of one cell that are played nearly alike; no note twice."""
    library = material.library
    rows = material.rows_of(Split.TRAIN)
    keys = material.voice_of[rows] * 128 + library.pitch[rows]
    order = np.lexsort((library.velocity[rows], keys))
    rows, keys = rows[order], keys[order]
    velocity, hold = library.velocity[rows].astype(int), np.log(library.held_seconds[rows])
    alike = (
        (np.diff(keys) == 0)
        & (np.abs(np.diff(velocity)) <= MAX_VELOCITY_STEP)
        & (np.abs(np.diff(hold)) <= np.log(MAX_HOLD_RATIO))
    )
    starts = material.rng("variety").permutation(np.flatnonzero(alike))
    used: set[int] = set()
    pairs: list[tuple[int, int]] = []
    for start in map(int, starts):
        if not used & {start, start + 1} and len(pairs) < n:
            used |= {start, start + 1}
            pairs.append((int(rows[start]), int(rows[start + 1])))
    return pairs
