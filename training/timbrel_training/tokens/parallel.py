"""A codec at work in several processes."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterable, Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from types import TracebackType

import numpy as np
import torch
from numpy.typing import NDArray

from timbrel_training.codec.interface import Codec, encode_note
from timbrel_training.codec.torchaudio_stand_in import import_encodec
from timbrel_training.notes.library import AudioLibrary

CHUNK = 16
"""Notes handed to a process at a time."""


class ParallelEncoder:
    """Codes notes of a library, in order.

    Args:
        library: at the codec's sample rate.
        codec: in evaluation mode, on the CPU.
        jobs: processes; with one, the work is done here.
    """

    def __init__(self, library: AudioLibrary, codec: Codec, jobs: int) -> None:
        self._library, self._codec = library, codec
        self._pool: Pool | None = None
        if jobs > 1:
            context = multiprocessing.get_context("spawn")
            self._pool = context.Pool(jobs, _begin, (library.path, pickle.dumps(codec)))

    def __enter__(self) -> ParallelEncoder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.terminate()

    def encode(self, notes: Iterable[int]) -> Iterator[NDArray[np.uint16]]:
        """Codes [T, K] of each of these notes of the library."""
        if self._pool is not None:
            return self._pool.imap(_encode_in_worker, notes, CHUNK)
        return (_encode(self._library, self._codec, note) for note in notes)


_worker: tuple[AudioLibrary, Codec] | None = None
"""What a worker process works with."""


def _begin(path: Path, pickled: bytes) -> None:
    global _worker
    import_encodec()  # before anything that unpickling would import with the torchaudio that it lacks
    torch.set_num_threads(1)
    _worker = AudioLibrary(path), pickle.loads(pickled)


def _encode_in_worker(note: int) -> NDArray[np.uint16]:
    assert _worker is not None
    return _encode(*_worker, note)


def _encode(library: AudioLibrary, codec: Codec, note: int) -> NDArray[np.uint16]:
    audio = torch.from_numpy(library.audio(note))
    return encode_note(codec, audio, float(library.index["pitch"][note])).numpy().astype(np.uint16)
