"""The renderer: every note of a job is rendered, kept and measured, and again if it is far off its pitch."""

from __future__ import annotations

import queue
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from timbrel.core.request import NoteRequest
from timbrel.library.plan.job import LibraryJob
from timbrel.library.plan.notes import PlannedNote, note_key
from timbrel.library.render.level import Audio, Trimmed, trim
from timbrel.library.render.measure import Measurement, MeasurementLog, measure
from timbrel.library.render.pitch import TrackerPair, cents_off, correction_cents, find_trackers, is_far_off
from timbrel.library.render.source import NoteSource
from timbrel.library.render.store import Decode, DecodedNote, NoteStore, RawNote, SampleCache
from timbrel.library.render.worker_pool import Urgency, WorkerPool, done_future
from timbrel.progress import bar
from timbrel_bundle.audio import resample


@dataclass(frozen=True)
class Attempt:
    """One rendering of a planned note, measured."""

    number: int
    """Counted from 0."""

    key: str
    measurement: Measurement


@dataclass(frozen=True)
class ChosenNote:
    """A planned note, and which of its attempts is taken."""

    planned: PlannedNote
    attempt: Attempt
    n_attempts: int

    @property
    def measured(self) -> Measurement:
        return self.attempt.measurement

    @property
    def tune_cents(self) -> int:
        """Cents that a sampler is to add."""
        return correction_cents(self.planned.pitch, *self.measured.heard)


class Progress:
    """Follows the attempts at some notes: counts and times the rendering, and shows bars where asked to."""

    def __init__(self, shown: bool = False) -> None:
        self._shown = shown
        self._bar = bar("rendering", None, "note", shown=False)
        self._start = 0.0
        self._seconds_before = 0.0
        self.n_rendered = 0
        """Notes that a server was asked for, and that are kept."""

        self.render_seconds = 0.0
        """Time from the begin of each attempt until the last of its notes was kept."""

    def begin(self, description: str, n_notes: int) -> None:
        """Begins to render so many notes."""
        self._start, self._seconds_before = time.monotonic(), self.render_seconds
        self.close()
        self._bar = bar(description, n_notes, "note", shown=self._shown)

    def rendered(self) -> None:
        """Counts a note that came and is kept."""
        self.n_rendered += 1
        self.render_seconds = self._seconds_before + time.monotonic() - self._start

    def measured(self) -> None:
        """Counts a note that is measured, which is done beside the rendering."""
        self._bar.update()

    def close(self) -> None:
        self._bar.close()


