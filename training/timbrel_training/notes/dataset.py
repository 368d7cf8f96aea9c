"""The dataset of notes on disk: cleaned, split notes, their audio and an index.

A dataset is a folder: `audio.i16` (all notes' samples, one after the other, each note scaled to its own peak
so that 16 bits serve quiet notes as well as loud ones), `index.npy` (one row a note) and `library.json`.
`notes.render` makes it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from timbrel_training.errors import TrainingError
from timbrel_training.notes.split import Split, SplitRule

FORMAT = "timbrel-notes-library"
VERSION = 2
AUDIO_FILE = "audio.i16"
INDEX_FILE = "index.npy"
HEADER_FILE = "library.json"

ROW = np.dtype(
    [
        ("offset", "<i8"),  # first sample, counted in samples from the start of the audio file
        ("length", "<i4"),  # samples
        ("scale", "<f4"),  # audio = int16 * scale
        ("instrument", "<i2"),  # index into the header's instruments
        ("family", "<i2"),  # index into the header's families
        ("pitch", "u1"),  # MIDI note number
        ("velocity", "u1"),  # 1..127
        ("held_seconds", "<f4"),
        ("source", "<i2"),  # index into the header's sources
        ("split", "u1"),  # timbrel_training.notes.split.Split
        ("cut", "?"),  # still sounding where the audio ends
    ]
)


class DatasetError(TrainingError):
    """A dataset is missing, incomplete or not one; the message is one line that says what to do."""


class NoteDataset:
    """Memory-mapped notes, and their index as one array [notes] a column. Raises DatasetError: the folder is
    not a dataset, is of another version, or is truncated."""

    length: NDArray[np.int32]  # in samples
    instrument: NDArray[np.int16]  # index into `instruments`
    family: NDArray[np.int16]  # index into `families`
    source: NDArray[np.int16]  # index into `sources`
    pitch: NDArray[np.uint8]  # MIDI note numbers
    velocity: NDArray[np.uint8]  # 1..127
    held_seconds: NDArray[np.float32]
    split: NDArray[np.uint8]  # values of Split
    cut: NDArray[np.bool_]  # whether the note was still sounding where its audio ends

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.header = _read_header(self.path)
        self.index: NDArray[np.void] = _read_index(self.path)
        for name in ROW.names or ():
            setattr(self, name, np.ascontiguousarray(self.index[name]))
        try:
            sources, instruments = self.header["sources"], self.header["instruments"]
            self.sample_rate = int(self.header["sample_rate"])
            self.sources: list[str] = [str(entry["name"]) for entry in sources]
            self.licences: dict[str, str] = {str(entry["name"]): str(entry["licence"]) for entry in sources}
            self.instruments: list[str] = [str(entry["name"]) for entry in instruments]
            self.instrument_families: list[str] = [str(entry["family"]) for entry in instruments]
            self.families: list[str] = list(self.header["families"])
            n_samples = int(self.header["n_samples"])
        except (KeyError, OverflowError, TypeError, ValueError):
            raise DatasetError(f"{self.path / HEADER_FILE}: damaged; render the dataset again") from None
        self._audio = _map_audio(self.path, n_samples)
        self._check_index(n_samples)

    def _check_index(self, n_samples: int) -> None:
        """Raises DatasetError where a row names what there is not."""
        rows = self.index
        ends = rows["offset"].astype(np.int64) + rows["length"]
        within = (rows["offset"] >= 0) & (rows["length"] > 0) & (ends <= n_samples)
        for column, n in (
            ("instrument", len(self.instruments)),
            ("family", len(self.families)),
            ("source", len(self.sources)),
            ("split", len(Split)),
            ("pitch", 128),
            ("velocity", 128),
        ):
            within &= (rows[column] >= 0) & (rows[column] < n)
        if not (within & np.isfinite(rows["scale"]) & np.isfinite(rows["held_seconds"])).all():
            raise DatasetError(f"{self.path / INDEX_FILE}: damaged; render the dataset again")

    @property
    def fingerprint(self) -> str:
        """Names these very notes, in this order: the SHA-256 of their index and of its names, in hex."""
        names = json.dumps([self.sources, self.instruments, self.families])
        return hashlib.sha256(self.index.tobytes() + names.encode()).hexdigest()

    @property
    def rule(self) -> SplitRule:
        """The rule by which notes of it were held out. Raises DatasetError: the header does not say it."""
        try:
            return SplitRule.from_json(self.header["split"])
        except (KeyError, TypeError, ValueError):
            raise DatasetError(f"{self.path / HEADER_FILE}: damaged; render the dataset again") from None

    def __len__(self) -> int:
        return len(self.index)

    def audio(self, i: int, start: int = 0, n_samples: int | None = None) -> NDArray[np.float32]:
        """Returns the audio [samples] of note `i`, or a piece; past the end a piece is shorter."""
        row = self.index[i]
        begin = int(row["offset"]) + start
        end = int(row["offset"]) + int(row["length"])
        if n_samples is not None:
            end = min(end, begin + n_samples)
        return self._audio[begin:end].astype(np.float32) * row["scale"]

    def of_split(self, *splits: Split) -> NDArray[np.intp]:
        """Returns the numbers of the notes in any of these splits."""
        return np.flatnonzero(np.isin(self.index["split"], splits))

    def name(self, i: int) -> str:
        """Returns the instrument's name of note `i`."""
        return self.instruments[int(self.index["instrument"][i])]


def _read_header(path: Path) -> dict[str, Any]:
    try:
        header = json.loads((path / HEADER_FILE).read_text())
    except FileNotFoundError:
        raise DatasetError(f"{path}: not a dataset of notes ({HEADER_FILE} is missing)") from None
    except ValueError:
        raise DatasetError(f"{path / HEADER_FILE}: damaged; render the dataset again") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise DatasetError(f"{path / HEADER_FILE}: not the header of a dataset of notes")
    if header.get("version") != VERSION:
        raise DatasetError(
            f"{path}: dataset version {header.get('version')}, this timbrel reads {VERSION}; render it again"
        )
    return header


def _read_index(path: Path) -> NDArray[np.void]:
    try:
        index: NDArray[np.void] = np.load(path / INDEX_FILE)
    except Exception as error:  # numpy reads what begins a file as Python, and raises what that runs into
        raise DatasetError(f"{path / INDEX_FILE}: missing or damaged; render the dataset again") from error
    if index.dtype != ROW:
        raise DatasetError(f"{path / INDEX_FILE}: not an index of notes; render the dataset again")
    return index


def _map_audio(path: Path, n_samples: int) -> NDArray[np.int16]:
    file = path / AUDIO_FILE
    if not file.is_file() or file.stat().st_size != 2 * n_samples:
        raise DatasetError(f"{file}: missing or truncated; render the dataset again")
    return np.memmap(file, "<i2", mode="r", shape=(n_samples,)) if n_samples else np.zeros(0, np.int16)
