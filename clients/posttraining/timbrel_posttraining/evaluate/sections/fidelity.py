"""Notes at the published points and between them: are they in tune, and are they like the source?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from timbrel_bundle.manifest import written_ranges
from timbrel_posttraining.evaluate import estimates
from timbrel_posttraining.evaluate.evaluation_set import HIGHEST, JUDGED, LOWEST, EvaluationSet, Kind, Take
from timbrel_posttraining.evaluate.report import CellValue, Figure, SectionReport, Table
from timbrel_posttraining.evaluate.sections.section import Section
from timbrel_posttraining.evaluate.takes import Measurements
from timbrel_training.errors import TrainingError
from timbrel_training.notes.split import Split

JUMP_CENTS = 50.0
"""A fundamental that steps this far from one frame to the next has a moment at a wrong pitch."""

SHARES = (
    ("in_tune", "in tune within 50 cents by either tracker"),
    ("swift_in_tune", "in tune within 50 cents by swift-f0 alone (pGESAM's own demo notes: 75 %)"),
    ("within_15", "in tune within 15 cents"),
    ("octave_error", "an octave or more off"),
    ("truncated", "cut at the bundle's cap"),
)

MADE = (Kind.RECONSTRUCTION, Kind.GENERATED)
EXCESS_FACTOR, EXCESS_DB = 1.25, 1.0
"""A generated note may be this much farther from the source than the reconstruction is."""

NOISE_FACTOR = 2.0
"""Points nearer to an instrument than this many times the training noise are the instrument's own."""
MAX_DRAWS = 200_000
"""Points drawn to find enough that lie between."""


class Fidelity(Section):
    """Judges notes of one split of the library as the source, its reconstruction and the bundle have them."""

    split: ClassVar[Split]
    title: ClassVar[str]

    def __init__(self, notes: EvaluationSet) -> None:
        self.rows = [int(row) for row in notes.pick(self.split, notes.count)]
        self.takes = notes.takes(self.rows)
        self._octaves = [octave_name(take.pitch) for take in self.takes[Kind.SOURCE]]
        self._families = [notes.family(row) for row in self.rows]
        self._family_order = list(dict.fromkeys(notes.families))
        self.requested = list(chain.from_iterable(self.takes.values()))

    def judge(self, measured: Measurements) -> SectionReport:
        distances = {kind: measured.distances(self.takes[Kind.SOURCE], self.takes[kind]) for kind in MADE}
        in_tune = {kind: measured.column(takes, "in_tune") for kind, takes in self.takes.items()}
        figures = (
            *self._losses(in_tune),
            *(
                figure
                for kind, takes in self.takes.items()
                for figure in tuning_figures(measured, takes, self.name, kind, f".{kind}")
            ),
            *self._likeness(measured, distances),
        )
        tables = (
            self._breakdown("octave", self._octaves, OCTAVES, in_tune, distances),
            self._breakdown("family", self._families, self._family_order, in_tune, distances),
        )
        method = (
            f"{len(self.rows)} notes drawn at random. Each is played by the source, sent through the codec "
            "and back, and asked of the bundle at its instrument's published point with the same pitch, "
            "velocity and hold, one seed each."
        )
        return SectionReport(self.name, self.title, method, figures, tables)

    def _losses(self, in_tune: dict[Kind, NDArray[np.float64]]) -> Iterator[Figure]:
        source, kept, made = (in_tune[kind] for kind in (Kind.SOURCE, Kind.RECONSTRUCTION, Kind.GENERATED))
        pairs = (
            ("lost_by_codec", "in tune: source less reconstruction", source - kept),
            ("lost_by_model", "in tune: reconstruction less generated", kept - made),
            ("lost", "in tune: source less generated", source - made),
        )
        for name, label, lost in pairs:
            yield Figure(f"{self.name}.in_tune.{name}", label, estimates.mean(lost), "%")

    def _likeness(
        self, measured: Measurements, distances: dict[Kind, NDArray[np.float64]]
    ) -> Iterator[Figure]:
        for kind in MADE:
            label = f"log-mel distance to the source: {kind}"
            yield Figure(f"{self.name}.log_mel.{kind}", label, estimates.median(distances[kind]), "dB")
        excess = estimates.joint(_excess, distances[Kind.RECONSTRUCTION], distances[Kind.GENERATED])
        label = f"generated above {EXCESS_FACTOR} times the reconstruction's plus {EXCESS_DB:g} dB"
        yield Figure(f"{self.name}.log_mel.excess", f"log-mel distance: {label}", excess, "dB")
        for kind in MADE:
            yield from self._differences(measured, kind)

    def _differences(self, measured: Measurements, kind: Kind) -> Iterator[Figure]:
        source, made = self.takes[Kind.SOURCE], self.takes[kind]

        def less(field: str) -> NDArray[np.float64]:
            return measured.column(made, field) - measured.column(source, field)

        attack = estimates.median(1000 * np.abs(less("attack_seconds")))
        yield Figure(f"{self.name}.attack_error.{kind}", f"attack time, error: {kind}", attack, "ms")
        noise = estimates.median(less("harmonic_to_noise_db"))
        label = f"harmonic-to-noise ratio, {kind} less source"
        yield Figure(f"{self.name}.harmonic_to_noise.{kind}", label, noise, "dB")
        ratio = estimates.median(measured.column(made, "seconds") / measured.column(source, "seconds"))
        yield Figure(f"{self.name}.length.{kind}", f"length as a share of the source's: {kind}", ratio, "%")

    def _breakdown(
        self,
        by: str,
        labels: Sequence[str],
        order: Sequence[str],
        in_tune: dict[Kind, NDArray[np.float64]],
        distances: dict[Kind, NDArray[np.float64]],
    ) -> Table:
        rows: list[tuple[CellValue, ...]] = []
        for label, found in estimates.by_label(labels, order):
            shares = [100 * float(in_tune[kind][found].mean()) for kind in JUDGED]
            medians = [float(np.median(distances[kind][found])) for kind in MADE]
            rows.append((label, len(found), *shares, *medians))
        columns = (
            by,
            "notes",
            *(f"in tune: {kind} %" for kind in JUDGED),
            *(f"log-mel: {kind} dB" for kind in MADE),
        )
        return Table(f"By {by}", columns, tuple(rows))


