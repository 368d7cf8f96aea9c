"""The finisher: from an instrument's raw notes to its files. Equal notes make equal files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

import numpy as np

from timbrel.core.model import Model
from timbrel.library.finish import instrument_files as instruments
from timbrel.library.finish import loop, manifest
from timbrel.library.finish.dynamics import Dynamics, SampleLevel, velocity_zones
from timbrel.library.finish.sample_files import sample_bytes
from timbrel.library.finish.soundfont import sf2_bytes
from timbrel.library.plan.folder import LibraryFolder, sync, write_later
from timbrel.library.plan.formats import SAMPLE_FORMATS
from timbrel.library.plan.job import LibraryJob
from timbrel.library.plan.voice import Voice
from timbrel.library.render.level import LEAD_IN_SECONDS, decibels, instrument_gain_db, loudness
from timbrel.library.render.measure import SUSTAINED_DB_PER_SECOND, Measurement, is_sustained
from timbrel.library.render.renderer import ChosenNote
from timbrel.library.render.store import DecodedNote
from timbrel_bundle.audio import read_audio
from timbrel_bundle.files import atomic_write

RELEASE_SECONDS = (0.05, 10.0)
"""Bounds of the fade that a sampler applies after a key is let go."""

RELEASE_SAMPLE_SECONDS = 0.3
RELEASE_SAMPLE_DB = 3.0
"""A release that lasts as long as this, and is so far from an even fade, is played from the samples."""

RELEASE_RISE_DB = 6.0
"""An instrument that still rises by more than this after a quick key came up fades instead: the release of a
held note would sound louder than the short note that it follows."""

RELEASE_DECAY = 20.0
"""dB a second: of what dies away quicker, little is left to be released."""

RELEASE_LOST_DB = 40.0
"""Nor of what has lost more than this by then: as loud as a short note it would be noise."""

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

    released: bool
    """Whether its releases are more than fades, so that they are played from the samples."""


@dataclass(frozen=True)
class Finisher:
    """Writes the files of instruments. Threads may share it."""

    job: LibraryJob
    model: Model
    folder: Path
    """The library."""

    kept: Path
    """Folder of the rows of instruments that are finished."""

    load: Load
    chords: Mapping[str, Sequence[int]]
    """Name -> semitones above the key: instrument files to be written beside the plain one."""

    sf2: bool
    tuning: tuple[float | None, ...] | None = None
    """Each key's cents above equal temperament; of a silent key None."""

    def instrument(self, notes: Sequence[ChosenNote], first_number: int) -> ChosenInstrument:
        """Decides what concerns all notes of an instrument together."""
        measured = [note.measured for note in notes]
        voice = notes[0].planned.voice
        lasts = is_sustained(measured) if voice.hold is None else voice.hold.release_seconds is None
        looped = self.job.loops and lasts
        return ChosenInstrument(
            voice=voice,
            notes=notes,
            first_number=first_number,
            gain_db=instrument_gain_db((each.loudness, each.true_peak) for each in measured),
            looped=looped,
            released=has_release(measured) and any(self._is_released(note, looped) for note in notes),
        )

    def kept_rows(self, instrument: ChosenInstrument) -> list[manifest.ManifestRow] | None:
        """Gives the rows of before, if they are of these very notes, measured alike, and all files exist."""
        slug = instrument.voice.slug
        try:
            rows = list(manifest.read_rows(self.kept / f"{slug}.jsonl"))
        except (OSError, ValueError):
            return None
        gain_db = round(instrument.gain_db, 3)
        found = [
            (row.file, row.key, row.trackers, row.pitch_measured, row.pitch_measured_other, row.gain_db)
            for row in rows
        ]
        wanted = [
            (note.planned.file, note.attempt.key, note.measured.trackers, *note.measured.heard, gain_db)
            for note in instrument.notes
        ]
        if [row.tune_cents for row in rows] != [note.tune_cents for note in instrument.notes]:
            return None  # of an earlier version, which tuned otherwise
        if not instrument.looped and any(row.loop_start is not None for row in rows):
            return None  # of an earlier version, which looped more
        if found != wanted or instrument.released != any(row.release_start is not None for row in rows):
            return None
        return rows if all((self.folder / row.file).is_file() for row in rows) else None

    def write_sample(self, instrument: ChosenInstrument, number: int) -> manifest.ManifestRow:
        """Writes one sample of an instrument, counted from 0. Raises OSError: the file cannot be written, or
        the raw note is damaged."""
        note = instrument.notes[number]
        decoded = self.load(note.attempt.key)
        sample_format, rate = SAMPLE_FORMATS[self.job.file_format], self.job.sample_rate
        released = round(self.job.held_seconds(instrument.voice) * rate) - decoded.trimmed.removed
        audio = decoded.trimmed.audio * np.float32(10.0 ** (instrument.gain_db / 20.0))
        if not len(audio):  # a note that ended at once: players want a sample, be it silent
            audio = np.zeros(1, np.float32)
        begin = round(max(loop.STEADY_SHARE * released, (LEAD_IN_SECONDS + loop.STEADY_SECONDS) * rate))
        stop = released - round(loop.BEFORE_RELEASE_SECONDS * rate)
        looped = loop.find_loop(audio, rate, begin, stop) if instrument.looped else None
        audio = looped.audio if looped else audio
        held = loop.as_held(audio, looped.loop if looped else None, rate)
        is_released = instrument.released and self._is_released(note, looped is not None)
        region = self._region(note, looped.loop if looped else None)
        content = sample_bytes(audio, rate, sample_format, region, self._texts(note))
        write_later(self.folder / note.planned.file, content)
        # Measured already, unless more than the gain was changed since.
        changed = looped is not None or rate != self.model.sample_rate
        lufs = loudness(audio, rate) if changed else note.measured.loudness + instrument.gain_db
        return manifest.ManifestRow.from_flat(
            {
                **manifest.rendering_facts(
                    self.job, self.model, note, instrument.first_number + number, decoded.note
                ),
                **manifest.tuning_facts(note),
                "sample_rate": rate,
                "file": note.planned.file,
                "sha256": hashlib.sha256(content).hexdigest(),
                "n_samples": len(audio),
                "codec_hash": self.model.codec_hash,
                "bandwidth_hz": bandwidth_hz(self.job, self.model),
                "lead_in_seconds": LEAD_IN_SECONDS,
                "gain_db": round(instrument.gain_db, 3),
                "loudness_lufs": round(lufs, 3),
                "level_lufs": round(loudness(held, rate), 3),
                "peak_db": round(decibels(float(np.abs(audio).max(initial=0.0))), 3),
                "loop_mode": "no_loop" if looped is None else "loop_continuous",
                "loop_start": None if looped is None else looped.loop.start,
                "loop_end": None if looped is None else looped.loop.end,
                "loop_joint_db": None if looped is None else round(looped.joint_db, 3),
                "release_start": released if is_released and released < len(audio) else None,
            }
        )

    def commit(self, instrument: ChosenInstrument, rows: Sequence[manifest.ManifestRow]) -> None:
        """Writes, once all samples are on the disk, that the instrument is finished: its rows, in order.
        Where they were others before, the .sf2 file and the chords that were made of those go. Raises
        OSError: a file cannot be written."""
        sync(self.folder / row.file for row in rows)
        slug = instrument.voice.slug
        kept = self.kept / f"{slug}.jsonl"
        if kept.exists() and not _holds(kept, rows):
            LibraryFolder(self.folder).drop_extras({slug})
        manifest.write_rows(kept, rows)

    def write_instrument(
        self, instrument: ChosenInstrument, rows: Sequence[manifest.ManifestRow]
    ) -> str | None:
        """Writes the files that samplers load, and those of its chords; returns why there is no .sf2. Raises
        OSError: a file cannot be read or written."""
        plain = self._describe(instrument, rows)
        if self.tuning is not None:
            plain = plain.tuned(self.tuning)
        all_of_it = [plain, *(plain.chord(name, intervals) for name, intervals in self.chords.items())]
        for each in all_of_it:
            atomic_write(self.folder / f"{each.slug}.sfz", instruments.sfz_text(each))
            atomic_write(self.folder / f"{each.slug}.dspreset", instruments.dspreset_text(each))
        if self.sf2:
            try:
                content = sf2_bytes(all_of_it, plain.comment, lambda file: read_audio(self.folder / file))
            except ValueError as error:
                return f"{plain.slug}.sf2 was not written: {error}"
            atomic_write(self.folder / f"{plain.slug}.sf2", content)
        return None

    def _texts(self, note: ChosenNote) -> dict[str, str]:
        planned, (x, y) = note.planned, note.planned.voice.timbre
        return {
            "INAM": f"{planned.voice.name}, pitch {planned.pitch}, velocity {planned.velocity}",
            "ICMT": f"timbre {x:g},{y:g} seed {planned.first_seed + note.attempt.number} "
            f"bundle {self.model.bundle_hash}",
            "ISFT": f"timbrel {software_version()}",
        }

    @cached_property
    def _zones(self) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
        """The keys of each pitch, and the range of each velocity's layer."""
        return instruments.key_zones(self.job.pitches), velocity_zones(self.job.velocities)

    def _region(self, note: ChosenNote, loop: tuple[int, int] | None) -> instruments.Region:
        planned, (keys, velocities) = note.planned, self._zones
        return instruments.Region(
            file=planned.file,
            pitch=planned.pitch,
            keys=keys[planned.pitch],
            velocities=velocities[planned.velocity],
            round_robin=planned.round_robin,
            tune=note.tune_cents,
            loop=loop,
        )

    def _describe(
        self, instrument: ChosenInstrument, rows: Sequence[manifest.ManifestRow]
    ) -> instruments.SamplerInstrument:
        low, high = RELEASE_SECONDS
        hold = instrument.voice.hold
        own = (note.measured.release_seconds for note in instrument.notes)
        release = median(own) if hold is None or hold.release_seconds is None else hold.release_seconds
        levels = [SampleLevel(row.pitch, row.velocity, row.level_lufs, row.peak_db) for row in rows]
        dynamics = Dynamics.fit(levels)
        return instruments.SamplerInstrument(
            name=instrument.voice.name,
            slug=instrument.voice.slug,
            comment=f"rendered by timbrel {software_version()} with bundle {self.model.bundle_hash[:12]}",
            regions=[
                replace(
                    self._region(note, row.loop),
                    volume=dynamics.gain_db(own),
                    release=self._release(note, row),
                )
                for note, row, own in zip(instrument.notes, rows, levels, strict=True)
            ],
            round_robins=self.job.round_robins,
            dynamics=dynamics,
            release_seconds=min(high, max(low, release)),
        )

    def _release(self, note: ChosenNote, row: manifest.ManifestRow) -> instruments.Release | None:
        is_looped = row.loop is not None
        if row.release_start is None or not self._is_released(note, is_looped):
            return None
        decay = 0.0 if is_looped else note.measured.decay or 0.0
        return instruments.Release(row.release_start, self._lost_db(note, decay), decay)

    def _is_released(self, note: ChosenNote, is_looped: bool) -> bool:
        """Tells whether the end of a sample is to be played as its key comes up. Without a loop, one that
        lasts is let go in its file, and would be so again, as loud as it was."""
        decay = note.measured.decay or 0.0
        dies = decay > SUSTAINED_DB_PER_SECOND and self._lost_db(note, decay) <= RELEASE_LOST_DB
        return (is_looped or dies) and decay <= RELEASE_DECAY

    def _lost_db(self, note: ChosenNote, decay: float) -> float:
        """Gives what a note that loses so many dB a second has lost as its key comes up."""
        return decay * self.job.held_seconds(note.planned.voice)


def _holds(path: Path, rows: Sequence[manifest.ManifestRow]) -> bool:
    """Tells whether a file holds these rows."""
    try:
        return list(manifest.read_rows(path)) == list(rows)
    except ValueError:  # damaged, or of another version
        return False


def has_release(notes: Sequence[Measurement]) -> bool:
    """Tells whether most releases of an instrument last, are more than a fade, and suit short notes, too."""
    return (
        median(note.release_seconds for note in notes) >= RELEASE_SAMPLE_SECONDS
        and median(note.release_shape_db for note in notes) >= RELEASE_SAMPLE_DB
        and median(note.rise_db for note in notes) <= RELEASE_RISE_DB
    )


def bandwidth_hz(job: LibraryJob, model: Model) -> float:
    """Gives the highest frequency of a file, in Hz: more samples a second than the codec's add nothing."""
    return min(job.sample_rate, model.sample_rate) / 2.0


@cache
def software_version() -> str:
    """Gives the version of timbrel; "unknown" where it came without its metadata, as in a frozen program."""
    try:
        return version("timbrel")
    except PackageNotFoundError:
        return "unknown"
