"""Plays the keys of a sampler one at a time and records them, dry, as notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from timbrel_training.notes.cleaning import audio_digest
from timbrel_training.notes.config import NotesConfig
from timbrel_training.notes.note import Note, draw_note
from timbrel_training.notes.recording import DECAY, FLOOR, MonoFold, choose_fold, fade_out, sounding_samples

FADE_SECONDS = 0.02
"""A recording that is cut while it sounds fades over this much, so as not to click."""
REFERENCE_VELOCITY = 100
REFERENCE_SAMPLES = 48_000
"""The cell's reference sounding, one second at 48 kHz: chooses the mono fold, tells equal cells."""
CHUNK_SAMPLES = 9_600
"""The release is read in pieces of 0.2 s at 48 kHz until one of them is silent."""


class Sampler(Protocol):
    """An instrument with keys, of which one sounds at a time."""

    block: int
    """Samples are read in multiples of this; a key goes down, and up, at exactly the next sample read."""

    def note_on(self, pitch: int, velocity: int) -> None:
        """Puts the key down at the next sample that is read, with nothing else sounding."""

    def note_off(self) -> None:
        """Lets the key go at the next sample that is read."""

    @property
    def sounding(self) -> bool:
        """True while any voice is alive."""

    def read(self, n_samples: int) -> NDArray[np.float32]:
        """Returns the next samples: [2, n_samples], a multiple of `block`."""


@dataclass(frozen=True)
class Cell:
    """A pitch of an instrument, and what its reference sounding tells about it."""

    instrument: str
    family: str
    pitch: int
    source: str
    fold: MonoFold
    digest: bytes


@dataclass(frozen=True)
class NoteRecorder:
    """Records draws: velocities over 1..127, holds log-uniform from 0.1 s, the onset over `onset_seconds`.

    The release is recorded until it is 60 dB below the note's peak.
    """

    sample_rate: int = NotesConfig.sample_rate  # Hz
    onset_seconds: float = NotesConfig.onset_seconds
    max_held_seconds: float = NotesConfig.max_held_seconds
    max_seconds: float = NotesConfig.max_seconds

    def cell(self, sampler: Sampler, instrument: str, family: str, pitch: int, source: str) -> Cell:
        """Plays the reference sounding of a cell."""
        sampler.note_on(pitch, REFERENCE_VELOCITY)
        stereo = sampler.read(REFERENCE_SAMPLES // sampler.block * sampler.block)
        silent = not np.any(np.abs(stereo) > FLOOR)
        digest = b"" if silent else audio_digest(stereo)
        return Cell(instrument, family, pitch, source, choose_fold(stereo), digest)

    def note(self, sampler: Sampler, cell: Cell, index: int) -> Note:
        """Records draw number `index` of a cell."""
        draw = draw_note(cell.instrument, cell.pitch, index, max_held=self.max_held_seconds)
        held_samples = max(1, round(draw.held_seconds * self.sample_rate / sampler.block)) * sampler.block
        onset = round(draw.onset * self.onset_seconds * self.sample_rate)
        limit = int(self.max_seconds * self.sample_rate) - onset
        audio, cut = self._record(sampler, cell, draw.velocity, held_samples, limit)
        return Note(
            audio=np.concatenate([np.zeros(onset, np.float32), audio]),
            sample_rate=self.sample_rate,
            instrument=cell.instrument,
            family=cell.family,
            pitch=cell.pitch,
            velocity=draw.velocity,
            held_seconds=(onset + held_samples) / self.sample_rate,
            source=cell.source,
            cut=cut,
            cell_digest=cell.digest,
        )

    def _record(
        self, sampler: Sampler, cell: Cell, velocity: int, held_samples: int, limit: int
    ) -> tuple[NDArray[np.float32], bool]:
        """Returns audio [samples] of one note, and whether it had to be cut at `limit` samples."""
        limit = limit // sampler.block * sampler.block
        chunk = CHUNK_SAMPLES // sampler.block * sampler.block
        sampler.note_on(cell.pitch, velocity)
        pieces = [cell.fold(sampler.read(min(held_samples, limit)))]
        sampler.note_off()
        n_samples = len(pieces[0])
        peak = float(np.abs(pieces[0]).max())
        while n_samples < limit and sampler.sounding:
            pieces.append(cell.fold(sampler.read(min(chunk, limit - n_samples))))
            n_samples += len(pieces[-1])
            level = float(np.abs(pieces[-1]).max())
            peak = max(peak, level)
            if level <= max(FLOOR, DECAY * peak):
                break
        audio = np.concatenate(pieces)
        length = sounding_samples(audio, self.sample_rate)
        if cut := length == limit:
            audio = fade_out(audio, int(FADE_SECONDS * self.sample_rate))
        return audio[:length], cut
