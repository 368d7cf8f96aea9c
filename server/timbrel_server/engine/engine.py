"""The engine: one thread that writes many notes at once, a step at a time."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

import numpy as np
import numpy.typing as npt

from timbrel_server.engine.delivery import Chunker, DeliveryCoalescer, Post
from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.request import Delivery, EngineObserver, NoteRequest, RequestHandle
from timbrel_server.engine.request_queue import RequestQueue
from timbrel_server.engine.scheduler import FrameClock, Scheduler
from timbrel_server.engine.slots import StepInput
from timbrel_server.errors import UnavailableError

_log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
"""An engine without notes looks so often at requests that wait while others write: company that keeps them
from having a slot ends by the clock."""

MOST_TIMES_LONGER = 4.0
"""A step counts as at most so many times longer than those before it: amid what took longer, the process or
the machine stood still, for which notes were refused that had time enough."""

UNTIMED_FRAME_RATE = 1e6
"""So many frames a second that no note ever waits for its tick."""


class StepRunner(Protocol):
    """Runs the graphs. All but the attributes is called on the engine's thread only, `warm_up` first."""

    buckets: Sequence[int]
    """Batch sizes that can be run, rising; the last is the number of slots."""

    can_move: bool

    def warm_up(self) -> None:
        """Runs everything once, so that no note has to wait for what comes with the first run."""

    def admit(self, notes: Sequence[tuple[int, NoteRequest]]) -> None:
        """Prepares rows for new notes."""

    def move(self, source: int, target: int) -> None:
        """Copies a running note to another row."""

    def step(self, given: StepInput) -> npt.NDArray[np.int64]:
        """Moves the first n rows on by one position; returns the tokens [n, K] that they drew, which may
        change with the next step."""


