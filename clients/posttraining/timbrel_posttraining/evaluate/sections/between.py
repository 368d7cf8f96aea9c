"""Points between the instruments: notes that nothing was recorded for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import statistics
from timbrel_posttraining.evaluate.figure import Cell, SectionReport, Table
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import HIGHEST, LOWEST, Material
from timbrel_posttraining.evaluate.octaves import OCTAVES, octave_name
from timbrel_posttraining.evaluate.sections.section import Wanted
from timbrel_posttraining.evaluate.sections.tuning import tuning_figures
from timbrel_posttraining.evaluate.take import Take
from timbrel_training.errors import TrainingError

NOISE_FACTOR = 2.0
"""Points nearer to an instrument than this many times the training noise are the instrument's own."""
MAX_DRAWS = 200_000


class Between:
    """Notes at points uniform in the disc, away from every instrument's; pitches over the bundle's range."""

    name = "between"

    def __init__(self, material: Material) -> None:
        self.distance = NOISE_FACTOR * material.noise
        rng = material.rng(self.name)
        ranges = material.bundle.manifest.ranges
        pitches = np.arange(max(LOWEST, ranges.pitch_min), min(HIGHEST, ranges.pitch_max) + 1)
        points = points_between(material.points, self.distance, material.count, rng)
        shortest, longest = np.log(ranges.seconds_min), np.log(ranges.seconds_max)
        self.takes: list[Take] = [
            material.asked(
                point,
                int(rng.choice(pitches)),
                int(rng.integers(ranges.velocity_min, ranges.velocity_max + 1)),
                float(np.exp(rng.uniform(shortest, longest))),
            )
            for point in points
        ]

    def wanted(self) -> Iterator[Wanted]:
        yield from ((take, True) for take in self.takes)

    def judge(self, heard: Heard) -> SectionReport:
        figures = tuple(tuning_figures(heard, self.takes, self._name, "generated"))
        in_tune = heard.column(self.takes, "in_tune")
        rows: list[tuple[Cell, ...]] = []
        for label, found in statistics.by_label([octave_name(take.pitch) for take in self.takes], OCTAVES):
            rows.append((label, len(found), 100 * float(in_tune[found].mean())))
        table = Table("By octave", ("octave", "notes", "in tune: generated %"), tuple(rows))
        method = (
            f"{len(self.takes)} notes at points drawn uniformly from the disc, at least {self.distance:.3f} "
            "from every instrument's point (twice the noise on the points in training); pitch and velocity "
            "uniform over the bundle's ranges, hold log-uniform."
        )
        return SectionReport(self.name, "Between the instruments", method, figures, (table,))

    def _name(self, figure: str) -> str:
        return f"{self.name}.{figure}"


def points_between(
    points: NDArray[np.float64], distance: float, n: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """`n` points [n, 2] uniform in the unit disc, each at least `distance` from all of `points` [m, 2].

    Raises:
        TrainingError: there is hardly any such place.
    """
    drawn = rng.uniform(-1.0, 1.0, (MAX_DRAWS, 2))
    drawn = drawn[np.linalg.norm(drawn, axis=1) <= 1.0]
    free = np.ones(len(drawn), dtype=bool)
    for point in points:
        free &= np.linalg.norm(drawn - point, axis=1) >= distance
    if free.sum() < n:
        raise TrainingError(
            f"the map has no room {distance:.3f} away from its {len(points)} points; is it one point in many "
            "copies?"
        )
    return drawn[free][:n]
