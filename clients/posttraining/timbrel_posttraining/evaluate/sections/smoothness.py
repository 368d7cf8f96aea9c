"""Smoothness: does the sound change little by little along a path over the map?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import statistics
from timbrel_posttraining.evaluate.figure import Figure, SectionReport
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import HIGHEST, LOWEST, Material
from timbrel_posttraining.evaluate.measure.smoothness import largest_step_share, path_of_log_mels
from timbrel_posttraining.evaluate.sections.section import Wanted
from timbrel_posttraining.evaluate.take import Take

N_POINTS = 9
N_SEEDS = 4
NOTES_PER_PATH = 20
"""Of `count`: 2,000 notes pay for 100 paths."""
VELOCITY = 100
SECONDS = 0.7
LIMIT = 0.40


class Smoothness:
    """Straight paths between two random points of the disc, each at one pitch."""

    name = "smoothness"

    def __init__(self, material: Material) -> None:
        rng = material.rng(self.name)
        n_paths = max(2, material.count // NOTES_PER_PATH)
        self.paths = [self._path(material, rng) for _ in range(n_paths)]
        """[paths][points][seeds]"""

    def wanted(self) -> Iterator[Wanted]:
        yield from ((take, False) for path in self.paths for point in path for take in point)

    def judge(self, heard: Heard) -> SectionReport:
        shares = np.array([path_share(heard, path) for path in self.paths])
        figures = (
            Figure(
                "smoothness.largest_step",
                "largest step of a path's whole change",
                statistics.mean(shares),
                "%",
            ),
            Figure(
                "smoothness.paths_within",
                f"paths whose largest step is at most {100 * LIMIT:g} %",
                statistics.share(np.where(np.isnan(shares), np.nan, shares <= LIMIT)),
                "%",
            ),
        )
        method = (
            f"{len(self.paths)} straight paths of {N_POINTS} points between two points drawn uniformly from "
            f"the disc, each at one random pitch, velocity {VELOCITY}, held for {SECONDS:g} s. The log-mel "
            f"spectrograms of {N_SEEDS} seeds are averaged at every point; steps are distances between "
            f"neighbouring points. An even path would have {100 / (N_POINTS - 1):g} %."
        )
        return SectionReport(self.name, "Smoothness", method, figures)

    @staticmethod
    def _path(material: Material, rng: np.random.Generator) -> list[list[Take]]:
        ranges = material.bundle.manifest.ranges
        pitch = int(rng.integers(max(LOWEST, ranges.pitch_min), min(HIGHEST, ranges.pitch_max) + 1))
        velocity = min(VELOCITY, ranges.velocity_max)
        points = path_points(rng)
        return [
            [material.asked(point, pitch, velocity, SECONDS, seed) for seed in range(N_SEEDS)]
            for point in points
        ]


def path_points(rng: np.random.Generator) -> NDArray[np.float64]:
    """Points [N_POINTS, 2], evenly spaced between two that are uniform in the unit disc."""
    angle, radius = rng.uniform(0, 2 * np.pi, 2), np.sqrt(rng.uniform(0, 1, 2))
    ends = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    along = np.linspace(0.0, 1.0, N_POINTS)[:, None]
    return np.asarray((1 - along) * ends[0] + along * ends[1], dtype=np.float64)


def path_share(heard: Heard, path: Sequence[Sequence[Take]]) -> float:
    """The largest step of a path as a share of its whole change."""
    return largest_step_share(path_of_log_mels([[heard.mel(take) for take in point] for point in path]))
