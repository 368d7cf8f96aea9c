"""Sounds that wait to be finished."""

from __future__ import annotations

import numpy as np

from timbrel.library.shelf import Sound, SoundShelf
from timbrel.library.store import RawNote
from timbrel.library.trim import Trimmed


def sound(n_samples: int) -> Sound:
    note = RawNote(np.zeros((0, 3), dtype=np.uint16), False)
    return Sound(note, Trimmed(np.zeros(n_samples, dtype=np.float32), 0))


def test_a_sound_is_taken_once() -> None:
    shelf = SoundShelf()
    kept = sound(100)
    shelf.put("a", kept)
    assert shelf.take("a") is kept and shelf.take("a") is None


def test_the_oldest_make_room() -> None:
    shelf = SoundShelf(n_bytes=1000)
    for name in "abc":
        shelf.put(name, sound(100))  # 400 bytes
    assert shelf.take("a") is None
    assert shelf.take("b") is not None and shelf.take("c") is not None
    shelf.put("huge", sound(1000))
    assert shelf.take("huge") is None
    shelf.put("d", sound(250))
    assert shelf.take("d") is not None
