"""The second phase: from an instrument's raw notes to its files. Pure: equal notes make equal files."""

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
from timbrel.library import nsynth
from timbrel.library.disk import sync, write_later
from timbrel.library.dspreset import dspreset_text
from timbrel.library.flac import flac_bytes
from timbrel.library.job import LibraryJob
from timbrel.library.key import codes_hash
from timbrel.library.level import Audio, decibels
from timbrel.library.loop import LoopedSound, find_loop
from timbrel.library.loudness import instrument_gain_db, loudness
from timbrel.library.manifest import ManifestRow, read_rows, write_rows
from timbrel.library.measure import Measurement
from timbrel.library.plan import NoteOrder
from timbrel.library.region import Region, SamplerInstrument, velocity_tracking
from timbrel.library.render import ChosenNote
from timbrel.library.riff import SampleFacts, wav_bytes
from timbrel.library.sfz import sfz_text
from timbrel.library.shelf import Sound
from timbrel.library.store import RawNote
from timbrel.library.trim import LEAD_IN_SECONDS
from timbrel.library.tuning import correction_cents, is_in_tune
from timbrel.library.voice import Voice
from timbrel.library.zones import key_zones, velocity_zones
from timbrel_bundle.files import atomic_write

SUSTAINED_DB_PER_SECOND = 6.0
"""An instrument whose held notes lose no more than this is looped; what dies away by itself is not."""

STEADY_SHARE = 0.25
STEADY_SECONDS = 0.3
"""A loop begins after this share of the hold, and not sooner than this after the onset: past the attack."""

BEFORE_RELEASE_SECONDS = 0.02
"""And ends this long before the key is let go."""

RELEASE_SECONDS = (0.05, 4.0)
"""Bounds of the fade that a sampler applies after a key is let go."""

Load = Callable[[str], Sound]
"""A note's key -> the note and its sound at the rate of the files."""


