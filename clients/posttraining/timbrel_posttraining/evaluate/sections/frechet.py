"""Frechet distance: do all notes together sound like notes that the bundle was never shown?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate.figure import Figure, SectionReport
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import Material
from timbrel_posttraining.evaluate.measure.bootstrap import Estimate
from timbrel_posttraining.evaluate.measure.frechet import frechet_distance, frechet_floor
from timbrel_posttraining.evaluate.sections.section import Wanted
from timbrel_posttraining.evaluate.statistics import NOTHING
from timbrel_posttraining.evaluate.take import Kind, Take
from timbrel_training.notes.split import Split

N_RESAMPLES = 200
FEWEST = 4
"""Notes that can be halved for a floor."""


class Frechet:
    """The notes of held-out cells as each kind of take has them, against the source's."""

    name = "frechet"

    def __init__(self, material: Material) -> None:
        rows = [int(row) for row in material.pick(Split.HELD_OUT_CELL, material.count)]
        trained = [int(row) for row in material.pick(Split.TRAIN, len(rows))]
        self.reference: list[Take] = [material.source(row) for row in rows]
        self.others: dict[str, list[Take]] = {
            "generated": [material.generated(row) for row in rows],
            "reconstruction": [material.reconstruction(row) for row in rows],
            "trained": [material.source(row) for row in trained],
        }

    def wanted(self) -> Iterator[Wanted]:
        for takes in (self.reference, *self.others.values()):
            yield from ((take, True) for take in takes)

    def judge(self, heard: Heard) -> SectionReport:
        reference = heard.statistics(self.reference)
        labels = {
            "generated": f"{Kind.GENERATED} to held-out source notes",
            "reconstruction": f"{Kind.RECONSTRUCTION} to held-out source notes",
            "trained": "source notes of trained cells, as many, to those of held-out cells",
        }
        figures = [
            Figure(f"frechet.{name}", labels[name], distance_of(heard.statistics(takes), reference), "dB^2")
            for name, takes in self.others.items()
        ]
        label = "floor: one half of the held-out source notes to the other"
        figures.append(Figure("frechet.floor", label, floor_of(reference), "dB^2"))
        method = (
            "Per note the mean and deviation over time of 20 mel bands; the distance is that of the "
            "Gaussians fitted to two sets of notes. Intervals: of distances by drawing the notes of both "
            "sets anew, moved onto the value since repeated notes make sets look farther apart; of the "
            "floor over random halvings."
        )
        return SectionReport(self.name, "Frechet distance", method, tuple(figures))


def distance_of(made: NDArray[np.float64], reference: NDArray[np.float64]) -> Estimate:
    """The distance of two sets [n, 40] of equally many notes, with its interval."""
    n = min(len(made), len(reference))
    if n < FEWEST:
        return NOTHING
    rng, value = np.random.default_rng(0), frechet_distance(made, reference)
    drawn = np.array(
        [frechet_distance(made[rows], reference[rows]) for rows in rng.integers(0, n, (N_RESAMPLES, n))]
    )
    low, high = np.maximum(0.0, np.percentile(drawn, (2.5, 97.5)) + value - drawn.mean())
    return Estimate(value, float(low), float(high), n)


def floor_of(reference: NDArray[np.float64]) -> Estimate:
    """The mean distance between two random halves of a set [n, 40]."""
    if len(reference) < FEWEST:
        return NOTHING
    drawn = [frechet_floor(reference, n_splits=1, seed=seed) for seed in range(N_RESAMPLES)]
    low, high = np.percentile(drawn, (2.5, 97.5))
    return Estimate(float(np.mean(drawn)), float(low), float(high), len(reference))
