"""The second phase: from an instrument's raw notes to its files. Pure: equal notes make equal files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np

from timbrel.core.model import Model
from timbrel.library import nsynth
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
from timbrel.library.store import RawNote
from timbrel.library.trim import LEAD_IN_SECONDS, trim
from timbrel.library.tuning import correction_cents, is_in_tune
from timbrel.library.voice import Voice
from timbrel.library.zones import key_zones, velocity_zones
from timbrel_bundle.audio import resample
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

Load = Callable[[str], tuple[RawNote, Audio]]
"""A note's key -> the note and its sound at the codec's rate."""


@dataclass(frozen=True)
class Finished:
    """An instrument's share of the library."""

    voice: Voice
    rows: Sequence[ManifestRow]


class Finisher:
    """Writes the files of one instrument after another."""

    def __init__(
        self,
        job: LibraryJob,
        model: Model,
        folder: Path,
        kept: Path,
        load: Load,
        trackers: str,
        n_threads: int,
    ) -> None:
        """
        Args:
            folder: the library.
            kept: folder of the rows of instruments that are finished.
            load: gives raw notes.
            trackers: names of those that measured the notes.
        """
        self._job = job
        self._model = model
        self._folder = folder
        self._kept = kept
        self._load = load
        self._trackers = trackers
        self._n_threads = n_threads

    def finish(
        self, voice: Voice, notes: Sequence[ChosenNote], first_number: int, tick: Callable[[int], object]
    ) -> Finished:
        """Writes samples, .sfz and .dspreset; what was finished before, by these notes, is left as it is.

        Args:
            notes: all samples of the instrument.
            first_number: of its first sample within the library.

        Raises:
            OSError: a file cannot be written, or a raw note is damaged.
        """
        rows = self._kept_rows(voice, notes)
        if rows is None:
            rows = self._write_samples(voice, notes, first_number, tick)
            instrument = self._describe(voice, notes, rows)
            atomic_write(self._folder / f"{voice.slug}.sfz", sfz_text(instrument))
            atomic_write(self._folder / f"{voice.slug}.dspreset", dspreset_text(instrument))
            write_rows(self._kept / f"{voice.slug}.jsonl", rows)
        else:
            tick(len(rows))
        return Finished(voice, rows)

    def _kept_rows(self, voice: Voice, notes: Sequence[ChosenNote]) -> list[ManifestRow] | None:
        """The rows of before, if they are of these very notes and their files are there."""
        try:
            rows = list(read_rows(self._kept / f"{voice.slug}.jsonl"))
        except (OSError, ValueError):
            return None
        same = [(row.key, row.trackers) for row in rows] == [
            (each.attempt.key, self._trackers) for each in notes
        ]
        files = [f"{voice.slug}.sfz", f"{voice.slug}.dspreset", *(row.file for row in rows)]
        return rows if same and all((self._folder / file).is_file() for file in files) else None

    def _write_samples(
        self, voice: Voice, notes: Sequence[ChosenNote], first_number: int, tick: Callable[[int], object]
    ) -> list[ManifestRow]:
        measured = [note.attempt.measurement for note in notes]
        gain_db = instrument_gain_db((each.loudness, each.true_peak) for each in measured)
        looped = self._job.loops and is_sustained(measured)
        for parent in {(self._folder / note.planned.file).parent for note in notes}:
            parent.mkdir(parents=True, exist_ok=True)

        def write(number: int) -> ManifestRow:
            return self._write_sample(notes[number], first_number + number, gain_db, looped)

        rows = []
        with ThreadPoolExecutor(self._n_threads) as pool:
            try:
                for row in pool.map(write, range(len(notes))):
                    rows.append(row)
                    tick(1)
            finally:
                pool.shutdown(cancel_futures=True)
        return rows

    def _write_sample(self, note: ChosenNote, number: int, gain_db: float, looped: bool) -> ManifestRow:
        raw, decoded = self._load(note.attempt.key)
        sound = self._polish(raw, decoded, gain_db, looped)
        content = self._encode(note, sound)
        atomic_write(self._folder / note.planned.file, content)
        return self._row(note, number, raw, sound, gain_db, content)

    def _polish(self, raw: RawNote, decoded: Audio, gain_db: float, looped: bool) -> _Polished:
        rate = self._job.sample_rate
        trimmed = trim(resample(decoded, self._model.sample_rate, rate), rate, raw.truncated)
        audio = (trimmed.audio * np.float32(10.0 ** (gain_db / 20.0))).astype(np.float32)
        found = self._find_loop(audio, trimmed.removed) if looped else None
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
                "ISFT": f"timbrel {version('timbrel')}",
            },
        )

    def _order(self, note: ChosenNote) -> NoteOrder:
        return note.planned.order(self._job, note.attempt.number)

    def _row(
        self, note: ChosenNote, number: int, raw: RawNote, sound: _Polished, gain_db: float, content: bytes
    ) -> ManifestRow:
        job, model, planned, order = self._job, self._model, note.planned, self._order(note)
        measured = note.attempt.measurement
        heard = (measured.pitch, measured.other_pitch)
        return ManifestRow(
            note=number,
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
            gain_db=round(gain_db, 3),
            loudness_lufs=round(loudness(sound.audio, job.sample_rate), 3),
            peak_db=round(decibels(float(np.abs(sound.audio).max(initial=0.0))), 3),
            pitch_measured=measured.pitch,
            pitch_measured_other=measured.other_pitch,
            trackers=self._trackers,
            tune_cents=_tune(note),
            in_tune=is_in_tune(planned.pitch, *heard, tune=_tune(note)),
            loop_mode="no_loop" if sound.loop is None else "loop_continuous",
            loop_start=None if sound.loop is None else sound.loop[0],
            loop_end=None if sound.loop is None else sound.loop[1],
            loop_joint_db=None if sound.looped is None else round(sound.looped.joint_db, 3),
        )

    def _describe(
        self, voice: Voice, notes: Sequence[ChosenNote], rows: Sequence[ManifestRow]
    ) -> SamplerInstrument:
        keys, velocities = key_zones(self._job.pitches), velocity_zones(self._job.velocities)
        low, high = RELEASE_SECONDS
        release = median(note.attempt.measurement.release_seconds for note in notes)
        return SamplerInstrument(
            name=voice.name,
            slug=voice.slug,
            comment=f"rendered by timbrel {version('timbrel')} with bundle {self._model.bundle_hash[:12]}",
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


def _tune(note: ChosenNote) -> int:
    measured = note.attempt.measurement
    return correction_cents(note.planned.pitch, measured.pitch, measured.other_pitch)


def _loop_of(row: ManifestRow) -> tuple[int, int] | None:
    return None if row.loop_start is None or row.loop_end is None else (row.loop_start, row.loop_end)
