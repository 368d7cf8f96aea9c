"""Response to how a note is played: its level and brightness over velocity, its release after the hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from timbrel_posttraining.evaluate import estimates
from timbrel_posttraining.evaluate.evaluation_set import JUDGED, EvaluationSet, Kind, Take, pick_some
from timbrel_posttraining.evaluate.report import Figure, SectionReport
from timbrel_posttraining.evaluate.sections.section import Section
from timbrel_posttraining.evaluate.takes import Measurements
from timbrel_training.notes.split import Split

VELOCITIES = (20, 50, 80, 110)
VELOCITY_REACH = 15
"""A note stands for the velocity asked where it is at most this far from it."""
FEWEST = 3
"""Brightness is ranked over at least so many notes of a cell."""

MADE = (Kind.RECONSTRUCTION, Kind.GENERATED)

VelocityLayers = dict[int, int]
"""One cell's notes of the library, by the velocity of VELOCITIES that each stands for."""

HOLDS = (0.2, 1.0, 3.0)
"""Seconds that notes are held for."""
HOLD_REACH = 1.25
"""A note stands for a hold where its own is at most this factor longer or shorter."""
ALLOWED_SHARE, ALLOWED_SECONDS = 0.10, 0.05
"""A release may be off by this share of its length or by these seconds, whichever is more."""


