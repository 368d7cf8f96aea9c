"""The first phase: raw notes of a whole job, and again those that come out far off their pitch."""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from timbrel.library.background import Urgency, WorkerPool
from timbrel.library.codec import Decode
from timbrel.library.job import LibraryJob
from timbrel.library.key import note_key
from timbrel.library.level import Audio
from timbrel.library.measure import Measurement, measure
from timbrel.library.measured import MeasurementBook
from timbrel.library.pitch import TrackerPair
from timbrel.library.plan import NoteOrder, PlannedNote
from timbrel.library.shelf import Sound, SoundShelf
from timbrel.library.source import NoteSource
from timbrel.library.store import NoteStore, RawNote
from timbrel.library.trim import Trimmed, trim
from timbrel.library.tuning import Verdict, cents_off, judge
from timbrel_bundle.audio import resample


class Progress:
    """Is told how far an attempt has come. This one does nothing."""

    def begin(self, n_notes: int, n_there: int) -> None:
        """So many notes are wanted, of which some are in the store."""

    def rendered(self, n_notes: int) -> None:
        """So many more came, and are kept."""

    def listening(self) -> None:
        """All are there; some are yet to be measured."""

    def measured(self, n_notes: int) -> None:
        """So many more are measured."""


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
        pool: WorkerPool,
    ) -> None:
        """
        Args:
            measured: file of what was measured before.
            codec_rate: sample rate of what `decode` gives.
            pool: where notes are decoded and measured.
        """
        self._job = job
        self._store = store
        self._book = MeasurementBook(measured, trackers.name)
        self._decode = decode
        self._codec_rate = codec_rate
        self._trackers = trackers
        self._pool = pool
        self._shelf = SoundShelf()

    def key(self, planned: PlannedNote, attempt: int) -> str:
        return note_key(self._job.writer, planned.order(self._job, attempt))

    def missing(self, notes: Iterable[PlannedNote], attempt: int) -> list[tuple[str, NoteOrder]]:
        """(key, order) of what is not in the store yet, none twice."""
        orders = {self.key(planned, attempt): planned.order(self._job, attempt) for planned in notes}
        return [(key, order) for key, order in orders.items() if not self._store.has(key)]

    def render(
        self, notes: Sequence[PlannedNote], attempt: int, source: NoteSource, progress: Progress
    ) -> Generator[tuple[int, Attempt], None, None]:
        """The attempts of these notes: (place among the notes, attempt) of each as soon as it is measured.

        Notes are kept as they come, and measured beside the rendering, with what time that leaves. What is in
        the store is not rendered again, what was measured before is not measured again.

        Raises:
            TimbrelError: a note could not be had.
            OSError: one could not be written. Either way, all that came before is kept.
        """
        asked = _Asked(notes, [self.key(planned, attempt) for planned in notes], attempt, progress)
        orders = dict(self.missing(notes, attempt))
        progress.begin(len(notes), len(notes) - len(orders))
        self._pool.step_back(modest=bool(orders))
        for key, planned in asked.notes.items():
            if key not in orders:
                asked.expect(key, self._begin(key, planned))
        yield from asked.ready()
        for key, note in self._fetch(orders, source):
            progress.rendered(1)
            asked.expect(key, self._begin(key, asked.notes[key], note))
            yield from asked.ready()
        progress.listening()
        if orders:
            self._pool.step_back(modest=False)
        yield from asked.rest()

    def load(self, key: str) -> Sound:
        """A raw note of the store, and its sound at the rate of the library's files.

        Raises:
            OSError: it is not there, or damaged.
        """
        sound = self._shelf.take(key)
        if sound is None:
            note = self.note(key)
            sound = Sound(note, self._trimmed(self._decode(note.codes), note))
        return sound

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

    def _fetch(
        self, orders: dict[str, NoteOrder], source: NoteSource
    ) -> Generator[tuple[str, RawNote], None, None]:
        """Keeps each note as it comes, and yields it with its key."""
        if not orders:
            return
        with closing(source.render(orders.items())) as replies:
            for key, note in replies:
                self._store.save(key, note)
                yield key, note

    def _begin(self, key: str, planned: PlannedNote, note: RawNote | None = None) -> Future[Measurement]:
        """Begins to measure a note; of the store, unless it is given."""
        known = self._book.get(key)
        if known is None:
            return self._pool.submit(Urgency.MEASURE, self._measure, key, planned.pitch, note)
        future: Future[Measurement] = Future()
        future.set_result(known)
        return future

    def _measure(self, key: str, asked: int, note: RawNote | None) -> Measurement:
        note = self.note(key) if note is None else note
        audio = self._decode(note.codes)
        trimmed = trim(audio, self._codec_rate, note.truncated)
        found = measure(audio, trimmed, self._codec_rate, asked, self._job.seconds, self._trackers)
        self._book.put(key, found)
        same_rate = self._job.sample_rate == self._codec_rate
        self._shelf.put(key, Sound(note, trimmed if same_rate else self._trimmed(audio, note)))
        return found

    def _trimmed(self, audio: Audio, note: RawNote) -> Trimmed:
        rate = self._job.sample_rate
        return trim(resample(audio, self._codec_rate, rate), rate, note.truncated)


class _Asked:
    """One attempt at some notes, under way: what is measured, in the order in which that is done."""

    def __init__(
        self, notes: Sequence[PlannedNote], keys: Sequence[str], attempt: int, progress: Progress
    ) -> None:
        self._attempt = attempt
        self._progress = progress
        # One rendering may be wanted at several places: of two timbres that are one point.
        self._places: dict[str, list[int]] = {}
        for place, key in enumerate(keys):
            self._places.setdefault(key, []).append(place)
        self._measured: queue.SimpleQueue[tuple[str, Future[Measurement]]] = queue.SimpleQueue()
        self.notes = {key: notes[places[0]] for key, places in self._places.items()}
        """By their keys, each once."""

    def expect(self, key: str, measurement: Future[Measurement]) -> None:
        """This is going to be measured."""
        measurement.add_done_callback(lambda done: self._measured.put((key, done)))

    def ready(self) -> Iterator[tuple[int, Attempt]]:
        """What is measured by now."""
        while not self._measured.empty():
            yield from self._next()

    def rest(self) -> Iterator[tuple[int, Attempt]]:
        """All that is left, as it is measured."""
        while self._places:
            yield from self._next()

    def _next(self) -> Iterator[tuple[int, Attempt]]:
        key, future = self._measured.get()
        measurement = future.result()
        for place in self._places.pop(key):
            self._progress.measured(1)
            yield place, Attempt(self._attempt, key, measurement)


def settle(
    notes: Sequence[PlannedNote],
    tries: int,
    attempt: Callable[[Sequence[PlannedNote], int], Generator[tuple[int, Attempt], None, None]],
) -> Generator[tuple[int, ChosenNote], None, None]:
    """All of these notes, each with its place, as soon as it is settled.

    That is the first attempt of each, then another of those far off, and so on.

    Args:
        attempt: renders and measures some of them; told the attempt's number, from 0.
    """
    tried: list[list[Attempt]] = [[] for _ in notes]
    pending = list(range(len(notes)))
    for number in range(tries):
        again = []
        with closing(attempt([notes[index] for index in pending], number)) as found:
            for place, each in found:
                index = pending[place]
                tried[index].append(each)
                if number + 1 < tries and verdict_of(notes[index], each) is Verdict.AGAIN:
                    again.append(index)
                else:
                    yield index, choose(notes[index], tried[index])
        pending = sorted(again)
        if not pending:
            return


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
