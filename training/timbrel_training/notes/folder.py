"""Notes recorded one a file: a folder of sound files named by their notes, with or without a CSV."""

from __future__ import annotations

import copy
import csv
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unicodedata import normalize

import soxr

from timbrel_training.notes.note import (
    UNKNOWN_FAMILY,
    Note,
    Source,
    SourceError,
    agreed_names,
    fold_name,
    is_printable,
)
from timbrel_training.notes.recording import (
    BLOCK_SECONDS,
    Hold,
    find_hold,
    open_recording,
    read_recording,
    sounding_samples,
    trim_onset,
)
from timbrel_training.notes.sample_names import (
    DYNAMICS,
    MOST_LAYERS,
    SampleName,
    read_name,
    read_names,
    without_counts,
)

SUFFIXES = (".wav", ".flac", ".aif", ".aiff", ".mp3", ".ogg")
DEFAULT_VELOCITY = 100
LONGEST_SECONDS = 3600.0
"""No key is held for longer."""
COLUMNS = ("file", "pitch", "velocity", "instrument", "family", "held_seconds")


@dataclass(frozen=True)
class FolderEntry:
    """One recorded note."""

    path: Path
    instrument: str
    family: str
    pitch: int
    velocity: int
    held_seconds: float | None  # None: not stated
    layer: int | None = None
    """The number after a `v` in its name, unless a velocity is stated otherwise."""
    cents_off: float = 0.0
    """How far above its pitch it was recorded; it is resampled by as much."""

    def to_json(self, folder: Path) -> list[object]:
        """Returns what identifies the note, as JSON values."""
        status = self.path.stat() if self.path.is_file() else None
        size, changed = (status.st_size, status.st_mtime_ns) if status else (0, 0)
        told = [self.instrument, self.family, self.pitch, self.velocity, self.held_seconds]
        told += [self.cents_off] if self.cents_off else []
        return [os.path.relpath(self.path, folder), size, changed, *told]


def list_folder(folder: Path, instrument: str = "", family: str = "") -> list[FolderEntry]:
    """Returns all notes of a folder, sorted by file, of this instrument and family where one is given. Raises
    SourceError: see FolderSource."""
    if not folder.is_dir():
        raise SourceError(f"{folder}: no such folder")
    tables = sorted(table for table in folder.glob("*.csv") if not _is_hidden(table, folder))
    if len(tables) > 1:
        names = ", ".join(table.name for table in tables)
        raise SourceError(f"{folder}: more than one CSV ({names}); keep the one that lists the notes")
    entries = _from_csv(tables[0]) if tables else _from_names(folder)
    if not entries:
        where = tables[0] if tables else folder
        raise SourceError(
            f"{where}: no notes; expected {', '.join(SUFFIXES)} files named by MIDI number or note, "
            "such as 060.wav or Violin_C4_mf.wav"
        )
    entries = [
        replace(
            entry,
            instrument=normalize("NFC", instrument or entry.instrument),  # a Mac's file names are decomposed
            family=normalize("NFC", family or entry.family),
        )
        for entry in entries
    ]
    for entry in entries:
        for name in (entry.instrument, entry.family):
            if not is_printable(name):
                raise SourceError(
                    f"{str(entry.path)!r}: the name {name!r} has characters that cannot be printed"
                )
    entries.sort(key=lambda entry: str(entry.path))
    return list(_with_layers(_with_one_name(entries)))


def _with_one_name(entries: Sequence[FolderEntry]) -> list[FolderEntry]:
    """The entries, those of one instrument with one name and one family."""
    agreed = agreed_names((entry.instrument, entry.family) for entry in entries)
    for entry in entries:
        name, family = agreed[fold_name(entry.instrument)]
        if entry.family != UNKNOWN_FAMILY and fold_name(entry.family) != fold_name(family):
            raise SourceError(
                f"{entry.path}: {name!r} is of the family {entry.family!r}, of {family!r} elsewhere; "
                "an instrument has one family"
            )
    named = [agreed[fold_name(entry.instrument)] for entry in entries]
    return [
        replace(entry, instrument=name, family=family)
        for entry, (name, family) in zip(entries, named, strict=True)
    ]


