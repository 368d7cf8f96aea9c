"""The first phase: raw notes of a whole job, and again those that come out far off their pitch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from timbrel.library.background import BackgroundPool
from timbrel.library.codec import Decode, SoundShelf
from timbrel.library.job import LibraryJob
from timbrel.library.key import note_key
from timbrel.library.level import Audio
from timbrel.library.measure import MEASURE_VERSION, Measurement, measure
from timbrel.library.pitch import TrackerPair
from timbrel.library.plan import NoteOrder, PlannedNote
from timbrel.library.source import NoteSource
from timbrel.library.store import NoteStore, RawNote
from timbrel.library.tuning import Verdict, cents_off, judge
from timbrel_bundle.files import atomic_write

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
        self._shelf = SoundShelf()

    def key(self, planned: PlannedNote, attempt: int) -> str:
        return note_key(self._job.writer, planned.order(self._job, attempt))

    def missing(self, notes: Iterable[PlannedNote], attempt: int) -> list[tuple[str, NoteOrder]]:
        """(key, order) of what is not in the store yet, none twice."""
        orders = {self.key(planned, attempt): planned.order(self._job, attempt) for planned in notes}
        return [(key, order) for key, order in orders.items() if not self._store.has(key)]

    def render(
        self,
        notes: Sequence[PlannedNote],
        attempt: int,
        source: NoteSource,
        rendered: Tick,
        measuring: Callable[[], Tick],
    ) -> list[Attempt]:
        """The attempts of these notes, in order: each is kept as soon as it comes, and measured beside that.

        What is in the store is not rendered again, what was measured before is not measured again.

        Args:
            rendered: told of each note that came.
            measuring: called once all are there; what it gives is told of each that is measured.

        Raises:
            TimbrelError: a note could not be had.
            OSError: one could not be written. Either way, all that came before is kept.
        """
        keys = [self.key(planned, attempt) for planned in notes]
        missing = dict(self.missing(notes, attempt))
        with BackgroundPool(self._n_threads) as pool:
            begun = {}
            for key in self._fetch(missing, source):
                rendered(1)
                begun[key] = pool.submit(self._measure, key)
        measured = self._measure_rest(list(dict.fromkeys(keys)), begun, measuring())
        return [Attempt(attempt, key, measured[key]) for key in keys]

    def load(self, key: str) -> tuple[RawNote, Audio]:
        """A raw note of the store and its sound at the codec's rate.

        Raises:
            OSError: it is not there, or damaged.
        """
        note = self.note(key)
        audio = self._shelf.take(key)
        return note, self._decode(note.codes) if audio is None else audio

    def _fetch(self, orders: dict[str, NoteOrder], source: NoteSource) -> Iterable[str]:
        """Keeps each note as it comes, and yields its key."""
        if not orders:
            return
        with closing(source.render(orders.items())) as replies:
            for key, note in replies:
                self._store.save(key, note)
                yield key

    def _measure_rest(
        self, keys: Sequence[str], begun: dict[str, Future[Measurement]], tick: Tick
    ) -> dict[str, Measurement]:
        """What was measured beside the rendering, and now, with nothing to be modest for, all the others."""
        with ThreadPoolExecutor(self._n_threads) as pool:
            found = {
                key: begun[key]
                if key in begun and not begun[key].cancelled()
                else pool.submit(self._measure, key)
                for key in keys
            }
            try:
                return {key: _told(future.result(), tick) for key, future in found.items()}
            finally:
                pool.shutdown(cancel_futures=True)

    def note(self, key: str) -> RawNote:
        """A raw note of the store; raises OSError where it is not there, or damaged."""
        note = self._store.load(key)
        if note is None:
            path = self._store.path(key)
            path.unlink(missing_ok=True)
            raise OSError(
                f"{path} was damaged and is gone now; run the same command to render that note again"
            )
        return note

    def _measure(self, key: str) -> Measurement:
        path = self._measured / key[:2] / f"{key}.json"
        identity = {"version": MEASURE_VERSION, "trackers": self._trackers.name}
        if (known := _read_measurement(path, identity)) is not None:
            return known
        note = self.note(key)
        audio = self._decode(note.codes)
        found = measure(audio, self._codec_rate, self._job.seconds, note.truncated, self._trackers)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps({**identity, "measurement": found.to_json()}))
        self._shelf.put(key, audio)
        return found


def _told(measurement: Measurement, tick: Tick) -> Measurement:
    tick(1)
    return measurement


def settle(
    notes: Sequence[PlannedNote], tries: int, attempt: Callable[[Sequence[PlannedNote], int], list[Attempt]]
) -> list[ChosenNote]:
    """All of these notes: the first attempt of each, then another of those far off, and so on.

    Args:
        attempt: renders and measures some of them; told the attempt's number, from 0.
    """
    attempts: list[list[Attempt]] = [[] for _ in notes]
    pending = list(range(len(notes)))
    for number in range(tries):
        found = attempt([notes[index] for index in pending], number)
        for index, each in zip(pending, found, strict=True):
            attempts[index].append(each)
        pending = [
            index for index in pending if verdict_of(notes[index], attempts[index][-1]) is Verdict.AGAIN
        ]
        if not pending:
            break
    return [choose(planned, tried) for planned, tried in zip(notes, attempts, strict=True)]


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
