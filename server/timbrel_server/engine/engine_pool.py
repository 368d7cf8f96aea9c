"""Several engines behind one queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from timbrel_server.engine.delivery import Post
from timbrel_server.engine.engine import Engine, StepRunner
from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.request import Delivery, EngineObserver, RequestHandle
from timbrel_server.engine.request_queue import QueueFull, RequestQueue
from timbrel_server.engine.scheduler import FrameClock
from timbrel_server.errors import OverloadedError, UnavailableError

SHORTEST_RETRY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 10.0

SPARE_SLOTS = 16
"""Of so many slots, live notes leave one to callers who have less than their share."""


class EnginePool:
    """Accepts requests from any thread into the queue that its engines take them from: the one with the most
    free slots comes first. Callers take turns, and what cannot be written in time is refused at once.

    One engine for each device; where one of several dies, its notes fail and the others go on. Once the last
    has died, or the pool was stopped, requests in hand get UnavailableError, and new ones are refused so.
    """

    def __init__(
        self,
        runners: Sequence[StepRunner],
        layout: TokenLayout,
        queue_capacity: int,
        post: Post,
        on_death: Callable[[], None] = lambda: None,
        *,
        frame_clock: FrameClock | None = None,
        queue_frames: int | None = None,
        caller_share: float = 1.0,
        observer: EngineObserver | None = None,
    ) -> None:
        """
        Args:
            runners: one for each engine, at least one.
            queue_capacity: requests that may wait for a slot of any; a quarter more of callers who have less
                than their share.
            queue_frames: frames of work that may wait; by default three quarters of what that number of
                the longest notes would be.
            caller_share: of all slots, for one caller in the company of one who asks for less.
            post: as the engines call it, each on its own thread.
            on_death: called once the last engine has died.
            frame_clock: times live notes.
            observer: is told how requests and engines fare.
        """
        self._observer = observer or EngineObserver()
        most_frames = queue_frames or max(1, queue_capacity * layout.max_frames * 3 // 4)
        self._queue = RequestQueue(queue_capacity, most_frames)
        self._caller_share = caller_share
        self._changed = self._queue.changed  # guards what follows
        self._n_flushing = layout.last_delay  # steps that a note needs beyond one per frame
        self._post = post
        self._on_death = on_death
        self._refusal: str | None = None  # why nothing is accepted any more
        self.engines = [  # those that have not died
            Engine(
                runner,
                layout,
                self._queue,
                post,
                self._engine_died,
                frame_clock=frame_clock,
                observer=self._observer,
            )
            for runner in runners
        ]
        self._share_out()

    @property
    def n_slots(self) -> int:
        """Notes that can be written at once."""
        return sum(engine.n_slots for engine in self.engines) if self.is_accepting else 0

    @property
    def n_occupied(self) -> int:
        """Slots in use."""
        return sum(engine.n_occupied for engine in self.engines)

    @property
    def is_full(self) -> bool:
        """Whether no slot is free, or soon to be."""
        with self._changed:
            return self._queue.n_free <= 0 and not self._queue.n_dying

    @property
    def n_waiting(self) -> int:
        """Requests that have no slot yet."""
        with self._changed:
            return len(self._queue)

    @property
    def is_accepting(self) -> bool:
        """Whether requests are taken at all: engines that have died or been stopped take none."""
        return self._refusal is None

    @property
    def steps_in_progress(self) -> Sequence[int | None]:
        """`Engine.step_in_progress` of each."""
        return [engine.step_in_progress for engine in self.engines]

    def start(self) -> None:
        """Starts the engines' threads; they are warm when this returns. Raises what kept them from it."""
        for engine in self.engines:
            engine.start()
        try:
            for engine in self.engines:
                engine.wait_until_warm()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Gives up what is in hand and ends the threads; they have ended when this returns."""
        self._refuse("the server is shutting down")
        for engine in self.engines:
            engine.stop()

    def fail(self, reason: str) -> None:
        """Gives up what is in hand, though a step may never end; nothing more is accepted."""
        self._refuse(reason)
        for engine in self.engines:
            engine.fail(reason)

    def check_room(self, caller: str) -> None:
        """Raises OverloadedError where `accept` would refuse this caller whatever it asks for: to be asked
        before it is read what that is, since who is refused should cost next to nothing."""
        with self._changed:
            if self._refusal is None:
                try:
                    self._queue.check_room(caller)
                except QueueFull as full:
                    raise self._overloaded(full, self._queue.mean_frames) from None

    def accept(
        self, handle: RequestHandle, seconds_left: float | None = None, *, at_once: bool = False
    ) -> None:
        """Takes a request on; its deliveries go to `handle.receive`, by way of `post`.

        Args:
            seconds_left: until it is of no use any more; None where there is no such time.
            at_once: whether it is to have a slot now or not at all: no key is let go of for it.

        Raises:
            OverloadedError: the queue is full, or the note cannot be written in time, or at once.
            UnavailableError: the engines have stopped.
        """
        with self._changed:
            if self._refusal is not None:
                raise UnavailableError(self._refusal)
            if seconds_left is not None:
                self._check_time(handle, seconds_left)
            if at_once and not self._queue.finds_slot(handle):
                raise OverloadedError("there is no free slot", SHORTEST_RETRY_SECONDS)
            try:
                self._queue.put(handle)
            except QueueFull as full:
                raise self._overloaded(full, handle.request.held_frames) from None
            self._observer.accepted(handle)
            self._changed.notify_all()

    def release(self, handle: RequestHandle) -> None:
        """The key goes up, as of `Engine.release`; a note that still waits for its slot is held as shortly as
        may be."""
        with self._changed:
            if handle in self._queue:
                handle.release(0)
            else:
                for engine in self.engines:
                    engine.release(handle)
                self._changed.notify_all()

    def cancel(self, handle: RequestHandle) -> None:
        """Gives a request up: it leaves the queue at once, or its slot as of `Engine.cancel`."""
        self._observer.cancelled(handle)
        with self._changed:
            if handle in self._queue:
                self._queue.remove(handle)
            else:
                for engine in self.engines:
                    engine.cancel(handle)
            self._changed.notify_all()

    def _overloaded(self, full: QueueFull, n_frames: float) -> OverloadedError:
        """Counts a refusal. A place in the queue should be free once a note of so many frames is written."""
        self._observer.refused()
        seconds = min(engine.step_seconds * n_frames / engine.n_slots for engine in self.engines)
        return OverloadedError(str(full), _retry_seconds(seconds))

    def _check_time(self, handle: RequestHandle, seconds_left: float) -> None:
        """Raises OverloadedError where the key goes up too late for what has its turn before."""
        if self._queue.n_free > 0:
            return  # it is the caller's own haste, and no better later: the deadline itself will tell
        n_running = sum(engine.n_frames_left for engine in self.engines)
        n_ahead = n_running + self._queue.frames_ahead(handle.client.caller)
        step_seconds = min(engine.step_seconds for engine in self.engines)
        wait = n_ahead / self.n_slots * step_seconds
        own = (handle.request.held_frames + self._n_flushing) * step_seconds
        if wait + own > seconds_left:
            self._observer.refused()
            raise OverloadedError(
                f"this note needs about {wait + own:.3g} seconds, {wait:.3g} of them waiting;"
                f" its deadline leaves {max(0.0, seconds_left):.3g}",
                _retry_seconds(wait + own - seconds_left),
            )

    def _engine_died(self) -> None:
        with self._changed:
            if living := [engine for engine in self.engines if not engine.has_ended]:
                self.engines = living
                self._share_out()
                return
        self._refuse("the engine has died")
        self._on_death()

    def _share_out(self) -> None:
        """Says how many of the slots one caller, and live notes, may take."""
        self._queue.share = max(1, int(self.n_slots * self._caller_share))
        self._queue.most_live = self.n_slots - self.n_slots // SPARE_SLOTS

    def _refuse(self, reason: str) -> None:
        with self._changed:
            self._refusal = self._refusal or reason
            given_up = self._queue.drain()
        if given_up:
            self._post([(handle, Delivery(error=UnavailableError(reason))) for handle in given_up])


def _retry_seconds(seconds: float) -> float:
    return min(max(seconds, SHORTEST_RETRY_SECONDS), LONGEST_RETRY_SECONDS)