def _with_layers(entries: Iterable[FolderEntry]) -> Iterator[FolderEntry]:
    """The entries, those of an instrument that number layers (v1 to v4) with the velocities of these."""
    layers = defaultdict(set)
    entries = list(entries)
    for entry in entries:
        if entry.layer is not None:
            layers[entry.instrument].add(entry.layer)
    for entry in entries:
        found = layers[entry.instrument]
        if entry.layer is None or len(found) < 2 or not 0 < min(found) <= max(found) <= MOST_LAYERS:
            yield entry
        else:
            yield replace(entry, velocity=round(127 * entry.layer / max(found)))


def _from_names(folder: Path) -> list[FolderEntry]:
    found = (path for path in folder.rglob("*") if not _is_hidden(path, folder))
    files = [path for path in found if path.suffix.lower() in SUFFIXES and path.is_file()]
    names = read_names([path.stem for path in files])
    if nameless := [path for path, name in zip(files, names, strict=True) if name is None]:
        more = f" (and {len(nameless) - 1} more)" if len(nameless) > 1 else ""
        raise _no_note(f"{min(nameless)}{more}")
    in_folders: dict[Path, list[tuple[Path, SampleName]]] = defaultdict(list)
    for path, name in zip(files, names, strict=True):
        if name is not None:
            in_folders[path.parent].append((path, name))
    entries = []
    for listed in in_folders.values():
        instruments = without_counts([name.instrument for _, name in listed])
        for (path, name), instrument in zip(listed, instruments, strict=True):
            entries.append(_named(path, replace(name, instrument=instrument)))
    return entries


def _is_hidden(path: Path, folder: Path) -> bool:
    """Whether a path within a folder is no sample but what a system or an editor keeps beside them."""
    return any(part.startswith(".") or part == "__MACOSX" for part in path.relative_to(folder).parts)


def _named(path: Path, name: SampleName | None) -> FolderEntry:
    if name is None:
        raise _no_note(str(path))
    stated = name.velocity if name.layer is None else name.layer
    velocity = DEFAULT_VELOCITY if stated is None else stated
    return FolderEntry(
        path=path,
        instrument=name.instrument or path.resolve().parent.name,
        family=UNKNOWN_FAMILY,
        pitch=_number(str(name.pitch), 0, 127, f"{path}: MIDI number"),
        velocity=_number(str(velocity), 1, 127, f"{path}: velocity"),
        held_seconds=None,
        layer=name.layer,
    )


def _no_note(where: str) -> SourceError:
    return SourceError(
        f"{where}: no note in its name; expected a MIDI number or a note's name, and perhaps velocity or"
        " dynamics: 060.wav, piano_060_v100.wav, Violin_C#4_mf.wav"
    )


def _from_csv(table: Path) -> list[FolderEntry]:
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            _check_columns(table, rows.fieldnames or ())
            return [_from_row(table, rows.line_num, row) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"{table}: not a readable CSV ({error})") from None


def _check_columns(table: Path, names: Sequence[str]) -> None:
    if "file" not in names:
        known = f"known columns are {', '.join(COLUMNS)}, with commas between"
        raise SourceError(f"{table}: has no column `file`; {known}")
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
    name = read_name(path.stem)
    if cells["pitch"]:
        # A number or a note's name: read as a file's, 60.5 would be note 5.
        note = read_name(cells["pitch"]) if cells["pitch"][0].isalpha() else None
        pitch = _number(str(note.pitch) if note else cells["pitch"], 0, 127, f"{where}: pitch")
        name = replace(name or SampleName(table.resolve().parent.name, pitch, None), pitch=pitch)
    if name and cells["velocity"]:
        name = replace(name, velocity=None, layer=None)
    named = _named(path, name)
    dynamic = DYNAMICS.get(cells["velocity"].casefold())
    return FolderEntry(
        path=path,
        instrument=cells["instrument"] or named.instrument,
        family=cells["family"] or named.family,
        pitch=named.pitch,
        velocity=_number(str(dynamic or cells["velocity"] or named.velocity), 1, 127, f"{where}: velocity"),
        held_seconds=_seconds(cells["held_seconds"], f"{where}: held_seconds"),
        layer=named.layer,
    )


