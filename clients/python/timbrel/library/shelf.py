"""Sounds between the moment they are measured and the moment they are finished: not decoded twice."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from timbrel.library.store import RawNote
from timbrel.library.trim import Trimmed

KEPT_BYTES = 256 * 2**20
"""Some 600 notes of two seconds at 48 kHz."""


@dataclass(frozen=True)
class Sound:
    """A raw note, and how it sounds."""

    note: RawNote
    trimmed: Trimmed
    """At the rate of the library's files."""

    @property
    def n_bytes(self) -> int:
        return self.trimmed.audio.nbytes + self.note.codes.nbytes


class SoundShelf:
    """Sounds by their notes' keys, as many as there is room for: the oldest make place.

    Safe to use from several threads.
    """

    def __init__(self, n_bytes: int = KEPT_BYTES) -> None:
        self._room = n_bytes
        self._lock = threading.Lock()
        self._sounds: dict[str, Sound] = {}

    def put(self, key: str, sound: Sound) -> None:
        with self._lock:
            self._remove(key)
            self._sounds[key] = sound
            self._room -= sound.n_bytes
            while self._room < 0:
                self._remove(next(iter(self._sounds)))

    def take(self, key: str) -> Sound | None:
        """The sound, which is on the shelf no longer; None where it is not."""
        with self._lock:
            return self._remove(key)

    def _remove(self, key: str) -> Sound | None:
        sound = self._sounds.pop(key, None)
        if sound is not None:
            self._room += sound.n_bytes
        return sound
