"""Notes recorded one a file: a folder of WAV or FLAC files named by MIDI number, with or without a CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from timbrel_training.notes.envelope import sounding_samples
from timbrel_training.notes.folder_listing import Entry, list_folder
from timbrel_training.notes.hold import Hold, find_hold
from timbrel_training.notes.note import Note
from timbrel_training.notes.recording import read_recording, trim_onset


class FolderSource:
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
        self._entries: dict[str, list[Entry]] = {}
        for entry in list_folder(self.folder):
            self._entries.setdefault(entry.instrument, []).append(entry)

    @property
    def licences(self) -> Mapping[str, str]:
        return {self.name: self.licence}

    def settings(self) -> Mapping[str, object]:
        entries = [entry for group in self._entries.values() for entry in group]
        return {"notes": [entry.to_json(self.folder) for entry in entries], "sample_rate": self.sample_rate}

    def groups(self) -> Sequence[str]:
        return list(self._entries)

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def __iter__(self) -> Iterator[Note]:
        for group in self.groups():
            yield from self.notes(group)

    def notes(self, group: str) -> Iterator[Note]:
        for entry in self._entries[group]:
            yield self._note(entry)

    def _note(self, entry: Entry) -> Note:
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
