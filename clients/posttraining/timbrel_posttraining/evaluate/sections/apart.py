"""How far apart two instruments are: what the other log-mel distances are to be read against."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from timbrel_posttraining.evaluate import statistics
from timbrel_posttraining.evaluate.figure import Figure, SectionReport
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import Material
from timbrel_posttraining.evaluate.neighbours import most_alike
from timbrel_posttraining.evaluate.sections.section import Wanted
from timbrel_training.notes.split import Split


class Apart:
    """Source notes, each beside another instrument's note of the same pitch."""

    name = "apart"

    def __init__(self, material: Material) -> None:
        rows = material.rows_of(Split.TRAIN)
        pitch, instrument = material.library.pitch[rows], material.instrument_of[rows]
        self.pairs: list[tuple[int, int]] = []
        for row in material.pick(Split.TRAIN, max(1, material.count // 4), self.name):
            others = rows[
                (pitch == material.library.pitch[row]) & (instrument != material.instrument_of[row])
            ]
            if (other := most_alike(material, int(row), others)) is not None:
                self.pairs.append((int(row), other))
        self.takes = [tuple(material.source(row) for row in pair) for pair in self.pairs]

    def wanted(self) -> Iterator[Wanted]:
        yield from ((take, False) for pair in self.takes for take in pair)

    def judge(self, heard: Heard) -> SectionReport:
        distances = np.array([heard.distance(first, second) for first, second in self.takes])
        figure = Figure(
            "apart.log_mel", "log-mel distance of two instruments", statistics.median(distances), "dB"
        )
        method = (
            "Source notes, each beside the note of any other instrument at the same pitch that is played "
            "most like it (velocity and hold)."
        )
        return SectionReport(self.name, "Two different instruments", method, (figure,))
