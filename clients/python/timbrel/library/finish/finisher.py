"""The finisher: from an instrument's raw notes to its files. Equal notes make equal files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np

from timbrel.core.model import Model
from timbrel.library.finish import loop, manifest
from timbrel.library.finish.instrument_files import (
    Region,
    SamplerInstrument,
    dspreset_text,
    key_zones,
    sfz_text,
    velocity_tracking,
    velocity_zones,
)
from timbrel.library.finish.manifest import ManifestRow
from timbrel.library.finish.sample_files import SampleFacts, sample_bytes
from timbrel.library.plan.folder import sync, write_later
from timbrel.library.plan.formats import SAMPLE_FORMATS
from timbrel.library.plan.job import LibraryJob
from timbrel.library.plan.voice import Voice
from timbrel.library.render.attempts import ChosenNote
from timbrel.library.render.level import LEAD_IN_SECONDS, Audio, decibels
from timbrel.library.render.loudness import instrument_gain_db, loudness
from timbrel.library.render.measure import Measurement
from timbrel.library.render.store import DecodedNote
from timbrel_bundle.files import atomic_write

SUSTAINED_DB_PER_SECOND = 6.0
"""An instrument whose held notes lose no more than this is looped; what dies away by itself is not."""

RELEASE_SECONDS = (0.05, 4.0)
"""Bounds of the fade that a sampler applies after a key is let go."""

Load = Callable[[str], DecodedNote]
"""A note's key -> the note and its sound at the rate of the files."""


@dataclass(frozen=True)
class ChosenInstrument:
    """All notes of one voice, chosen and measured, and what they have in common."""

    voice: Voice
    notes: Sequence[ChosenNote]
    first_number: int
    """Number of its first sample within the library."""

    gain_db: float
    looped: bool
    """Whether its sounds last, so that they are given loops."""


