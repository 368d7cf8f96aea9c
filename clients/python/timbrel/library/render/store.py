"""Raw notes: on disk, decoded into sound, and kept as sound until they are finished."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from timbrel.client import Client
from timbrel.decoder import Decoder
from timbrel.files import cache_folder
from timbrel.library.plan.folder import write_later
from timbrel.library.render.level import Audio, Trimmed

Decode = Callable[[npt.NDArray[np.uint16], int], Audio]
"""codes [frames, codebooks], seed -> audio [samples] at the codec's rate"""

MAX_NOTE_BYTES = 2**25
"""What a raw note may take once it is unpacked; the longest that a manifest allows takes less."""

CACHED_BYTES = 256 * 2**20
"""Some 600 notes of two seconds at 48 kHz."""


@dataclass(frozen=True)
class RawNote:
    """A note as a server wrote it."""

    codes: npt.NDArray[np.uint16]
    """[frames, codebooks]"""

    truncated: bool
    """Whether it was cut at the bundle's cap."""

    seed: int = 0
    """Of the note, and of its sound."""


class NoteStore:
    """Raw notes by key, in a folder: one file each, there as a whole or not at all.

    Safe to use from several threads.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._is_swept = False

    def path(self, key: str) -> Path:
        """Names a note's file. Two levels, since folders of a hundred thousand files are slow."""
        return self._folder / key[:2] / f"{key}.npz"

    def has(self, key: str) -> bool:
        """Tells whether it is there; an empty file is all that a power cut may leave of one."""
        try:
            return self.path(key).stat().st_size > 0
        except OSError:
            return False

    def save(self, key: str, note: RawNote) -> None:
        """Writes a note; equal ones make equal bytes.

        A kill loses nothing of what was saved; a power cut may lose its last seconds, which are then rendered
        again.

        Raises:
            OSError: it cannot be written, for example because the disk is full. Nothing is left of it then.
        """
        content = io.BytesIO()
        np.savez(content, codes=note.codes, truncated=np.bool_(note.truncated), seed=np.uint64(note.seed))
        write_later(self.path(key), content.getvalue())

    def load(self, key: str) -> RawNote | None:
        """Reads a note; None where there is none, or a damaged file: it is to be rendered again."""
        try:
            if self.path(key).stat().st_size > MAX_NOTE_BYTES:
                return None
            with np.load(self.path(key), allow_pickle=False) as content:
                if sum(member.file_size for member in content.zip.infolist()) > MAX_NOTE_BYTES:
                    return None
                codes, truncated = content["codes"], bool(content["truncated"])
                seed = int(content["seed"]) if "seed" in content else 0
        except Exception:  # whatever a damaged file makes of zipfile, zlib and numpy: MemoryError, too
            return None
        return RawNote(codes, truncated, seed) if codes.ndim == 2 and codes.dtype == np.uint16 else None

    def drop_damaged(self) -> None:
        """Removes all notes that `load` cannot read: where one is damaged, others often are, and a job that
        told of one at a time would have to be begun again for each. Later calls do nothing."""
        with self._lock:
            if not self._is_swept:
                for path in self._folder.glob("*/*.npz"):
                    if self.load(path.stem) is None:
                        path.unlink(missing_ok=True)
                self._is_swept = True


def note_decoder(client: Client) -> Decoder:
    """Makes a bundle's decoder: one thread a note, so that no file depends on the cores there are."""
    client.prepare()
    return Decoder(cache_folder() / "bundles" / client.model().bundle_hash, n_threads=1)


@dataclass(frozen=True)
class DecodedNote:
    """A raw note and its sound."""

    note: RawNote
    trimmed: Trimmed
    """The sound, at the rate of the library's files."""

    @property
    def n_bytes(self) -> int:
        return self.trimmed.audio.nbytes + self.note.codes.nbytes


class SampleCache:
    """Decoded notes by their keys, so that none is decoded twice between being measured and being finished.

    It holds as many as there is room for: the oldest make place. Safe to use from several threads.
    """

    def __init__(self, n_bytes: int = CACHED_BYTES) -> None:
        self._room = n_bytes
        self._lock = threading.Lock()
        self._notes: dict[str, DecodedNote] = {}

    def put(self, key: str, note: DecodedNote) -> None:
        """Keeps a note, in place of the oldest ones where there is no room."""
        with self._lock:
            self._remove(key)
            self._notes[key] = note
            self._room -= note.n_bytes
            while self._room < 0:
                self._remove(next(iter(self._notes)))

    def take(self, key: str) -> DecodedNote | None:
        """Removes a note and gives it back; None where it is not there."""
        with self._lock:
            return self._remove(key)

    def _remove(self, key: str) -> DecodedNote | None:
        note = self._notes.pop(key, None)
        if note is not None:
            self._room += note.n_bytes
        return note
