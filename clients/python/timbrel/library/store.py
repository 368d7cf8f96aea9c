"""Raw notes on disk: one file a note, under its key, there as a whole or not at all."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from timbrel.library.disk import write_later


@dataclass(frozen=True)
class RawNote:
    """What a server wrote."""

    codes: npt.NDArray[np.uint16]
    """[frames, codebooks]"""

    truncated: bool
    """Whether it was cut at the bundle's cap."""


class NoteStore:
    """Notes by key, in a folder. Safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, key: str) -> Path:
        """Two levels: folders of a hundred thousand files are slow."""
        return self._folder / key[:2] / f"{key}.npz"

    def has(self, key: str) -> bool:
        """Whether it is there; an empty file is what a power cut may leave of one."""
        try:
            return self.path(key).stat().st_size > 0
        except OSError:
            return False

    def save(self, key: str, note: RawNote) -> None:
        """Equal notes make equal bytes. A kill loses nothing of what was saved; a power cut may lose the last
        seconds of it, which are then rendered again.

        Raises:
            OSError: it cannot be written, for example because the disk is full. Nothing is left of it then.
        """
        content = io.BytesIO()
        np.savez(content, codes=note.codes, truncated=np.bool_(note.truncated))
        write_later(self.path(key), content.getvalue())

    def load(self, key: str) -> RawNote | None:
        """The note; None where there is none, or a file that is damaged: it is to be rendered again."""
        try:
            with np.load(self.path(key), allow_pickle=False) as content:
                codes, truncated = content["codes"], bool(content["truncated"])
        except FileNotFoundError:
            return None
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            return None
        return RawNote(codes, truncated) if codes.ndim == 2 and codes.dtype == np.uint16 else None