@dataclass(frozen=True)
class Instrument:
    """All samples of one voice, chosen and measured, and what they have in common."""

    voice: Voice
    notes: Sequence[ChosenNote]
    first_number: int
    """Of its first sample within the library."""

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

    def instrument(self, voice: Voice, notes: Sequence[ChosenNote], first_number: int) -> Instrument:
        """What is decided for all of its notes together."""
        measured = [note.attempt.measurement for note in notes]
        return Instrument(
            voice=voice,
            notes=notes,
            first_number=first_number,
            gain_db=instrument_gain_db((each.loudness, each.true_peak) for each in measured),
            looped=self._job.loops and is_sustained(measured),
        )

    def kept_rows(self, instrument: Instrument) -> list[ManifestRow] | None:
        """The rows of before, if they are of these very notes, measured alike, and their files are there."""
        slug = instrument.voice.slug
        try:
            rows = list(read_rows(self._kept / f"{slug}.jsonl"))
        except (OSError, ValueError):
            return None
        gain_db = round(instrument.gain_db, 3)
        found = [
            (row.key, row.trackers, row.pitch_measured, row.pitch_measured_other, row.gain_db) for row in rows
        ]
        wanted = [
            (note.attempt.key, heard.trackers, heard.pitch, heard.other_pitch, gain_db)
            for note in instrument.notes
            for heard in [note.attempt.measurement]
        ]
        files = [f"{slug}.sfz", f"{slug}.dspreset", *(row.file for row in rows)]
        return rows if found == wanted and all((self._folder / file).is_file() for file in files) else None

    def write_sample(self, instrument: Instrument, number: int) -> ManifestRow:
        """Writes one of its samples, counted from 0.

        Raises:
            OSError: the file cannot be written, or the raw note is damaged.
        """
        note = instrument.notes[number]
        sound = self._load(note.attempt.key)
        polished = self._polish(sound, instrument)
        content = self._encode(note, polished)
        write_later(self._folder / note.planned.file, content)
        return self._row(instrument, number, sound.note, polished, content)

    def seal(self, instrument: Instrument, rows: Sequence[ManifestRow]) -> None:
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
        write_rows(self._kept / f"{slug}.jsonl", rows)

    def _polish(self, sound: Sound, instrument: Instrument) -> _Polished:
        trimmed = sound.trimmed
        audio = trimmed.audio * np.float32(10.0 ** (instrument.gain_db / 20.0))
        found = self._find_loop(audio, trimmed.removed) if instrument.looped else None
        return _Polished(found.audio if found else audio, found)

    def _find_loop(self, audio: Audio, removed: int) -> LoopedSound | None:
        rate = self._job.sample_rate
        released = round(self._job.seconds * rate) - removed
        begin = round(max(STEADY_SHARE * released, (LEAD_IN_SECONDS + STEADY_SECONDS) * rate))
        return find_loop(audio, rate, begin, released - round(BEFORE_RELEASE_SECONDS * rate))

    def _encode(self, note: ChosenNote, sound: _Polished) -> bytes:
        if self._job.file_format == "flac":
            return flac_bytes(sound.audio, self._job.sample_rate)
        return wav_bytes(sound.audio, self._job.sample_rate, self._facts(note, sound))

    def _facts(self, note: ChosenNote, sound: _Polished) -> SampleFacts:
        planned = note.planned
        order = self._order(note)
        return SampleFacts(
            key=planned.pitch,
            tune=_tune(note),
            loop=sound.loop,
            keys=key_zones(self._job.pitches)[planned.pitch],
            velocities=velocity_zones(self._job.velocities)[planned.velocity],
            texts={
                "INAM": f"{planned.voice.name}, pitch {planned.pitch}, velocity {planned.velocity}",
                "ICMT": f"timbre {order.timbre[0]:g},{order.timbre[1]:g} seed {order.seed} "
                f"bundle {self._model.bundle_hash}",
                "ISFT": f"timbrel {_version()}",
            },
        )

    def _order(self, note: ChosenNote) -> NoteOrder:
        return note.planned.order(self._job, note.attempt.number)

    def _row(
        self, instrument: Instrument, number: int, raw: RawNote, sound: _Polished, content: bytes
    ) -> ManifestRow:
        note = instrument.notes[number]
        job, model, planned, order = self._job, self._model, note.planned, self._order(note)
        measured = note.attempt.measurement
        heard = (measured.pitch, measured.other_pitch)
        return ManifestRow(
            note=instrument.first_number + number,
            note_str=Path(planned.file).stem,
            instrument=job.voices.index(planned.voice),
            instrument_str=planned.voice.name,
            pitch=planned.pitch,
            velocity=planned.velocity,
            sample_rate=job.sample_rate,
            instrument_family=nsynth.family_number(planned.voice.family),
            instrument_family_str=nsynth.family_name(planned.voice.family),
            instrument_source=nsynth.SYNTHETIC,
            instrument_source_str="synthetic",
            file=planned.file,
            sha256=hashlib.sha256(content).hexdigest(),
            n_samples=len(sound.audio),
            x=order.timbre[0],
            y=order.timbre[1],
            nearest_instrument=planned.voice.nearest,
            round_robin=planned.round_robin,
            seed=order.seed,
            attempts=note.n_attempts,
            held_seconds=order.seconds,
            truncated=raw.truncated,
            temperature=order.sampling.temperature,
            top_k=order.sampling.top_k,
            top_p=order.sampling.top_p,
            bundle_hash=model.bundle_hash,
            codec=model.codec,
            codec_hash=model.codec_hash,
            precision=model.precision,
            provider=model.provider,
            key=note.attempt.key,
            codes_sha256=codes_hash(raw.codes),
            n_frames=len(raw.codes),
            bandwidth_hz=bandwidth_hz(job, model),
            lead_in_seconds=LEAD_IN_SECONDS,
            gain_db=round(instrument.gain_db, 3),
            loudness_lufs=round(self._loudness(instrument, measured, sound), 3),
            peak_db=round(decibels(float(np.abs(sound.audio).max(initial=0.0))), 3),
            pitch_measured=measured.pitch,
            pitch_measured_other=measured.other_pitch,
            trackers=measured.trackers,
            tune_cents=_tune(note),
            in_tune=is_in_tune(planned.pitch, *heard, tune=_tune(note)),
            loop_mode="no_loop" if sound.loop is None else "loop_continuous",
            loop_start=None if sound.loop is None else sound.loop[0],
            loop_end=None if sound.loop is None else sound.loop[1],
            loop_joint_db=None if sound.looped is None else round(sound.looped.joint_db, 3),
        )

    def _loudness(self, instrument: Instrument, measured: Measurement, sound: _Polished) -> float:
        """LUFS of the file: as measured, if nothing but the gain has been changed since."""
        if sound.looped is None and self._job.sample_rate == self._model.sample_rate:
            return measured.loudness + instrument.gain_db
        return loudness(sound.audio, self._job.sample_rate)

    def _describe(self, instrument: Instrument, rows: Sequence[ManifestRow]) -> SamplerInstrument:
        voice = instrument.voice
        keys, velocities = key_zones(self._job.pitches), velocity_zones(self._job.velocities)
        low, high = RELEASE_SECONDS
        release = median(note.attempt.measurement.release_seconds for note in instrument.notes)
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
class _Polished:
    """A sample as it is written."""

    audio: Audio
    looped: LoopedSound | None

    @property
    def loop(self) -> tuple[int, int] | None:
        return None if self.looped is None else (self.looped.loop.start, self.looped.loop.end)


def is_sustained(notes: Sequence[Measurement]) -> bool:
    """Whether most notes of an instrument keep their level for as long as they are held."""
    decays = [note.decay for note in notes if note.decay is not None]
    return bool(decays) and median(decays) <= SUSTAINED_DB_PER_SECOND


def bandwidth_hz(job: LibraryJob, model: Model) -> float:
    """The highest frequency that a file can hold: more samples a second than the codec's add nothing."""
    return min(job.sample_rate, model.sample_rate) / 2.0


@cache
def _version() -> str:
    return version("timbrel")


def _tune(note: ChosenNote) -> int:
    measured = note.attempt.measurement
    return correction_cents(note.planned.pitch, measured.pitch, measured.other_pitch)


def _loop_of(row: ManifestRow) -> tuple[int, int] | None:
    return None if row.loop_start is None or row.loop_end is None else (row.loop_start, row.loop_end)
