"""The bundle as a whole: all its notes beside real ones, variety of seeds, smooth paths, and its size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import estimates
from timbrel_posttraining.evaluate.evaluation_set import HIGHEST, LOWEST, EvaluationSet, Kind, Take
from timbrel_posttraining.evaluate.measure import note_sets
from timbrel_posttraining.evaluate.report import Figure, SectionReport
from timbrel_posttraining.evaluate.sections.section import Section
from timbrel_posttraining.evaluate.takes import Measurements
from timbrel_training.notes.split import Split

N_RESAMPLES = 200
FEWEST = 4
"""A floor needs so many notes, to halve them."""
MAX_VELOCITY_STEP = 8
MAX_HOLD_RATIO = 1.2
"""Two notes differ by at most so much where they count as draws of one cell."""
MEGABYTE = 1e6

N_POINTS = 9
"""Points of a path."""
N_SEEDS = 4
"""Notes at each point, whose spectrograms are averaged."""
NOTES_PER_PATH = 20
"""A path for so many notes of `count`: 2,000 notes pay for 100 paths."""
VELOCITY = 100
SECONDS = 0.7
SMOOTH_STEP = 0.40
"""A path is smooth where no step is more than this share of its whole change."""


class Frechet(Section):
    """Compares all notes of held-out cells, as each kind of take has them, with the source's."""

    name = "frechet"

    def __init__(self, notes: EvaluationSet) -> None:
        rows = [int(row) for row in notes.pick(Split.HELD_OUT_CELL, notes.count)]
        trained = [int(row) for row in notes.pick(Split.TRAIN, len(rows))]
        self.reference: list[Take] = [notes.source(row) for row in rows]
        self.others: dict[str, list[Take]] = {
            "generated": [notes.generated(row) for row in rows],
            "reconstruction": [notes.take(Kind.RECONSTRUCTION, row) for row in rows],
            "trained": [notes.source(row) for row in trained],
        }

    def requested(self) -> Iterable[Take]:
        return chain(self.reference, *self.others.values())

    def judge(self, measured: Measurements) -> SectionReport:
        reference = measured.statistics(self.reference)
        labels = {
            "generated": f"{Kind.GENERATED} to held-out source notes",
            "reconstruction": f"{Kind.RECONSTRUCTION} to held-out source notes",
            "trained": "source notes of trained cells, as many, to those of held-out cells",
        }
        figures = [
            Figure(
                f"frechet.{name}", labels[name], distance_of(measured.statistics(takes), reference), "dB^2"
            )
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

    def requested(self) -> Iterable[Take]:
        return chain.from_iterable((*self.sources, *self.generated))

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


class Smoothness(Section):
    """Judges the steps along straight paths between two random points of the disc, each at one pitch."""

    name = "smoothness"
    in_full = False

    def __init__(self, notes: EvaluationSet) -> None:
        rng = notes.rng(self.name)
        n_paths = max(2, notes.count // NOTES_PER_PATH)
        self.paths = [self._path(notes, rng) for _ in range(n_paths)]
        """The takes, [paths][points][seeds]."""

    def requested(self) -> Iterable[Take]:
        return (take for path in self.paths for point in path for take in point)

    def judge(self, measured: Measurements) -> SectionReport:
        shares = np.array([path_share(measured, path) for path in self.paths])
        mean = estimates.mean(shares)
        within = estimates.share(np.where(np.isnan(shares), np.nan, shares <= SMOOTH_STEP))
        label = f"paths whose largest step is at most {100 * SMOOTH_STEP:g} %"
        figures = (
            Figure("smoothness.largest_step", "largest step of a path's whole change", mean, "%"),
            Figure("smoothness.paths_within", label, within, "%"),
        )
        method = (
            f"{len(self.paths)} straight paths of {N_POINTS} points between two points drawn uniformly from "
            f"the disc, each at one random pitch, velocity {VELOCITY}, held for {SECONDS:g} s. The log-mel "
            f"spectrograms of {N_SEEDS} seeds are averaged at every point; steps are distances between "
            f"neighbouring points. An even path would have {100 / (N_POINTS - 1):g} %."
        )
        return SectionReport(self.name, "Smoothness", method, figures)

    @staticmethod
    def _path(notes: EvaluationSet, rng: np.random.Generator) -> list[list[Take]]:
        ranges = notes.bundle.manifest.ranges
        pitch = int(rng.integers(max(LOWEST, ranges.pitch_min), min(HIGHEST, ranges.pitch_max) + 1))
        velocity = min(VELOCITY, ranges.velocity_max)
        points = path_points(rng)
        return [
            [notes.asked(point, pitch, velocity, SECONDS, seed) for seed in range(N_SEEDS)]
            for point in points
        ]


class Size(Section):
    """Adds up the files that have to be downloaded or shipped."""

    name = "bundle"

    def __init__(self, notes: EvaluationSet) -> None:
        self.megabytes = sum(file.size for file in notes.bundle.manifest.files) / MEGABYTE

    def requested(self) -> Iterable[Take]:
        return ()

    def judge(self, measured: Measurements) -> SectionReport:
        size = estimates.Estimate(value=self.megabytes, low=self.megabytes, high=self.megabytes, n=1)
        figure = Figure("bundle.megabytes", "all files of the bundle", size, "MB")
        return SectionReport(self.name, "Size", "As the manifest lists them.", (figure,))


def distance_of(made: NDArray[np.float64], reference: NDArray[np.float64]) -> estimates.Estimate:
    """Estimates the distance of two sets [n, 40] of equally many notes."""
    n = min(len(made), len(reference))
    if n < FEWEST:
        return estimates.NOTHING
    rng, value = np.random.default_rng(0), note_sets.frechet_distance(made, reference)
    draws = rng.integers(0, n, (N_RESAMPLES, n))
    drawn = np.array([note_sets.frechet_distance(made[rows], reference[rows]) for rows in draws])
    low, high = np.maximum(0.0, np.percentile(drawn, (2.5, 97.5)) + value - drawn.mean())
    return estimates.Estimate(value, float(low), float(high), n)


def floor_of(reference: NDArray[np.float64]) -> estimates.Estimate:
    """Estimates the mean distance between two random halves of a set [n, 40]."""
    if len(reference) < FEWEST:
        return estimates.NOTHING
    drawn = [note_sets.frechet_floor(reference, n_splits=1, seed=seed) for seed in range(N_RESAMPLES)]
    low, high = np.percentile(drawn, (2.5, 97.5))
    return estimates.Estimate(float(np.mean(drawn)), float(low), float(high), len(reference))


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


def path_points(rng: np.random.Generator) -> NDArray[np.float64]:
    """Draws points [N_POINTS, 2], evenly spaced between two that are uniform in the unit disc."""
    angle, radius = rng.uniform(0, 2 * np.pi, 2), np.sqrt(rng.uniform(0, 1, 2))
    ends = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    along = np.linspace(0.0, 1.0, N_POINTS)[:, None]
    return np.asarray((1 - along) * ends[0] + along * ends[1], dtype=np.float64)


def path_share(measured: Measurements, path: Sequence[Sequence[Take]]) -> float:
    """Measures the largest step of a path as a share of its whole change."""
    mels = [[measured.mel(take) for take in point] for point in path]
    return note_sets.largest_step_share(note_sets.path_of_log_mels(mels))