class Renderer:
    """Brings every note of a job into the store, and measures it."""

    def __init__(
        self,
        job: LibraryJob,
        store: NoteStore,
        measured: Path,
        decode: Decode,
        codec_rate: int,
        pool: WorkerPool,
        trackers: TrackerPair | None = None,
    ) -> None:
        """Goes on from the log `measured`; `decode` gives sound at `codec_rate`, in the threads of `pool`.
        `trackers` are by default those that there are."""
        self._job = job
        self._store = store
        trackers = trackers or find_trackers()
        self._log = MeasurementLog(measured, trackers.name)
        self._decode = decode
        self._codec_rate = codec_rate
        self._trackers = trackers
        self._pool = pool
        self._cache = SampleCache()
        self.sample_rate = job.sample_rate
        """Hz of what it loads."""

    def key(self, planned: PlannedNote, attempt: int) -> str:
        """Names an attempt at a note in the store."""
        return note_key(self._job.writer, planned.order(self._job, attempt))

    def missing(self, notes: Iterable[PlannedNote], attempt: int) -> list[tuple[str, NoteRequest]]:
        """Lists (key, order) of what is not in the store yet, none twice."""
        orders = {self.key(planned, attempt): planned.order(self._job, attempt) for planned in notes}
        return [(key, order) for key, order in orders.items() if not self._store.has(key)]

    def render(
        self,
        notes: Sequence[PlannedNote],
        attempt: int,
        source: NoteSource,
        progress: Progress,
        description: str = "rendering",
    ) -> Generator[tuple[int, Attempt], None, None]:
        """Yields (place among the notes, attempt) of each note as soon as that is measured.

        Notes are kept as they come, and measured beside the rendering, with what time that leaves. What is in
        the store is not rendered again, what was measured before is not measured again.

        Raises:
            TimbrelError: a note could not be had.
            OSError: one could not be written. Either way, all that came before is kept.
        """
        # One rendering may be wanted at several places: of two timbres that are one point.
        places: dict[str, list[int]] = {}
        for place, planned in enumerate(notes):
            places.setdefault(self.key(planned, attempt), []).append(place)
        measured: queue.SimpleQueue[tuple[str, Future[Measurement]]] = queue.SimpleQueue()

        def begin(key: str, note: RawNote | None = None) -> None:
            """Begins to measure a note; of the store, unless it is given."""
            if (known := self._log.get(key)) is not None:
                future = done_future(known)
            else:
                planned = notes[places[key][0]]
                future = self._pool.submit(Urgency.MEASURE, self._measure, key, planned, note)
            future.add_done_callback(lambda done: measured.put((key, done)))

        def next_measured() -> Iterator[tuple[int, Attempt]]:
            key, future = measured.get()
            found = Attempt(attempt, key, future.result())
            for place in places.pop(key):
                progress.measured()
                yield place, found

        orders = dict(self.missing(notes, attempt))
        progress.begin(description if attempt == 0 else f"attempt {attempt + 1}", len(notes))
        for key in places:
            if key not in orders:
                begin(key)
        if orders:
            with closing(source.render(orders.items())) as replies:
                for key, note in replies:
                    self._store.save(key, note)
                    progress.rendered()
                    begin(key, note)
                    while not measured.empty():
                        yield from next_measured()
        while places:
            yield from next_measured()

    def choose(
        self, notes: Sequence[PlannedNote], source: NoteSource, progress: Progress
    ) -> Generator[tuple[int, ChosenNote], None, None]:
        """Renders each note, then again those far off, and so on; yields all, each with its place, as soon as
        its attempt is chosen. Errors are those of `render`."""
        tried: list[list[Attempt]] = [[] for _ in notes]
        pending = list(range(len(notes)))
        with closing(progress):
            for number in range(self._job.tries):
                again = []
                some = [notes[index] for index in pending]
                with closing(self.render(some, number, source, progress)) as found:
                    for place, each in found:
                        index = pending[place]
                        tried[index].append(each)
                        far_off = is_far_off(notes[index].pitch, *each.measurement.heard)
                        if far_off and number + 1 < self._job.tries:
                            again.append(index)
                        else:
                            yield index, choose(notes[index], tried[index])
                pending = sorted(again)
                if not pending:
                    return

    def load(self, key: str) -> DecodedNote:
        """Loads a raw note, and its sound at the files' rate; raises OSError where it is gone or damaged."""
        if (decoded := self._cache.take(key)) is not None:
            return decoded
        note = self.note(key)
        return DecodedNote(note, self._trimmed(self._decode(note.codes, note.seed), note))

    def note(self, key: str) -> RawNote:
        """Loads a raw note of the store; raises OSError where it is not there, or damaged."""
        note = self._store.load(key)
        if note is None:
            self._store.drop_damaged()
            raise OSError(
                f"{self._store.path(key)} was damaged and is gone now, as are all others that were; run the "
                "same command to render them again"
            )
        return note

    def _measure(self, key: str, planned: PlannedNote, note: RawNote | None) -> Measurement:
        note = self.note(key) if note is None else note
        audio = self._decode(note.codes, note.seed)
        trimmed = trim(audio, self._codec_rate, note.truncated)
        held = self._job.held_seconds(planned.voice)
        found = measure(audio, trimmed, self._codec_rate, planned.pitch, held, self._trackers)
        self._log.put(key, found)
        same_rate = self._job.sample_rate == self._codec_rate
        self._cache.put(key, DecodedNote(note, trimmed if same_rate else self._trimmed(audio, note)))
        return found

    def _trimmed(self, audio: Audio, note: RawNote) -> Trimmed:
        rate = self._job.sample_rate
        return trim(resample(audio, self._codec_rate, rate), rate, note.truncated)


def choose(planned: PlannedNote, attempts: Sequence[Attempt]) -> ChosenNote:
    """Takes the last attempt where it is good enough, else the one that is least far off."""
    last = attempts[-1]
    if is_far_off(planned.pitch, *last.measurement.heard):
        last = min(attempts, key=lambda attempt: _distance(planned, attempt))
    return ChosenNote(planned, last, len(attempts))


def _distance(planned: PlannedNote, attempt: Attempt) -> float:
    """Takes the cents by the tracker that is nearer to the pitch asked."""
    cents = [cents_off(planned.pitch, each) for each in attempt.measurement.heard]
    return min((abs(each) for each in cents if each is not None), default=float("inf"))
