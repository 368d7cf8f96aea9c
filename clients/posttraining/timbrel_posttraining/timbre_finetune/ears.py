"""Hearing takes as `locate` hears recordings: trimmed, at one level, coded without knowing the pitch."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import AudioError
from timbrel_bundle.timbre_encoder import TimbreEncoder
from timbrel_posttraining.evaluate.cache import TakeCache
from timbrel_posttraining.evaluate.listener import Sounds
from timbrel_posttraining.timbre_finetune.lessons import Lesson
from timbrel_training.notes.dataset import NoteDataset

CHUNK = 8
"""Lessons handed to a process at a time."""


class Ears:
    """Codes what `locate` would go by. One per process.

    Args:
        bundle: its folder, whose codec hears.
        library: of the source notes.
        cache: of the notes that the bundle wrote.
    """

    def __init__(self, bundle: Path, library: Path, cache: TakeCache) -> None:
        opened = Bundle.open(bundle, verify=False)  # checked by whoever started this
        self._sounds = Sounds(opened, NoteDataset(library), cache)
        self._encoder = TimbreEncoder(opened, n_threads=1)
        self._n_codebooks = opened.manifest.codec.n_codebooks

    def hear(self, lesson: Lesson) -> NDArray[np.uint16]:
        """Codes [T, K]; none where there is too little to hear."""
        audio, rate = self._sounds.of(lesson.take)
        rest = audio[round(lesson.start * rate) :]
        heard = rest[: round(lesson.share * len(rest))]
        try:
            return self._encoder.encode(heard, rate, lesson.hint)
        except AudioError:
            return np.zeros((0, self._n_codebooks), np.uint16)


@contextmanager
def listening(
    bundle: Path, library: Path, cache: TakeCache, lessons: Iterable[Lesson], jobs: int
) -> Iterator[Iterator[NDArray[np.uint16]]]:
    """Yields the codes of each lesson, in order, as several processes hear them; 1 works in this one."""
    if jobs <= 1:
        yield map(Ears(bundle, library, cache).hear, lessons)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield pool.imap(partial(_hear, bundle, library, cache), lessons, CHUNK)


def _hear(bundle: Path, library: Path, cache: TakeCache, lesson: Lesson) -> NDArray[np.uint16]:
    return _ears(bundle, library, cache).hear(lesson)


@functools.cache
def _ears(bundle: Path, library: Path, cache: TakeCache) -> Ears:
    """Of a worker process, made with its first lesson."""
    return Ears(bundle, library, cache)