class Engine:
    """Takes requests out of the queue that it shares with others, and writes their notes on its own thread.

    Requests join, are released and leave between steps. Notes that are played live move on with the clock of
    frames and wait between its ticks, while all others are written as fast as it goes. Once the thread has
    died or been stopped, requests in hand get UnavailableError, and no further ones are taken.
    """

    def __init__(
        self,
        runner: StepRunner,
        layout: TokenLayout,
        queue: RequestQueue,
        post: Post,
        on_death: Callable[[], None] = lambda: None,
        *,
        frame_clock: FrameClock | None = None,
        observer: EngineObserver | None = None,
    ) -> None:
        """
        Args:
            on_death: called on the engine's thread when it ends by an error.
            frame_clock: times notes with `frames_ahead`; without one, they too run as fast as it goes.
            observer: is told of admissions and steps.
        """
        self._observer = observer or EngineObserver()
        self._runner = runner
        self._queue = queue
        self._clock = frame_clock or FrameClock(UNTIMED_FRAME_RATE)
        self._scheduler = Scheduler(layout, runner.buckets, queue, compacts=runner.can_move)
        self._slots = self._scheduler.slots
        self._post = post
        self._on_death = on_death
        self._changed = queue.changed  # guards the scheduler and all below
        self._chunkers: dict[RequestHandle, Chunker] = {}  # of running notes
        self._deliveries = DeliveryCoalescer()
        self._end: str | None = None  # why nothing is written any more
        self._step_seconds = 0.0  # running mean
        self._n_steps = 0
        self._stepping = False
        self._warm: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)

    @property
    def n_slots(self) -> int:
        """Notes that can be written at once."""
        return self._runner.buckets[-1]

    @property
    def has_ended(self) -> bool:
        """Whether nothing is written any more."""
        return self._end is not None

    @property
    def n_occupied(self) -> int:
        """Slots in use."""
        with self._changed:
            return self._slots.n_occupied

    @property
    def n_frames_left(self) -> int:
        """Frames that the notes in hand will go on for, at least: until their keys go up."""
        with self._changed:
            return self._slots.n_frames_left

    @property
    def step_seconds(self) -> float:
        """The time that a step has taken lately. 0 before the first."""
        return self._step_seconds

    @property
    def step_in_progress(self) -> int | None:
        """The number of the step that is being taken; None between steps."""
        return self._n_steps if self._stepping else None

    def start(self) -> None:
        """Starts the thread, which warms the runner up before it takes any request."""
        self._thread.start()

    def wait_until_warm(self) -> None:
        """Blocks until it has; raises what that failed with."""
        self._warm.result()

    def stop(self) -> None:
        """Gives up what is in hand and ends the thread; it has ended when this returns."""
        with self._changed:
            self._end = self._end or "the server is shutting down"
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def fail(self, reason: str) -> None:
        """Gives up what is in hand, though a step that is being taken may never end. From any thread."""
        with self._changed:
            self._end = reason
            given_up = self._scheduler.close()
            written = self._deliveries.take()
            self._changed.notify_all()  # what waits is for others now
        if written or given_up:
            errors = [(handle, Delivery(error=UnavailableError(reason))) for handle in given_up]
            self._post([*written, *errors])

    def release(self, handle: RequestHandle) -> None:
        """The key goes up: the gate of every frame that no step has begun yet is closed.

        The note has then exactly the codes of a request for `handle.held_frames`. A key that is up already,
        or whose note has ended, is let be.
        """
        with self._changed:
            self._slots.release(handle)

    def cancel(self, handle: RequestHandle) -> None:
        """Gives a note up: nothing more is delivered from the next step on. Finished ones are let be."""
        with self._changed:
            self._slots.end(handle)
            self._chunkers.pop(handle, None)
            self._deliveries.drop(handle)

    def step(self) -> None:
        """Moves every running note that is due on by one frame position."""
        self._n_steps += 1
        self._stepping = True
        try:
            given = self._admit()
            drawn = self._run(given) if given is not None else None
            self._publish(drawn)
        finally:  # one that raised has ended too: its engine has died, and has not stalled
            self._stepping = False

    def _admit(self) -> StepInput | None:
        """Returns what the step reads; None where no note is to move on.

        Notes that are not due run along where they stand between those that are, and what they draw is
        dropped: their next step does the same again at the same position, to the same effect.
        """
        with self._changed:
            tick, vacates = self._clock.tick, bool(self._slots.done)
            admission = self._scheduler.admit(tick)
            if vacates and len(self._queue):  # another engine may be the one to give what waits a slot now
                self._changed.notify_all()
            given = self._slots.begin_step(tick)
            for _, handle in admission.begun:
                handle.waited_seconds = time.monotonic() - handle.submitted
                self._chunkers[handle] = Chunker.of(handle)
                self._observer.admitted(handle)
        if admission.begun:
            self._runner.admit([(row, handle.request) for row, handle in admission.begun])
        for source, target in admission.moves:
            self._runner.move(source, target)
        return given

    def _run(self, given: StepInput) -> npt.NDArray[np.int64]:
        """Returns tokens [n, K], those that the rows which move on drew among them."""
        started = time.perf_counter()
        drawn = self._runner.step(given)
        seconds = time.perf_counter() - started
        lately = self._step_seconds
        counted = min(seconds, MOST_TIMES_LONGER * lately) if lately else seconds
        self._step_seconds = lately + 0.1 * (counted - lately)
        self._observer.stepped(seconds, self._slots.n_moving)
        return drawn

    def _publish(self, drawn: npt.NDArray[np.int64] | None) -> None:
        with self._changed:
            if drawn is not None:
                now = time.monotonic()
                if rows := self._slots.end_step(drawn, now):
                    self._deliver(rows, now)
            goes_on = self._scheduler.has_work(self._clock.tick)
            deliveries = self._deliveries.take(again_in_seconds=self._step_seconds if goes_on else math.inf)
        if deliveries:
            self._post(deliveries)

    def _deliver(self, rows: Sequence[int], now: float) -> None:
        """Looks at the notes in these rows: delivers the frames that are to go out, ends the notes that are
        complete, and says when to look at the others again.

        Where nothing else of a caller is in hand, the end of a note is all that the caller waits for.
        """
        slots, notes = self._slots, self._slots.notes
        n_ended: Counter[str] = Counter()
        for row in rows:
            handle, finish = slots.handle(row), notes.finish(row)
            chunker = self._chunkers[handle]
            first, is_urgent = chunker.n_sent, chunker.is_urgent
            n_frames = chunker.take(notes.n_complete(row), now, ends=finish is not None)
            if n_frames or finish is not None:
                delivery = Delivery(notes.frames(row, first, first + n_frames), finish)
                self._deliveries.put(handle, delivery, urgent=is_urgent)
            if finish is not None:
                slots.end(handle)
                del self._chunkers[handle]
                n_ended[handle.client.caller] += 1
            else:
                notes.wake(row, *chunker.next_look)
        if any(self._queue.n_in_hand(caller) == n for caller, n in n_ended.items()):
            self._deliveries.hasten()

    def _main(self) -> None:
        try:
            self._runner.warm_up()
        except BaseException as error:  # for whoever waits
            self.fail("the engine has not started")
            self._warm.set_exception(error)
            return
        self._warm.set_result(None)
        try:
            while self._wait_for_work():
                self.step()
        except BaseException:
            _log.exception("the engine has died")
            self.fail("the engine has died")
            self._on_death()
        else:
            self.fail("the server is shutting down")

    def _wait_for_work(self) -> bool:
        """Sleeps until there is something to do; returns False once it is time to end."""
        with self._changed:
            while self._end is None and not self._has_work:
                self._changed.wait(self._longest_sleep)
            return self._end is None

    @property
    def _has_work(self) -> bool:
        """Whether a step has something to do, be it that what is held goes out: the work that it was held for
        may be given up, or another engine's, by now."""
        return self._scheduler.has_work(self._clock.tick) or self._deliveries.n_held > 0

    @property
    def _longest_sleep(self) -> float | None:
        """Seconds after which to look again though nobody has said anything."""
        if self._slots.n_occupied:  # only notes that wait for their tick
            return self._clock.seconds_to_next
        return LOOK_SECONDS if len(self._queue) else None