class Finisher:
    """Writes the files of instruments. Safe to use from several threads."""

    def __init__(
        self,
        job: LibraryJob,
        model: Model,
        folder: Path,
        kept: Path,
        load: Load,
    ) -> None:
        """
        Args:
            folder: the library.
            kept: folder of the rows of instruments that are finished.
            load: gives raw notes and their sounds.
        """
        self._job = job
        self._model = model
        self._folder = folder
        self._kept = kept
        self._load = load

    def instrument(self, voice: Voice, notes: Sequence[ChosenNote], first_number: int) -> ChosenInstrument:
        """Decides what concerns all notes of an instrument together."""
        measured = [note.measured for note in notes]
        return ChosenInstrument(
            voice=voice,
            notes=notes,
            first_number=first_number,
            gain_db=instrument_gain_db((each.loudness, each.true_peak) for each in measured),
            looped=self._job.loops and is_sustained(measured),
        )

    def kept_rows(self, instrument: ChosenInstrument) -> list[ManifestRow] | None:
        """Gives the rows of before, if they are of these very notes, measured alike, and all files exist."""
        slug = instrument.voice.slug
        try:
            rows = list(manifest.read_rows(self._kept / f"{slug}.jsonl"))
        except (OSError, ValueError):
            return None
        gain_db = round(instrument.gain_db, 3)
        found = [
            (row.key, row.trackers, row.pitch_measured, row.pitch_measured_other, row.gain_db) for row in rows
        ]
        wanted = [
            (note.attempt.key, note.measured.trackers, *note.measured.heard, gain_db)
            for note in instrument.notes
        ]
        files = [f"{slug}.sfz", f"{slug}.dspreset", *(row.file for row in rows)]
        return rows if found == wanted and all((self._folder / file).is_file() for file in files) else None

    def write_sample(self, instrument: ChosenInstrument, number: int) -> ManifestRow:
        """Writes one sample of an instrument, counted from 0.

        Raises:
            OSError: the file cannot be written, or the raw note is damaged.
        """
        note = instrument.notes[number]
        decoded = self._load(note.attempt.key)
        sample = self._finish(decoded, instrument)
        sample_format, rate = SAMPLE_FORMATS[self._job.file_format], self._job.sample_rate
        content = sample_bytes(sample.audio, rate, sample_format, self._facts(note, sample))
        write_later(self._folder / note.planned.file, content)
        looped, measured = sample.looped, note.measured
        return ManifestRow.from_flat(
            {
                **manifest.rendering_facts(
                    self._job, self._model, note, instrument.first_number + number, decoded.note
                ),
                **manifest.tuning_facts(note),
                "sample_rate": rate,
                "file": note.planned.file,
                "sha256": hashlib.sha256(content).hexdigest(),
                "n_samples": len(sample.audio),
                "codec_hash": self._model.codec_hash,
                "bandwidth_hz": bandwidth_hz(self._job, self._model),
                "lead_in_seconds": LEAD_IN_SECONDS,
                "gain_db": round(instrument.gain_db, 3),
                "loudness_lufs": round(self._loudness(instrument, measured, sample), 3),
                "peak_db": round(decibels(float(np.abs(sample.audio).max(initial=0.0))), 3),
                "loop_mode": "no_loop" if looped is None else "loop_continuous",
                "loop_start": None if looped is None else looped.loop.start,
                "loop_end": None if looped is None else looped.loop.end,
                "loop_joint_db": None if looped is None else round(looped.joint_db, 3),
            }
        )

    def commit(self, instrument: ChosenInstrument, rows: Sequence[ManifestRow]) -> None:
        """Writes .sfz and .dspreset, and then, once all is on the disk, that the instrument is finished.

        Args:
            rows: of all its samples, in order.

        Raises:
            OSError: a file cannot be written.
        """
        sync(self._folder / row.file for row in rows)
        slug, described = instrument.voice.slug, self._describe(instrument, rows)
        atomic_write(self._folder / f"{slug}.sfz", sfz_text(described))
        atomic_write(self._folder / f"{slug}.dspreset", dspreset_text(described))
        manifest.write_rows(self._kept / f"{slug}.jsonl", rows)

    def _finish(self, decoded: DecodedNote, instrument: ChosenInstrument) -> _FinishedSample:
        trimmed = decoded.trimmed
        audio = trimmed.audio * np.float32(10.0 ** (instrument.gain_db / 20.0))
        found = self._find_loop(audio, trimmed.removed) if instrument.looped else None
        return _FinishedSample(found.audio if found else audio, found)

    def _find_loop(self, audio: Audio, removed: int) -> loop.LoopedSound | None:
        rate = self._job.sample_rate
        released = round(self._job.seconds * rate) - removed
        begin = round(max(loop.STEADY_SHARE * released, (LEAD_IN_SECONDS + loop.STEADY_SECONDS) * rate))
        return loop.find_loop(audio, rate, begin, released - round(loop.BEFORE_RELEASE_SECONDS * rate))

    def _facts(self, note: ChosenNote, sample: _FinishedSample) -> SampleFacts:
        planned = note.planned
        order = planned.order(self._job, note.attempt.number)
        return SampleFacts(
            key=planned.pitch,
            tune=note.tune_cents,
            loop=None if sample.looped is None else (sample.looped.loop.start, sample.looped.loop.end),
            keys=key_zones(self._job.pitches)[planned.pitch],
            velocities=velocity_zones(self._job.velocities)[planned.velocity],
            texts={
                "INAM": f"{planned.voice.name}, pitch {planned.pitch}, velocity {planned.velocity}",
                "ICMT": f"timbre {order.timbre[0]:g},{order.timbre[1]:g} seed {order.seed} "
                f"bundle {self._model.bundle_hash}",
                "ISFT": f"timbrel {_version()}",
            },
        )

    def _loudness(
        self, instrument: ChosenInstrument, measured: Measurement, sample: _FinishedSample
    ) -> float:
        """Measures the LUFS of a file, unless nothing but the gain changed since the note was measured."""
        if sample.looped is None and self._job.sample_rate == self._model.sample_rate:
            return measured.loudness + instrument.gain_db
        return loudness(sample.audio, self._job.sample_rate)

    def _describe(self, instrument: ChosenInstrument, rows: Sequence[ManifestRow]) -> SamplerInstrument:
        voice = instrument.voice
        keys, velocities = key_zones(self._job.pitches), velocity_zones(self._job.velocities)
        low, high = RELEASE_SECONDS
        release = median(note.measured.release_seconds for note in instrument.notes)
        return SamplerInstrument(
            name=voice.name,
            slug=voice.slug,
            comment=f"rendered by timbrel {_version()} with bundle {self._model.bundle_hash[:12]}",
            regions=[
                Region(
                    file=row.file,
                    pitch=row.pitch,
                    keys=keys[row.pitch],
                    velocities=velocities[row.velocity],
                    round_robin=row.round_robin,
                    tune=row.tune_cents,
                    loop=_loop_of(row),
                )
                for row in rows
            ],
            round_robins=self._job.round_robins,
            velocity_tracking=velocity_tracking(len(self._job.velocities)),
            release_seconds=min(high, max(low, release)),
        )


@dataclass(frozen=True)
class _FinishedSample:
    """A sample as it is written."""

    audio: Audio
    looped: loop.LoopedSound | None


def is_sustained(notes: Sequence[Measurement]) -> bool:
    """Tells whether most notes of an instrument keep their level for as long as they are held."""
    decays = [note.decay for note in notes if note.decay is not None]
    return bool(decays) and median(decays) <= SUSTAINED_DB_PER_SECOND


def bandwidth_hz(job: LibraryJob, model: Model) -> float:
    """Gives the highest frequency of a file, in Hz: more samples a second than the codec's add nothing."""
    return min(job.sample_rate, model.sample_rate) / 2.0


@cache
def _version() -> str:
    return version("timbrel")


def _loop_of(row: ManifestRow) -> tuple[int, int] | None:
    return None if row.loop_start is None or row.loop_end is None else (row.loop_start, row.loop_end)
