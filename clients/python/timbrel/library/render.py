"""The first phase: raw notes of a whole job, and again those that come out far off their pitch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from timbrel.library.job import LibraryJob
from timbrel.library.key import note_key
from timbrel.library.measure import MEASURE_VERSION, Measurement, measure
from timbrel.library.pitch import TrackerPair
from timbrel.library.plan import NoteOrder, PlannedNote
from timbrel.library.source import NoteSource
from timbrel.library.store import NoteStore, RawNote
from timbrel.library.tuning import Verdict, cents_off, judge
from timbrel_bundle.files import atomic_write

Decode = Callable[[npt.NDArray[np.uint16]], npt.NDArray[np.float32]]
"""codes [frames, codebooks] -> audio [samples] at the codec's rate"""

Tick = Callable[[int], object]
"""Called with the number of notes that are done."""


@dataclass(frozen=True)
class Attempt:
    """One rendering of a planned note, measured."""

    number: int
    """From 0."""

    key: str
    measurement: Measurement


@dataclass(frozen=True)
class ChosenNote:
    """A planned note, and which of its attempts is taken."""

    planned: PlannedNote
    attempt: Attempt
    n_attempts: int


class Renderer:
    """Sees to it that every note of a job is in the store, and measured."""

    def __init__(
        self,
        job: LibraryJob,
        store: NoteStore,
        measured: Path,
        decode: Decode,
        codec_rate: int,
        trackers: TrackerPair,
        n_threads: int,
    ) -> None:
        """
        Args:
            measured: folder of what was measured before.
            codec_rate: sample rate of what `decode` gives.
            n_threads: notes decoded and measured at once.
        """
        self._job = job
        self._store = store
        self._measured = measured
        self._decode = decode
        self._codec_rate = codec_rate
        self._trackers = trackers
        self._n_threads = n_threads

    def key(self, planned: PlannedNote, attempt: int) -> str:
        return note_key(self._job.writer, planned.order(self._job, attempt))

    def missing(self, notes: Iterable[PlannedNote], attempt: int) -> list[tuple[str, NoteOrder]]:
        """(key, order) of what is not in the store yet, none twice."""
        orders = {self.key(planned, attempt): planned.order(self._job, attempt) for planned in notes}
        return [(key, order) for key, order in orders.items() if not self._store.has(key)]

    def fetch(self, orders: Sequence[tuple[str, NoteOrder]], source: NoteSource, tick: Tick) -> None:
        """Renders these and keeps each as soon as it is there.

        Raises:
            TimbrelError: a note could not be had.
            OSError: one could not be written. Either way, all that came before is kept.
        """
        if not orders:
            return
        replies = source.render(orders)
        try:
            for key, note in replies:
                self._store.save(key, note)
                tick(1)
        finally:
            replies.close()

    def measure(self, notes: Sequence[PlannedNote], attempt: int, tick: Tick) -> Iterator[Attempt]:
        """The attempts of these notes in order. What was measured before is not measured again."""
        with ThreadPoolExecutor(self._n_threads) as pool:
            try:
                for each in pool.map(
                    lambda planned: self._measure(self.key(planned, attempt), attempt), notes
                ):
                    tick(1)
                    yield each
            finally:
                pool.shutdown(cancel_futures=True)

    def load(self, key: str) -> tuple[RawNote, npt.NDArray[np.float32]]:
        """A raw note of the store and its sound at the codec's rate.

        Raises:
            OSError: it is not there, or damaged.
        """
        note = self._store.load(key)
        if note is None:
            path = self._store.path(key)
            path.unlink(missing_ok=True)
            raise OSError(
                f"{path} was damaged and is gone now; run the same command to render that note again"
            )
        return note, self._decode(note.codes)

    def _measure(self, key: str, attempt: int) -> Attempt:
        path = self._measured / key[:2] / f"{key}.json"
        identity = {"version": MEASURE_VERSION, "trackers": self._trackers.name}
        if (known := _read_measurement(path, identity)) is not None:
            return Attempt(attempt, key, known)
        note, audio = self.load(key)
        found = measure(audio, self._codec_rate, self._job.seconds, note.truncated, self._trackers)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps({**identity, "measurement": found.to_json()}))
        return Attempt(attempt, key, found)


def verdict_of(planned: PlannedNote, attempt: Attempt) -> Verdict:
    return judge(planned.pitch, attempt.measurement.pitch, attempt.measurement.other_pitch)


def choose(planned: PlannedNote, attempts: Sequence[Attempt]) -> ChosenNote:
    """The last attempt where it is good enough, else the one that is least far off."""
    last = attempts[-1]
    if verdict_of(planned, last) is Verdict.AGAIN:
        last = min(attempts, key=lambda attempt: _distance(planned, attempt))
    return ChosenNote(planned, last, len(attempts))


def _distance(planned: PlannedNote, attempt: Attempt) -> float:
    """By the tracker that is nearer to the pitch asked."""
    heard = (attempt.measurement.pitch, attempt.measurement.other_pitch)
    cents = [cents_off(planned.pitch, each) for each in heard]
    return min((abs(each) for each in cents if each is not None), default=float("inf"))


def _read_measurement(path: Path, identity: dict[str, object]) -> Measurement | None:
    """What was measured before in this very way; None where nothing was."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if {name: found[name] for name in identity} != identity:
            return None
        return Measurement.from_json(found["measurement"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
