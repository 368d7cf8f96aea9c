"""The release: does a note end after the key is let go as the source's does?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import statistics
from timbrel_posttraining.evaluate.figure import Figure, SectionReport
from timbrel_posttraining.evaluate.heard import Heard
from timbrel_posttraining.evaluate.material import Material, pick_some
from timbrel_posttraining.evaluate.sections.section import Wanted
from timbrel_posttraining.evaluate.take import Kind, Take
from timbrel_training.notes.split import Split

HOLDS = (0.2, 1.0, 3.0)
"""Seconds."""
REACH = 1.25
"""A note stands for a hold where its own is at most this factor longer or shorter."""
ALLOWED_SHARE, ALLOWED_SECONDS = 0.10, 0.05
"""A release may be off by this share of its length or by these seconds, whichever is more."""


class Release:
    """Notes held for about 0.2, 1 and 3 seconds, and how long they sound after that."""

    name = "release"

    def __init__(self, material: Material) -> None:
        rows = [choose_rows(material, hold, max(1, material.count // 6)) for hold in HOLDS]
        self.holds = np.repeat(HOLDS, [len(found) for found in rows])
        chosen = [int(row) for found in rows for row in found]
        self.takes: dict[Kind, list[Take]] = {
            Kind.SOURCE: [material.source(row) for row in chosen],
            Kind.RECONSTRUCTION: [material.reconstruction(row) for row in chosen],
            Kind.GENERATED: [material.generated(row) for row in chosen],
        }

    def wanted(self) -> Iterator[Wanted]:
        for takes in self.takes.values():
            yield from ((take, True) for take in takes)

    def judge(self, heard: Heard) -> SectionReport:
        lengths = {kind: heard.column(takes, "release_seconds") for kind, takes in self.takes.items()}
        figures = (
            *self._errors(lengths, Kind.GENERATED),
            *self._errors(lengths, Kind.RECONSTRUCTION),
            *self._by_hold(lengths),
        )
        method = (
            f"{len(self.holds)} notes of the library held for about "
            f"{', '.join(f'{hold:g}' for hold in HOLDS)} s (within a factor of {REACH:g}; nothing is "
            "rendered anew), asked of the bundle with their own hold: how long they sound after the key is "
            f"let go. Allowed is an error of {100 * ALLOWED_SHARE:g} % or {1000 * ALLOWED_SECONDS:g} ms, "
            "whichever is more."
        )
        return SectionReport(self.name, "Length of the release", method, figures)

    def _errors(self, lengths: dict[Kind, NDArray[np.float64]], kind: Kind) -> Iterator[Figure]:
        source, made = lengths[Kind.SOURCE], lengths[kind]
        suffix = "" if kind is Kind.GENERATED else f".{kind}"
        ratio = statistics.median(error_of_allowed(source, made))
        label = f"error of the release as a share of what is allowed: {kind}"
        yield Figure(f"release.error_of_allowed{suffix}", label, ratio, "%")
        error = statistics.median(1000 * np.abs(made - source))
        yield Figure(f"release.error{suffix}", f"error of the release: {kind}", error, "ms")

    def _by_hold(self, lengths: dict[Kind, NDArray[np.float64]]) -> Iterator[Figure]:
        for hold in HOLDS:
            at = self.holds == hold
            for kind, seconds in lengths.items():
                label = f"release after about {hold:g} s: {kind}"
                yield Figure(f"release.{hold:g}s.{kind}", label, statistics.median(1000 * seconds[at]), "ms")
            error = np.abs(lengths[Kind.GENERATED] - lengths[Kind.SOURCE])[at]
            label = f"error of the release after about {hold:g} s: generated"
            yield Figure(f"release.{hold:g}s.error", label, statistics.median(1000 * error), "ms")


def choose_rows(material: Material, hold: float, n: int) -> NDArray[np.int64]:
    """At most `n` training notes at random that are held for about this long."""
    rows = material.rows_of(Split.TRAIN)
    near = np.abs(np.log(material.library.held_seconds[rows] / hold)) <= np.log(REACH)
    return pick_some(rows[near], n, material.rng(f"release {hold:g}"))


def error_of_allowed(source: NDArray[np.float64], made: NDArray[np.float64]) -> NDArray[np.float64]:
    """Errors of releases in seconds, as shares of what is allowed: 1 is the limit."""
    allowed = np.maximum(ALLOWED_SHARE * source, ALLOWED_SECONDS)
    return np.asarray(np.abs(made - source) / allowed, dtype=np.float64)
