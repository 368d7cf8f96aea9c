"""Notes recorded one a file: a folder of WAV or FLAC files named by MIDI number, with or without a CSV."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from timbrel_training.notes.note import Note, OneSource, SourceError
from timbrel_training.notes.recording import Hold, find_hold, read_recording, sounding_samples, trim_onset

SUFFIXES = (".wav", ".flac")
DEFAULT_VELOCITY = 100
UNKNOWN_FAMILY = "Unknown"
COLUMNS = ("file", "pitch", "velocity", "instrument", "family", "held_seconds")

NAME = re.compile(r"(?P<instrument>.*?\D)??(?P<pitch>\d{1,3})(?:[ _-]v(?P<velocity>\d{1,3}))?", re.IGNORECASE)


@dataclass(frozen=True)
class FolderEntry:
    """One recorded note."""

    path: Path
    instrument: str
    family: str
    pitch: int
    velocity: int
    held_seconds: float | None  # None: not stated

    def to_json(self, folder: Path) -> list[object]:
        """Returns what identifies the note, as JSON values."""
        status = self.path.stat() if self.path.is_file() else None
        size, changed = (status.st_size, status.st_mtime_ns) if status else (0, 0)
        told = [self.instrument, self.family, self.pitch, self.velocity, self.held_seconds]
        return [os.path.relpath(self.path, folder), size, changed, *told]


def list_folder(folder: Path) -> list[FolderEntry]:
    """Returns all notes of a folder, sorted by file.

    Raises:
        SourceError: see FolderSource.
    """
    if not folder.is_dir():
        raise SourceError(f"{folder}: no such folder")
    tables = sorted(folder.glob("*.csv"))
    if len(tables) > 1:
        names = ", ".join(table.name for table in tables)
        raise SourceError(f"{folder}: more than one CSV ({names}); keep the one that lists the notes")
    entries = _from_csv(tables[0]) if tables else _from_names(folder)
    if not entries:
        where = tables[0] if tables else folder
        raise SourceError(
            f"{where}: no notes; expected WAV or FLAC files named by MIDI number, such as 060.wav"
        )
    return sorted(entries, key=lambda entry: str(entry.path))


def _from_names(folder: Path) -> list[FolderEntry]:
    files = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    return [_from_name(path) for path in files]


def _from_name(path: Path, instrument: str = "") -> FolderEntry:
    match = NAME.fullmatch(path.stem)
    if match is None:
        raise SourceError(
            f"{path}: no MIDI number at the end of its name; expected 060.wav or piano_060_v100.wav"
        )
    return FolderEntry(
        path=path,
        instrument=instrument or (match["instrument"] or "").strip(" _-") or path.resolve().parent.name,
        family=UNKNOWN_FAMILY,
        pitch=_number(match["pitch"], 0, 127, f"{path}: MIDI number"),
        velocity=_number(match["velocity"] or str(DEFAULT_VELOCITY), 1, 127, f"{path}: velocity"),
        held_seconds=None,
    )


def _from_csv(table: Path) -> list[FolderEntry]:
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            _check_columns(table, rows.fieldnames or ())
            return [_from_row(table, number, row) for number, row in enumerate(rows, start=2)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"{table}: not a readable CSV ({error})") from None


def _check_columns(table: Path, names: Sequence[str]) -> None:
    if "file" not in names:
        raise SourceError(f"{table}: has no column `file`; known columns are {', '.join(COLUMNS)}")
    if unknown := [name for name in names if name not in COLUMNS]:
        raise SourceError(f"{table}: unknown column {unknown[0]!r}; known columns are {', '.join(COLUMNS)}")


def _from_row(table: Path, number: int, row: Mapping[str, str | None]) -> FolderEntry:
    where = f"{table} line {number}"
    cells = {name: (row.get(name) or "").strip() for name in COLUMNS}
    if not cells["file"]:
        raise SourceError(f"{where}: names no file")
    path = table.parent / cells["file"]
    if not path.is_file():
        raise SourceError(f"{where}: {cells['file']} does not exist")
    if cells["pitch"]:
        named = FolderEntry(path, table.resolve().parent.name, UNKNOWN_FAMILY, 0, DEFAULT_VELOCITY, None)
    else:
        named = _from_name(path)
    return FolderEntry(
        path=path,
        instrument=cells["instrument"] or named.instrument,
        family=cells["family"] or named.family,
        pitch=_number(cells["pitch"] or str(named.pitch), 0, 127, f"{where}: pitch"),
        velocity=_number(cells["velocity"] or str(named.velocity), 1, 127, f"{where}: velocity"),
        held_seconds=_seconds(cells["held_seconds"], f"{where}: held_seconds"),
    )


def _number(text: str, low: int, high: int, what: str) -> int:
    if not text.isdecimal() or not low <= int(text) <= high:
        raise SourceError(f"{what} must be {low} to {high}, got {text!r}")
    return int(text)


def _seconds(text: str, what: str) -> float | None:
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds < math.inf:
        raise SourceError(f"{what} must be a positive number, got {text!r}")
    return seconds


class FolderSource(OneSource):
    """The sound files of a folder and its subfolders; one group per instrument.

    File names end in the MIDI number, and perhaps the velocity: `060.wav`, `piano_060.flac`,
    `piano_060_v100.wav`. What precedes the number is the instrument; without it, the folder's name is. One
    CSV file in the folder, if there is any, lists the files instead: columns file, pitch, velocity,
    instrument, family, held_seconds, of which the first is required. Where no hold is stated, silence before
    the sound is cut off and `find_hold` looks for the release.

    Raises:
        SourceError: no such folder, no sound files, a name without a number, a bad CSV, a corrupt file.
    """

    name = "folder"

    def __init__(self, folder: str | Path, *, sample_rate: int = 48_000, licence: str = "unknown") -> None:
        self.folder = Path(folder)
        self.sample_rate = sample_rate
        self.licence = licence
        self._entries: dict[str, list[FolderEntry]] = {}
        for entry in list_folder(self.folder):
            self._entries.setdefault(entry.instrument, []).append(entry)

    def settings(self) -> Mapping[str, object]:
        entries = [entry for group in self._entries.values() for entry in group]
        return {"notes": [entry.to_json(self.folder) for entry in entries], "sample_rate": self.sample_rate}

    def groups(self) -> Sequence[str]:
        return list(self._entries)

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def notes(self, group: str) -> Iterator[Note]:
        for entry in self._entries[group]:
            yield self._note(entry)

    def _note(self, entry: FolderEntry) -> Note:
        audio, sample_rate = read_recording(entry.path)
        if entry.held_seconds is None:
            audio = trim_onset(audio, sample_rate)
        length = sounding_samples(audio, sample_rate)
        stated = entry.held_seconds
        hold = find_hold(audio, sample_rate) if stated is None else Hold(stated, cut=False)
        return Note(
            audio=audio[:length],
            sample_rate=sample_rate,
            instrument=entry.instrument,
            family=entry.family,
            pitch=entry.pitch,
            velocity=entry.velocity,
            held_seconds=hold.seconds,
            source=self.name,
            cut=hold.cut,
        )
