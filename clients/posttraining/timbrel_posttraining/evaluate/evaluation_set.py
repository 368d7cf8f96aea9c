"""The evaluation set: the notes of a library that a bundle is held against, and the takes to make of them."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.manifest import written_ranges
from timbrel_training.errors import TrainingError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split

LOWEST, HIGHEST = 36, 94
"""Pitches judged: what both pitch trackers can hear."""

NOISE_OF_SPACING = 0.25
"""Training moves a note's point by about this share of the median spacing of the map's points."""

VELOCITY_SCALE = 8.0
"""A velocity this far off counts as much as ..."""
HOLD_SCALE = 0.1
"""... a hold that is longer or shorter by this share (its natural logarithm)."""
LOOSE_HOLD_SCALE = 1.0
"""The same where notes are compared while both are held, so that the velocity decides."""


class Kind(StrEnum):
    """The origin of a take's sound."""

    SOURCE = "source"
    RECONSTRUCTION = "reconstruction"  # the source through the codec and back
    GENERATED = "generated"
    SAMPLER = "sampler"  # a source note resampled to another pitch


JUDGED = (Kind.SOURCE, Kind.RECONSTRUCTION, Kind.GENERATED)
"""The kinds that every section sets side by side."""

STRUCK, SUSTAINED, ENSEMBLE = "struck or plucked", "sustained", "ensemble and synth"
KINDS_OF_SOUND = (STRUCK, SUSTAINED, ENSEMBLE)
"""What figures are broken down by: sounds of one kind fail alike."""
STRUCK_FAMILIES = ("piano", "keyboard", "chromatic percussion", "mallet", "guitar", "bass", "keys")
ENSEMBLE_FAMILIES = ("ensemble", "synth", "vocal")
STRUCK_INSTRUMENTS = ("harp", "pizzicato", "sitar", "banjo", "shamisen", "koto", "kalimba", "dulcimer")
"""Beginnings of the names of families, and words in those of instruments, in small letters."""


@dataclass(frozen=True)
class Take:
    """One sounding of a note by the source, the codec or the bundle. Equal takes are one sound."""

    kind: Kind
    pitch: int  # MIDI note number
    velocity: int  # 1..127
    seconds: float  # how long the key is held
    row: int = -1  # note of the library; -1 for generated takes
    timbre: tuple[float, float] = (0.0, 0.0)  # point of the map, of generated takes
    draw: int = 0  # tells apart generated takes that differ in their seed alone

    @cached_property
    def id(self) -> str:
        """Names the take in file names: made of what it is, never of the order of work."""
        if self.kind is Kind.SAMPLER:
            return f"{self.kind}-{self.row:06d}-{self.pitch}"
        if self.kind is not Kind.GENERATED:
            return f"{self.kind}-{self.row:06d}"
        x, y = self.timbre
        text = f"{x:.6f} {y:.6f} {self.pitch} {self.velocity} {self.seconds:.4f} {self.draw}"
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"

    @property
    def seed(self) -> int:
        """The seed it is written with: a hash of its id."""
        return int.from_bytes(hashlib.sha256(self.id.encode()).digest()[:8], "big")


