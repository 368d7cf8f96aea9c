"""Consistency: does a point of the map sound like one instrument when the pitch changes?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import statistics
from timbrel_posttraining.evaluate.figure import Figure, SectionReport
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import Material
from timbrel_posttraining.evaluate.measure.mfcc import cosine
from timbrel_posttraining.evaluate.neighbours import most_alike
from timbrel_posttraining.evaluate.sections.section import Wanted
from timbrel_posttraining.evaluate.take import Kind, Take
from timbrel_training.notes.split import Split

MAX_SEMITONES = 7
HOLD_SCALE = 0.5
"""The coefficients are means over a note: of a partner the velocity matters more than the hold."""


class Consistency:
    """Pairs of notes of one instrument, 1 to 7 semitones apart, as each kind of take has them."""

    name = "consistency"

    def __init__(self, material: Material) -> None:
        pairs = choose_pairs(material, max(1, material.count // 4))
        makers = {
            Kind.SOURCE: material.source,
            Kind.RECONSTRUCTION: material.reconstruction,
            Kind.GENERATED: material.generated,
        }
        self.takes: dict[Kind, tuple[list[Take], list[Take]]] = {
            kind: ([make(a) for a, _ in pairs], [make(b) for _, b in pairs]) for kind, make in makers.items()
        }

    def wanted(self) -> Iterator[Wanted]:
        yield from ((take, True) for sides in self.takes.values() for side in sides for take in side)

    def judge(self, heard: Heard) -> SectionReport:
        cosines = {
            kind: pairwise_cosine(heard.mfcc(first), heard.mfcc(second))
            for kind, (first, second) in self.takes.items()
        }
        figures = [
            Figure(f"consistency.{kind}", f"cosine of MFCC 2-13: {kind}", statistics.mean(values))
            for kind, values in cosines.items()
        ]
        ratio = statistics.joint(_ratio_of_means, cosines[Kind.GENERATED], cosines[Kind.SOURCE])
        figures.insert(
            0, Figure("consistency.ratio", "generated as a share of real instruments'", ratio, "%")
        )
        method = (
            f"{len(cosines[Kind.SOURCE])} pairs of notes of one instrument, 1 to {MAX_SEMITONES} semitones "
            "apart and played as alike (velocity, hold) as the library has them; the bundle is asked for "
            "the same notes."
        )
        return SectionReport(self.name, "Consistency over the pitches", method, tuple(figures))


def choose_pairs(material: Material, n: int) -> list[tuple[int, int]]:
    """Notes, and for each the one of its voice within 7 semitones that is played most like it."""
    rows = material.rows_of(Split.TRAIN)
    pitch, voice = material.library.pitch[rows].astype(int), material.voice_of[rows]
    pairs = []
    for row in material.pick(Split.TRAIN, n):
        steps = np.abs(pitch - int(material.library.pitch[row]))
        near = (voice == material.voice_of[row]) & (steps >= 1) & (steps <= MAX_SEMITONES)
        if (other := most_alike(material, int(row), rows[near], HOLD_SCALE)) is not None:
            pairs.append((int(row), other))
    return pairs


def pairwise_cosine(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n], of vectors [n, 12] each."""
    return np.array([float(cosine(a, b)) for a, b in zip(first, second, strict=True)])


def _ratio_of_means(made: NDArray[np.float64], real: NDArray[np.float64]) -> float:
    return float(made.mean() / real.mean())