def _number(text: str, low: int, high: int, what: str) -> int:
    text = text.removesuffix(".0")  # as pandas writes a column where some cells are empty
    if not text.isdecimal() or len(text) > 9 or not low <= int(text) <= high:
        raise SourceError(f"{what} must be {low} to {high}, got {text[:20]!r}")
    return int(text)


def _seconds(text: str, what: str) -> float | None:
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds <= LONGEST_SECONDS:
        raise SourceError(f"{what} must be above 0 and at most {LONGEST_SECONDS:g}, got {text!r}")
    return seconds


def _by_instrument(entries: Iterable[FolderEntry]) -> dict[str, list[FolderEntry]]:
    groups: dict[str, list[FolderEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.instrument, []).append(entry)
    return groups


class FolderSource(Source):
    """The sound files of a folder and its subfolders, but for hidden ones; one group per instrument.

    File names say MIDI number or note, and perhaps velocity or dynamics: `060.wav`, `piano_060_v100.flac`,
    `Violin_C#4_mf.mp3`. What precedes these is the instrument; without it, the folder's name is. One CSV
    file in the folder, if there is any, lists the files instead: columns file, pitch, velocity, instrument,
    family, held_seconds, of which the first is required. `instrument` and `family`, where given, are those of
    all notes. Where no hold is stated, silence before the sound is
    cut off and `find_hold` looks for the release.

    Raises:
        SourceError: no such folder, no sound files, a name without a note, a bad CSV, a corrupt file.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        sample_rate: int = 48_000,
        instrument: str = "",
        family: str = "",
        licence: str = "unknown",
    ) -> None:
        self.folder = Path(folder)
        self.name = f"folder {self.folder.resolve().name}"
        self.sample_rate = sample_rate
        self.licence = licence
        self._entries = _by_instrument(list_folder(self.folder, instrument, family))

    def settings(self) -> Mapping[str, object]:
        notes = [entry.to_json(self.folder) for entry in self.entries]
        return {"notes": notes, "sample_rate": self.sample_rate}

    def check(self) -> None:
        faults = {}
        for entry in self.entries:
            try:
                with open_recording(entry.path):
                    pass
            except SourceError as error:
                faults[entry.path] = str(error)
        if len(faults) > 1:
            others = ", ".join(os.path.relpath(path, self.folder) for path in list(faults)[1:])
            raise SourceError(f"{next(iter(faults.values()))}; nor can these be read: {others}")
        for fault in faults.values():
            raise SourceError(fault)

    def groups(self) -> Sequence[str]:
        return list(self._entries)

    @property
    def entries(self) -> list[FolderEntry]:
        """All recordings, instrument by instrument."""
        return [entry for group in self._entries.values() for entry in group]

    def corrected(self, entries: Iterable[FolderEntry]) -> FolderSource:
        """The same recordings, with what these say of them."""
        source = copy.copy(self)
        source._entries = _by_instrument(entries)
        return source

    def notes(self, group: str) -> Iterator[Note]:
        for entry in self._entries[group]:
            yield self._note(entry)

    def _note(self, entry: FolderEntry) -> Note:
        audio, sample_rate = read_recording(entry.path)
        slower = 2.0 ** (entry.cents_off / 1200.0)
        if entry.cents_off:
            audio = soxr.resample(audio, sample_rate, sample_rate * slower, quality="HQ")
        if entry.held_seconds is None:
            audio = trim_onset(audio, sample_rate)
        length = sounding_samples(audio, sample_rate)
        hold = find_hold(audio, sample_rate)
        if entry.held_seconds is not None:
            seconds = entry.held_seconds * slower
            # With the key down to its end, what the file ends with is no release.
            is_held = seconds >= len(audio) / sample_rate - BLOCK_SECONDS
            hold = Hold(seconds, cut=hold.cut and is_held)
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