class Velocity(Section):
    """Judges cells (instrument and pitch of one source) that the library has at most of the velocities."""

    name = "velocity"

    def __init__(self, notes: EvaluationSet) -> None:
        self.cells = choose_layers(notes, max(1, notes.count // 8))
        self.takes = {
            kind: [{velocity: notes.take(kind, row) for velocity, row in cell.items()} for cell in self.cells]
            for kind in JUDGED
        }
        self.beside = {
            "draw": [_known(notes.another_draw(row) for row in cell.values()) for cell in self.cells],
            "sampler": [_known(notes.sampler(row) for row in cell.values()) for cell in self.cells],
        }
        """Real notes to read the brightness by, each with a velocity of its own."""
        judged = [take for cells in self.takes.values() for cell in cells for take in cell.values()]
        self.requested = judged + [take for cells in self.beside.values() for cell in cells for take in cell]

    def judge(self, measured: Measurements) -> SectionReport:
        figures = (
            *self._level(measured, Kind.GENERATED),
            *self._level(measured, Kind.RECONSTRUCTION),
            *self._brightness(measured),
        )
        method = (
            f"{len(self.cells)} cells (instrument and pitch of one source) that the dataset has near at "
            f"least {FEWEST} of the velocities {', '.join(map(str, VELOCITIES))} (at most {VELOCITY_REACH} "
            "away; nothing is rendered anew). Each note is asked of the bundle with its own velocity and "
            "hold. The level error is the largest of the four velocities' medians. The slope of brightness "
            "in octaves over velocity is fitted to each cell; cells where the source's is steep count most. "
            "Beside it that of other source notes of the cells (draw) and of trained notes of the next "
            "pitches (sampler)."
        )
        return SectionReport(self.name, "Response to velocity", method, figures)

    def _level(self, measured: Measurements, kind: Kind) -> Iterator[Figure]:
        errors, asked, cells = self._level_errors(measured, kind)
        suffix = "" if kind is Kind.GENERATED else f".{kind}"
        worst = estimates.joint(worst_median, np.abs(errors), asked, groups=cells)
        yield Figure(f"velocity.level_error{suffix}", f"level error, worst velocity: {kind}", worst, "dB")
        for velocity in VELOCITIES:
            at = errors[asked == velocity]
            label = f"level near velocity {velocity}, {kind} less source"
            yield Figure(f"velocity.level_bias.{velocity}.{kind}", label, estimates.median(at), "dB")
            label = f"level error near velocity {velocity}: {kind}"
            error = estimates.median(np.abs(at))
            yield Figure(f"velocity.level_error.{velocity}.{kind}", label, error, "dB")

    def _level_errors(
        self, measured: Measurements, kind: Kind
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Measures per note the level less that of the source, in dB, the velocity that it stands for and the
        number of its cell."""
        rows = [
            (measured.features(take).level_db - measured.features(source[velocity]).level_db, velocity, cell)
            for cell, (source, takes) in enumerate(
                zip(self.takes[Kind.SOURCE], self.takes[kind], strict=True)
            )
            for velocity, take in takes.items()
        ]
        errors, asked, cells = np.array(rows, dtype=np.float64).reshape(-1, 3).T
        return errors, asked, cells

    def _brightness(self, measured: Measurements) -> Iterator[Figure]:
        source = [brightness_slope(measured, cell.values()) for cell in self.takes[Kind.SOURCE]]
        made = {
            **self.beside,
            **{str(kind): [[*cell.values()] for cell in self.takes[kind]] for kind in MADE},
        }
        for who, cells in made.items():
            slopes = [brightness_slope(measured, cell) for cell in cells]
            label = f"brightness over velocity, its slope as a share of the source's: {who}"
            share = estimates.joint(share_of_slopes, source, slopes)
            yield Figure(f"velocity.brightness.{who}", label, share, "%")
            if who in MADE:
                error = estimates.joint(lambda a, b: abs(share_of_slopes(a, b) - 1.0), source, slopes)
                label = f"brightness over velocity, its slope's error: {who}"
                yield Figure(f"velocity.brightness_error.{who}", label, error, "%")


class Release(Section):
    """Judges how long notes sound that are held for about 0.2, 1 and 3 seconds."""

    name = "release"

    def __init__(self, notes: EvaluationSet) -> None:
        rows = [choose_rows(notes, hold, max(1, notes.count // 6)) for hold in HOLDS]
        self.holds = np.repeat(HOLDS, [len(found) for found in rows])
        self.takes = notes.takes(chain.from_iterable(rows))
        self.requested = list(chain.from_iterable(self.takes.values()))

    def judge(self, measured: Measurements) -> SectionReport:
        lengths = {kind: measured.column(takes, "release_seconds") for kind, takes in self.takes.items()}
        figures = (
            *self._errors(lengths, Kind.GENERATED),
            *self._errors(lengths, Kind.RECONSTRUCTION),
            *self._by_hold(lengths),
        )
        method = (
            f"{len(self.holds)} notes of the dataset held for about "
            f"{', '.join(f'{hold:g}' for hold in HOLDS)} s (within a factor of {HOLD_REACH:g}; nothing is "
            "rendered anew), asked of the bundle with their own hold: how long they sound after the key is "
            f"let go. Allowed is an error of {100 * ALLOWED_SHARE:g} % or {1000 * ALLOWED_SECONDS:g} ms, "
            "whichever is more."
        )
        return SectionReport(self.name, "Length of the release", method, figures)

    def _errors(self, lengths: dict[Kind, NDArray[np.float64]], kind: Kind) -> Iterator[Figure]:
        source, made = lengths[Kind.SOURCE], lengths[kind]
        suffix = "" if kind is Kind.GENERATED else f".{kind}"
        ratio = estimates.median(error_of_allowed(source, made))
        label = f"error of the release as a share of what is allowed: {kind}"
        yield Figure(f"release.error_of_allowed{suffix}", label, ratio, "%")
        error = estimates.median(1000 * np.abs(made - source))
        yield Figure(f"release.error{suffix}", f"error of the release: {kind}", error, "ms")

    def _by_hold(self, lengths: dict[Kind, NDArray[np.float64]]) -> Iterator[Figure]:
        for hold in HOLDS:
            at = self.holds == hold
            for kind, seconds in lengths.items():
                label = f"release after about {hold:g} s: {kind}"
                yield Figure(f"release.{hold:g}s.{kind}", label, estimates.median(1000 * seconds[at]), "ms")
            error = np.abs(lengths[Kind.GENERATED] - lengths[Kind.SOURCE])[at]
            label = f"error of the release after about {hold:g} s: generated"
            yield Figure(f"release.{hold:g}s.error", label, estimates.median(1000 * error), "ms")


def choose_layers(notes: EvaluationSet, n: int) -> list[VelocityLayers]:
    """Picks at most `n` cells of training notes at random, each with notes for at least FEWEST velocities."""
    rows = notes.rows_of(Split.TRAIN)
    keys = notes.voice_of[rows] * 128 + notes.library.pitch[rows]
    groups = estimates.rows_by_group(keys)
    cells = [cell for group in groups if len(cell := layers_of(notes, rows[group])) >= FEWEST]
    chosen = pick_some(np.arange(len(cells)), n, notes.rng("velocity"))
    return [cells[int(number)] for number in chosen]


def layers_of(notes: EvaluationSet, rows: NDArray[np.int64]) -> VelocityLayers:
    """Finds for each of VELOCITIES the nearest note of these, where one is within reach; no note twice."""
    layers: VelocityLayers = {}
    if not len(rows):
        return layers
    played = notes.library.velocity[rows].astype(int)
    for velocity in VELOCITIES:
        away = np.abs(played - velocity)
        nearest = int(np.argmin(away))
        if away[nearest] <= VELOCITY_REACH and int(rows[nearest]) not in layers.values():
            layers[velocity] = int(rows[nearest])
    return layers


def brightness_slope(measured: Measurements, cell: Iterable[Take]) -> float:
    """Fits a line to the brightness of a cell's notes over velocity, in octaves a step; NaN of one note."""
    takes = list(cell)
    velocity = np.array([float(take.velocity) for take in takes])
    octaves = np.log2([measured.features(take).brightness for take in takes])
    kept = ~np.isnan(octaves)
    if len(set(velocity[kept])) > 1:
        return float(np.polyfit(velocity[kept], octaves[kept], 1)[0])
    return float("nan")


def share_of_slopes(source: NDArray[np.float64], made: NDArray[np.float64]) -> float:
    """Fits by how much slopes [cells] are the source's: the cells that hardly brighten hardly count."""
    return float(source @ made / (source @ source)) if source.any() else float("nan")


def _known(takes: Iterable[Take | None]) -> list[Take]:
    return list(dict.fromkeys(take for take in takes if take is not None))


def worst_median(errors: NDArray[np.float64], asked: NDArray[np.float64]) -> float:
    """The largest of the medians of the errors, velocity by velocity."""
    return max(float(np.median(errors[asked == velocity])) for velocity in np.unique(asked))


def choose_rows(notes: EvaluationSet, hold: float, n: int) -> NDArray[np.int64]:
    """Picks at most `n` training notes at random that are held for about this long."""
    rows = notes.rows_of(Split.TRAIN)
    near = np.abs(np.log(notes.library.held_seconds[rows] / hold)) <= np.log(HOLD_REACH)
    return pick_some(rows[near], n, notes.rng(f"release {hold:g}"))


def error_of_allowed(source: NDArray[np.float64], made: NDArray[np.float64]) -> NDArray[np.float64]:
    """Errors of releases in seconds, as shares of what is allowed: 1 is the limit."""
    allowed = np.maximum(ALLOWED_SHARE * source, ALLOWED_SECONDS)
    return np.asarray(np.abs(made - source) / allowed, dtype=np.float64)
