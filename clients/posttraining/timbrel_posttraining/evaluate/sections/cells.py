"""Notes of an instrument at its published point: in tune, and like the source?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import statistics
from timbrel_posttraining.evaluate.figure import Cell, Figure, SectionReport, Table
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import Material
from timbrel_posttraining.evaluate.octaves import OCTAVES, octave_name
from timbrel_posttraining.evaluate.sections.section import Wanted
from timbrel_posttraining.evaluate.sections.tuning import tuning_figures
from timbrel_posttraining.evaluate.take import Kind, Take
from timbrel_training.notes.split import Split

MADE = (Kind.RECONSTRUCTION, Kind.GENERATED)
EXCESS_FACTOR, EXCESS_DB = 1.25, 1.0
"""A generated note may be this much farther from the source than the reconstruction is."""


class Cells:
    """Notes of one split of the library, each as the source, its reconstruction and the bundle have it."""

    def __init__(self, material: Material, split: Split, name: str, title: str) -> None:
        self.name, self.title = name, title
        self.rows = [int(row) for row in material.pick(split, material.count)]
        self.takes = {
            Kind.SOURCE: [material.source(row) for row in self.rows],
            Kind.RECONSTRUCTION: [material.reconstruction(row) for row in self.rows],
            Kind.GENERATED: [material.generated(row) for row in self.rows],
        }
        self._octaves = [octave_name(take.pitch) for take in self.takes[Kind.SOURCE]]
        self._families = [material.family(row) for row in self.rows]
        self._family_order = list(dict.fromkeys(material.families))

    def wanted(self) -> Iterator[Wanted]:
        for takes in self.takes.values():
            yield from ((take, True) for take in takes)

    def judge(self, heard: Heard) -> SectionReport:
        distances = {kind: heard.distances(self.takes[Kind.SOURCE], self.takes[kind]) for kind in MADE}
        in_tune = {kind: heard.column(takes, "in_tune") for kind, takes in self.takes.items()}
        figures = (
            *self._losses(in_tune),
            *(f for kind, takes in self.takes.items() for f in self._tuning(heard, kind, takes)),
            *self._likeness(heard, distances),
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

    def _tuning(self, heard: Heard, kind: Kind, takes: Sequence[Take]) -> Iterator[Figure]:
        yield from tuning_figures(heard, takes, lambda figure: f"{self.name}.{figure}.{kind}", str(kind))

    def _losses(self, in_tune: dict[Kind, NDArray[np.float64]]) -> Iterator[Figure]:
        source, kept, made = (in_tune[kind] for kind in (Kind.SOURCE, Kind.RECONSTRUCTION, Kind.GENERATED))
        pairs = (
            ("lost_by_codec", "in tune: source less reconstruction", source - kept),
            ("lost_by_model", "in tune: reconstruction less generated", kept - made),
            ("lost", "in tune: source less generated", source - made),
        )
        for name, label, lost in pairs:
            yield Figure(f"{self.name}.in_tune.{name}", label, statistics.mean(lost), "%")

    def _likeness(self, heard: Heard, distances: dict[Kind, NDArray[np.float64]]) -> Iterator[Figure]:
        for kind in MADE:
            label = f"log-mel distance to the source: {kind}"
            yield Figure(f"{self.name}.log_mel.{kind}", label, statistics.median(distances[kind]), "dB")
        excess = statistics.joint(_excess, distances[Kind.RECONSTRUCTION], distances[Kind.GENERATED])
        yield Figure(
            f"{self.name}.log_mel.excess",
            f"log-mel distance: generated above {EXCESS_FACTOR} times the reconstruction's plus "
            f"{EXCESS_DB:g} dB",
            excess,
            "dB",
        )
        for kind in MADE:
            yield from self._differences(heard, kind)

    def _differences(self, heard: Heard, kind: Kind) -> Iterator[Figure]:
        source, made = self.takes[Kind.SOURCE], self.takes[kind]

        def less(field: str) -> NDArray[np.float64]:
            return heard.column(made, field) - heard.column(source, field)

        attack = statistics.median(1000 * np.abs(less("attack_seconds")))
        yield Figure(f"{self.name}.attack_error.{kind}", f"attack time, error: {kind}", attack, "ms")
        noise = statistics.median(less("harmonic_to_noise_db"))
        label = f"harmonic-to-noise ratio, {kind} less source"
        yield Figure(f"{self.name}.harmonic_to_noise.{kind}", label, noise, "dB")
        ratio = heard.column(made, "seconds") / heard.column(source, "seconds")
        yield Figure(
            f"{self.name}.length.{kind}",
            f"length as a share of the source's: {kind}",
            statistics.median(ratio),
            "%",
        )

    def _breakdown(
        self,
        by: str,
        labels: Sequence[str],
        order: Sequence[str],
        in_tune: dict[Kind, NDArray[np.float64]],
        distances: dict[Kind, NDArray[np.float64]],
    ) -> Table:
        rows: list[tuple[Cell, ...]] = []
        for label, found in statistics.by_label(labels, order):
            shares = [100 * float(in_tune[kind][found].mean()) for kind in Kind]
            medians = [float(np.median(distances[kind][found])) for kind in MADE]
            rows.append((label, len(found), *shares, *medians))
        columns = (
            by,
            "notes",
            *(f"in tune: {kind} %" for kind in Kind),
            *(f"log-mel: {kind} dB" for kind in MADE),
        )
        return Table(f"By {by}", columns, tuple(rows))


def _excess(reconstruction: NDArray[np.float64], generated: NDArray[np.float64]) -> float:
    return float(np.median(generated) - (EXCESS_FACTOR * np.median(reconstruction) + EXCESS_DB))
