"""What is heard, and where on the map it belongs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from timbrel_bundle.bundle import Bundle
from timbrel_posttraining.evaluate.take import Kind, Take
from timbrel_training.errors import TrainingError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.posttraining_config import TimbreFinetuneConfig
from timbrel_training.timbre.map import MapPoint, TimbreMap

NOBODY = -1
"""The instrument of a note from between instruments."""
FIRST_DRAW = 1_000_000
"""Draws are numbered from here on. Evaluation numbers its own from 0, and a take's seed is made of its draw:
no note is written here with a seed that evaluation writes one with."""
LATEST_START = 0.06
"""Seconds of a note that a late recording misses at most."""
SHORTEST_SHARE = 0.3
"""Of a note, what a recording that ends early holds at least."""
TRIES = 10_000
"""Points drawn to find one that is far enough from all instruments."""


@dataclass(frozen=True)
class Lesson:
    """A take, how it is heard, and what is to be said of it."""

    take: Take
    instrument: int  # number on the map, or NOBODY
    target: tuple[float, float]  # point of the map
    hint: float | None = None  # pitch that the codec is told, a MIDI note number
    start: float = 0.0  # seconds left out before what is heard
    share: float = 1.0  # of the rest, what is heard


class LessonPlan:
    """Draws the lessons: a function of the bundle's map and ranges, the library and the config alone.

    Source notes are of training cells, and the bundle is asked for pitches of training cells too: nothing of
    a cell or of an instrument that is held out is ever heard.

    Raises:
        TrainingError: the library has no training notes of an instrument on the bundle's map.
    """

    def __init__(self, bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig) -> None:
        self.config = config
        self.library = library
        self.ranges = bundle.manifest.ranges
        self.chart = published_map(bundle)
        self._rng = np.random.default_rng(config.loop.seed)
        self._rows = [self._rows_of(point.instrument) for point in self.chart.points]
        for point, rows in zip(self.chart.points, self._rows, strict=True):
            if not len(rows):
                raise TrainingError(
                    f"{library.path}: no training notes of {point.instrument}, which is on the map of "
                    f"{bundle.path}; name the library that the bundle learnt from"
                )
        self._draws = iter(range(FIRST_DRAW, FIRST_DRAW + 10**9))

    def draw(self) -> list[Lesson]:
        """All lessons, in an order of their own: source notes, the bundle's notes, those in between."""
        config = self.config
        lessons = [
            *self._sources(config.source_notes),
            *self._own(config.own_notes),
            *self._between(config.between_notes),
        ]
        return [self._varied(lesson) for lesson in lessons]

    def _sources(self, count: int) -> Iterator[Lesson]:
        library = self.library
        for instrument, n_notes in enumerate(self._shares(count)):
            for row in np.sort(self._rng.permutation(self._rows[instrument])[:n_notes]):
                held, pitch = float(library.held_seconds[row]), int(library.pitch[row])
                take = Take(Kind.SOURCE, pitch, int(library.velocity[row]), held, row=int(row))
                yield Lesson(take, instrument, self._point(instrument))

    def _own(self, count: int) -> Iterator[Lesson]:
        for instrument, n_notes in enumerate(self._shares(count)):
            cells = np.unique(self.library.pitch[self._rows[instrument]])
            for pitch in self._rng.choice(cells, n_notes):
                point = self._point(instrument)
                yield Lesson(self._asked(point, int(pitch)), instrument, point)

    def _between(self, count: int) -> Iterator[Lesson]:
        for _ in range(count):
            point = self._open_point()
            pitch = int(self._rng.integers(self.ranges.pitch_min, self.ranges.pitch_max + 1))
            yield Lesson(self._asked(point, pitch), NOBODY, point)

    def _asked(self, point: tuple[float, float], pitch: int) -> Take:
        """A note asked of the bundle, as soft or loud and as short or long as it can be."""
        ranges = self.ranges
        velocity = int(self._rng.integers(ranges.velocity_min, ranges.velocity_max + 1))
        seconds = np.exp(self._rng.uniform(np.log(ranges.seconds_min), np.log(ranges.seconds_max)))
        held = min(max(round(float(seconds), 4), ranges.seconds_min), ranges.seconds_max)
        return Take(Kind.GENERATED, pitch, velocity, held, timbre=point, draw=next(self._draws))

    def _varied(self, lesson: Lesson) -> Lesson:
        config, rng = self.config, self._rng
        way, start, share = rng.random(), rng.uniform(0.0, LATEST_START), rng.uniform(SHORTEST_SHARE, 1.0)
        hint = float(np.clip(lesson.take.pitch + config.hint_semitones * rng.standard_normal(), 1.0, 127.0))
        if way < config.hinted_share:
            return Lesson(lesson.take, lesson.instrument, lesson.target, hint=hint)
        if way < config.hinted_share + config.cut_share:
            return Lesson(lesson.take, lesson.instrument, lesson.target, start=start, share=share)
        return lesson

    def _open_point(self) -> tuple[float, float]:
        """A point of the disc away from all instruments."""
        distance = self.config.between_distance * self.chart.spacing
        for _ in range(TRIES):
            radius, angle = np.sqrt(self._rng.random()), self._rng.uniform(0.0, 2.0 * np.pi)
            x, y = float(radius * np.cos(angle)), float(radius * np.sin(angle))
            if np.linalg.norm(self.chart.centroids - (x, y), axis=1).min() >= distance:
                return x, y
        raise TrainingError(
            f"the map has no room {distance:.2g} away from all instruments; lower hearing.between_distance"
        )

    def _point(self, instrument: int) -> tuple[float, float]:
        point = self.chart.points[instrument]
        return point.x, point.y

    def _shares(self, count: int) -> list[int]:
        """How many of `count` notes each instrument has."""
        n = len(self.chart.points)
        return [(count * (number + 1)) // n - (count * number) // n for number in range(n)]

    def _rows_of(self, instrument: str) -> NDArray[np.int64]:
        """The notes of its training cells, within the bundle's range of pitches."""
        library = self.library
        if instrument not in library.instruments:
            return np.zeros(0, np.int64)
        own = library.instrument == library.instruments.index(instrument)
        inside = (library.pitch >= self.ranges.pitch_min) & (library.pitch <= self.ranges.pitch_max)
        trained = (library.split == int(Split.TRAIN)) & (library.length > 0)
        return np.flatnonzero(own & inside & trained).astype(np.int64)


def published_map(bundle: Bundle) -> TimbreMap:
    """The map of a bundle."""
    return TimbreMap(
        tuple(
            MapPoint(p.instrument, p.family, p.x, p.y, p.pitch_min, p.pitch_max)
            for p in bundle.timbre_map.points
        )
    )