class EvaluationSet:
    """Holds the notes that can be judged, and makes the takes of them.

    A note of the library counts where its instrument is on the bundle's map, its pitch, velocity and hold are
    within the bundle's ranges, and its end is not cut off. Raises TrainingError: there is no instrument that
    bundle and library have in common.
    """

    def __init__(self, bundle: Bundle, library: NoteDataset, count: int) -> None:
        self.bundle = bundle
        self.library = library
        self.count = count
        """Notes of the largest sections; the others ask for a share of it."""
        points = bundle.timbre_map.points
        self.instruments: list[str] = [point.instrument for point in points]
        self.families: list[str] = [point.family for point in points]
        self.points: NDArray[np.float64] = np.array([(point.x, point.y) for point in points]).reshape(-1, 2)
        numbers = {name: number for number, name in enumerate(self.instruments)}
        of_library = np.array([numbers.get(name, -1) for name in library.instruments], dtype=np.int64)
        self.instrument_of: NDArray[np.int64] = of_library[library.instrument]
        """Per note of the library, the number of its instrument on the map; -1 where it is not there."""
        self.voice_of: NDArray[np.int64] = self.instrument_of * len(library.sources) + library.source
        """Per note of the library, its instrument as one of the sources has it: a number for each."""
        self._rule = library.rule
        self.usable: NDArray[np.bool_] = self._usable()
        """Per note of the library, whether it is judged."""
        if not self.usable.any():
            raise TrainingError(
                f"{library.path}: no note of it can be judged with the bundle {bundle.path}: its instruments "
                "are not on the bundle's map, or its pitches are not; name the dataset that the bundle "
                "learnt from"
            )

    @property
    def noise(self) -> float:
        """The radius on the map by which training moved the points."""
        return NOISE_OF_SPACING * float(np.median(self.spacing)) if len(self.points) > 1 else 0.0

    @property
    def spacing(self) -> NDArray[np.float64]:
        """The distances [instruments] from each point to the nearest other one."""
        apart = np.linalg.norm(self.points[:, None] - self.points[None], axis=2)
        np.fill_diagonal(apart, np.inf)
        return apart.min(axis=1)

    def rng(self, purpose: str) -> np.random.Generator:
        """Makes a generator that is the same in every run, and another one for each purpose."""
        return np.random.default_rng(zlib.crc32(purpose.encode()))

    def rows_of(self, split: Split) -> NDArray[np.int64]:
        """Finds the notes of this split that are judged."""
        return np.flatnonzero(self.usable & (self.library.split == int(split))).astype(np.int64)

    def pick(self, split: Split, n: int, purpose: str = "cells") -> NDArray[np.int64]:
        """Picks some of them at random, always the same ones: as many as there are, at most `n`."""
        return pick_some(self.rows_of(split), n, self.rng(f"{purpose} {split.name}"))

    def pick_each(self, split: Split, n: int, purpose: str) -> NDArray[np.int64]:
        """Picks some of each instrument at random, always the same: as many as there are, at most `n`."""
        rows, rng = self.rows_of(split), self.rng(f"{purpose} {split.name}")
        instrument = self.instrument_of[rows]
        numbers = range(len(self.instruments))
        return np.concatenate([pick_some(rows[instrument == number], n, rng) for number in numbers])

    def name(self, row: int) -> str:
        """Names the instrument of a note."""
        return self.instruments[int(self.instrument_of[row])]

    def family(self, row: int) -> str:
        """Names its family, as the map has it."""
        return self.families[int(self.instrument_of[row])]

    def takes(self, rows: Iterable[int]) -> dict[Kind, list[Take]]:
        """Makes the takes of notes, for each kind that is judged."""
        chosen = [int(row) for row in rows]
        return {kind: [self.take(kind, row) for row in chosen] for kind in JUDGED}

    def take(self, kind: Kind, row: int) -> Take:
        """Makes the take of a note as the source, the codec or the bundle has it."""
        if kind is Kind.GENERATED:
            return self.generated(row)
        library = self.library
        held = float(library.held_seconds[row])
        return Take(kind, int(library.pitch[row]), int(library.velocity[row]), held, row=int(row))

    def kind_of_sound(self, row: int) -> str:
        """Says which of KINDS_OF_SOUND the instrument of a note is."""
        name, family = self.name(row).lower(), self.family(row).lower()
        if family.startswith(STRUCK_FAMILIES) or any(word in name for word in STRUCK_INSTRUMENTS):
            return STRUCK
        return ENSEMBLE if family.startswith(ENSEMBLE_FAMILIES) else SUSTAINED

    def another_draw(self, row: int) -> Take | None:
        """Takes the note of the same instrument, source and pitch that is played most like this one."""
        same = self.usable & (self.library.pitch == self.library.pitch[row])
        other = self.most_alike(
            row, np.flatnonzero(same & (self.voice_of == self.voice_of[row])), LOOSE_HOLD_SCALE
        )
        return None if other is None else self.source(other)

    def semitones_apart(self, row: int) -> int:
        """Returns the semitones between the pitches at which the instrument of a note was trained."""
        return self._rule.spacing(self.name(row))

    def sampler(self, row: int, spacing: int = 1) -> Take | None:
        """Resamples to the pitch of this note the one that a sampler would play: the nearest trained note.

        It is of the same instrument and source, at the nearest other pitch, and there the most alike. A
        sampler with a `spacing` above 1 has the pitches that are multiples of it alone, two velocities of
        each, and plays up to half of it away: None for what lies farther.
        """
        library, pitch = self.library, int(self.library.pitch[row])
        trained = self.rows_of(Split.TRAIN)
        trained = trained[self.voice_of[trained] == self.voice_of[row]]
        away = np.abs(library.pitch[trained].astype(int) - pitch)
        others = (away > 0) & (library.pitch[trained] % spacing == 0)
        if not others.any() or 1 < spacing < 2 * away[others].min():
            return None
        rows = trained[others & (away == away[others].min())]
        nearest = self.most_alike(row, rows if spacing == 1 else self._layers(rows), LOOSE_HOLD_SCALE)
        assert nearest is not None
        faster = 2.0 ** ((pitch - int(library.pitch[nearest])) / 12.0)
        held = float(library.held_seconds[nearest]) / faster
        return Take(Kind.SAMPLER, pitch, int(library.velocity[nearest]), held, row=nearest)

    def _layers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Picks a sampler's two layers of these notes: the loudest, and the loudest of the lower half."""
        rows = rows[np.argsort(self.library.velocity[rows], kind="stable")]
        return rows[np.unique([(len(rows) - 1) // 2, len(rows) - 1])]

    def source(self, row: int) -> Take:
        """Makes the take of the note itself."""
        return self.take(Kind.SOURCE, row)

    def generated(self, row: int, draw: int = 0) -> Take:
        """Asks the same note of the bundle, at its instrument's published point."""
        library, point = self.library, self.points[self.instrument_of[row]].tolist()
        pitch, velocity = int(library.pitch[row]), int(library.velocity[row])
        return self.asked(point, pitch, velocity, float(library.held_seconds[row]), draw)

    def asked(
        self, timbre: Sequence[float], pitch: int, velocity: int, seconds: float, draw: int = 0
    ) -> Take:
        """Asks any note of the bundle; the hold is brought into the bundle's range."""
        ranges = written_ranges(self.bundle.manifest)
        held = min(max(round(float(seconds), 4), ranges.seconds_min), ranges.seconds_max)
        point = (float(timbre[0]), float(timbre[1]))
        return Take(Kind.GENERATED, int(pitch), int(velocity), held, timbre=point, draw=draw)

    def unlikeness(
        self, row: int, rows: NDArray[np.int64], hold_scale: float = HOLD_SCALE
    ) -> NDArray[np.float64]:
        """Measures how unlike note `row` the notes `rows` are played, [rows]: 1 for a scale of either.

        A larger `hold_scale` lets the velocity decide, for measures that do not mind the hold.
        """
        library = self.library
        velocity = np.abs(library.velocity[rows].astype(float) - float(library.velocity[row]))
        hold = np.abs(np.log(library.held_seconds[rows] / library.held_seconds[row]))
        return np.asarray(velocity / VELOCITY_SCALE + hold / hold_scale, dtype=np.float64)

    def most_alike(self, row: int, rows: NDArray[np.int64], hold_scale: float = HOLD_SCALE) -> int | None:
        """Finds the one of `rows` that is played most like note `row`; None where there is no other note."""
        rows = rows[rows != row]
        return int(rows[np.argmin(self.unlikeness(row, rows, hold_scale))]) if len(rows) else None

    def _usable(self) -> NDArray[np.bool_]:
        ranges, library = written_ranges(self.bundle.manifest), self.library
        low, high = max(LOWEST, ranges.pitch_min), min(HIGHEST, ranges.pitch_max)
        slack = 1e-4  # holds are float32 in the library
        usable: NDArray[np.bool_] = (
            (self.instrument_of >= 0)
            & (library.pitch >= low)
            & (library.pitch <= high)
            & (library.velocity >= ranges.velocity_min)
            & (library.velocity <= ranges.velocity_max)
            & (library.held_seconds >= ranges.seconds_min - slack)
            & (library.held_seconds <= ranges.seconds_max + slack)
            & (library.length > 0)
            & ~library.cut
        )
        return usable


def pick_some(rows: NDArray[np.int64], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Picks at most `n` of the rows at random, in ascending order."""
    return np.sort(rng.permutation(rows)[:n])