class TrainedCells(Fidelity):
    """The cells that the bundle learnt from."""

    name, title, split = "trained", "Trained cells", Split.TRAIN


class HeldOutCells(Fidelity):
    """The cells that the bundle was never shown, of instruments that it knows."""

    name, title, split = "held_out", "Held-out cells", Split.HELD_OUT_CELL


class Between(Section):
    """Judges notes at points uniform in the disc, away from every instrument's, over the bundle's pitches."""

    name = "between"

    def __init__(self, notes: EvaluationSet) -> None:
        self.distance = NOISE_FACTOR * notes.noise
        rng = notes.rng(self.name)
        ranges = written_ranges(notes.bundle.manifest)
        pitches = np.arange(max(LOWEST, ranges.pitch_min), min(HIGHEST, ranges.pitch_max) + 1)
        points = points_between(notes.points, self.distance, notes.count, rng)
        shortest, longest = np.log(ranges.seconds_min), np.log(ranges.seconds_max)
        self.requested = self.takes = [
            notes.asked(
                point,
                int(rng.choice(pitches)),
                int(rng.integers(ranges.velocity_min, ranges.velocity_max + 1)),
                float(np.exp(rng.uniform(shortest, longest))),
            )
            for point in points
        ]

    def judge(self, measured: Measurements) -> SectionReport:
        figures = tuple(tuning_figures(measured, self.takes, self.name, "generated"))
        in_tune = measured.column(self.takes, "in_tune")
        rows: list[tuple[CellValue, ...]] = []
        for label, found in estimates.by_label([octave_name(take.pitch) for take in self.takes], OCTAVES):
            rows.append((label, len(found), 100 * float(in_tune[found].mean())))
        table = Table("By octave", ("octave", "notes", "in tune: generated %"), tuple(rows))
        method = (
            f"{len(self.takes)} notes at points drawn uniformly from the disc, at least {self.distance:.3f} "
            "from every instrument's point (twice the noise on the points in training); pitch and velocity "
            "uniform over the bundle's ranges, hold log-uniform."
        )
        return SectionReport(self.name, "Between the instruments", method, figures, (table,))


def tuning_figures(
    measured: Measurements, takes: Sequence[Take], section: str, who: str, suffix: str = ""
) -> Iterator[Figure]:
    """Yields figures on how well the takes of `who` are in tune: shares, and the spread of the fundamental
    within a note. Their names begin with the section and end in `suffix`."""
    for field, label in SHARES:
        estimate = estimates.share(measured.column(takes, field))
        yield Figure(f"{section}.{field}{suffix}", f"{label}: {who}", estimate, "%")
    spread = estimates.median(measured.column(takes, "spread_cents"))
    label = f"spread of the fundamental within a note: {who}"
    yield Figure(f"{section}.spread{suffix}", label, spread, "cents")
    jumped = estimates.share(measured.column(takes, "jump_cents") > JUMP_CENTS)
    label = f"fundamental jumps by more than {JUMP_CENTS:g} cents: {who}"
    yield Figure(f"{section}.jumps{suffix}", label, jumped, "%")


def points_between(
    points: NDArray[np.float64], distance: float, n: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draws `n` points [n, 2] uniform in the unit disc, each at least `distance` from all of `points` [m, 2].
    Raises TrainingError: there is hardly any such place."""
    drawn = rng.uniform(-1.0, 1.0, (MAX_DRAWS, 2))
    drawn = drawn[np.linalg.norm(drawn, axis=1) <= 1.0]
    free = np.ones(len(drawn), dtype=bool)
    for point in points:
        free &= np.linalg.norm(drawn - point, axis=1) >= distance
    if free.sum() < n:
        raise TrainingError(
            f"the map has no room for {n} notes {distance:.3f} away from its {len(points)} points, "
            f"{free.sum()} are the most; choose a smaller --count"
        )
    return drawn[free][:n]


def octave_name(pitch: int) -> str:
    """Names the octave of a MIDI note number, C4 = 60: "C4 to B4"."""
    number = pitch // 12 - 1
    return f"C{number} to B{number}"


OCTAVES = tuple(dict.fromkeys(octave_name(pitch) for pitch in range(128)))
"""All octaves, from the lowest."""


def _excess(reconstruction: NDArray[np.float64], generated: NDArray[np.float64]) -> float:
    return float(np.median(generated) - (EXCESS_FACTOR * np.median(reconstruction) + EXCESS_DB))
