"""One group of a source, rendered to two small files: the unit of work, and of resuming it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

from timbrel_training.notes.cleaning import Cleaner, audio_digest
from timbrel_training.notes.library.layout import MAX_NAME, PART_ROW
from timbrel_training.notes.note import Note, Source, SourceError

INT16_MAX = 32767


@dataclass(frozen=True)
class PartFiles:
    """Where the part of group number `number` lies."""

    folder: Path
    number: int

    @property
    def audio(self) -> Path:
        return self.folder / f"{self.number:05d}.i16"

    @property
    def rows(self) -> Path:
        """Written last, by rename: a part that has its rows is complete."""
        return self.folder / f"{self.number:05d}.npy"

    @property
    def faults(self) -> Path:
        return self.folder / f"{self.number:05d}.faults"


def render_part(source: Source, group: str, files: PartFiles, cleaner: Cleaner) -> None:
    """Renders a group's notes to its part; notes that are faulty by themselves are dropped here already."""
    rows: list[tuple[object, ...]] = []
    faults: list[str] = []
    offset = 0
    with files.audio.open("wb") as audio_file:
        for note in source.notes(group):
            audio = at_rate(note, source.sample_rate)
            if fault := cleaner.audio_fault(audio):
                faults.append(fault.value)
                continue
            scale = float(np.abs(audio).max()) / INT16_MAX
            np.rint(audio / scale).astype("<i2").tofile(audio_file)
            rows.append(part_row(note, audio, offset, scale))
            offset += len(audio)
    files.faults.write_text("\n".join(faults))
    unfinished = files.rows.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        np.save(file, np.array(rows, PART_ROW))
    unfinished.replace(files.rows)


def part_row(note: Note, audio: NDArray[np.float32], offset: int, scale: float) -> tuple[object, ...]:
    """The PART_ROW of one note."""
    for name in (note.instrument, note.family, note.source):
        if len(name) > MAX_NAME:
            raise SourceError(f"{name[:20]}...: names have at most {MAX_NAME} characters, got {len(name)}")
    values = {
        "offset": offset,
        "length": len(audio),
        "scale": scale,
        "pitch": note.pitch,
        "velocity": note.velocity,
        "held_seconds": note.held_seconds,
        "cut": note.cut,
        "instrument": note.instrument,
        "family": note.family,
        "source": note.source,
        "digest": audio_digest(audio),
        "cell_digest": note.cell_digest.ljust(16, b"\0"),
        "has_cell_digest": bool(note.cell_digest),
    }
    return tuple(values[name] for name in PART_ROW.names or ())


def at_rate(note: Note, sample_rate: int) -> NDArray[np.float32]:
    """The note's audio [samples] at another sample rate."""
    if note.sample_rate == sample_rate:
        return note.audio
    resampled: NDArray[np.float32] = soxr.resample(note.audio, note.sample_rate, sample_rate, quality="HQ")
    return resampled.astype(np.float32)
