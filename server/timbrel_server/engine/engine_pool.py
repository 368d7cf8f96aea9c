"""Several engines behind one queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from timbrel_server.engine.engine import (
    LONGEST_RETRY_SECONDS,
    SHORTEST_RETRY_SECONDS,
    Engine,
    Post,
    StepRunner,
)
from timbrel_server.engine.fair_queue import FairQueue
from timbrel_server.engine.metronome import Metronome
from timbrel_server.engine.observer import EngineObserver
from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.queue_limits import QueueFull, QueueLimits
from timbrel_server.engine.request import NoteRequest
from timbrel_server.engine.ticket import Delivery, Ticket
from timbrel_server.errors import OverloadedError, UnavailableError


class EnginePool:
    """Accepts requests from any thread: each goes to the engine with the most free slots, and waits here
    while there is none. Those who ask take turns, and what cannot be written in time is refused at once.

    One engine for each device; where one of several dies, its notes fail and the others go on.
    """

    def __init__(
        self,
        runners: Sequence[StepRunner],
        layout: TokenLayout,
        queue_capacity: int,
        post: Post,
        on_death: Callable[[], None] = lambda: None,
        *,
        metronome: Metronome | None = None,
        queue_frames: int | None = None,
        observer: EngineObserver | None = None,
    ) -> None:
        """
        Args:
            runners: one for each engine, at least one.
            queue_capacity: requests that may wait for a slot of any; a quarter more of callers who have less
                than their share.
            queue_frames: frames of work that may wait; by default three quarters of what that number of
                the longest notes would be.
            post: as the engines call it, each on its own thread.
            on_death: called once the last engine has died.
            metronome: what live notes keep to.
            observer: told how requests and engines fare.
        """
        self._observer = observer or EngineObserver()
        most_frames = queue_frames or max(1, queue_capacity * layout.max_frames * 3 // 4)
        self._limits = QueueLimits(queue_capacity, most_frames)
        self._n_flushing = layout.n_codebooks - 1  # steps that a note needs beyond one per frame
        self._post = post
        self._on_death = on_death
        # Taken before an engine's own lock, never within it. Guards what follows.
        self._lock = threading.RLock()
        self._waiting = FairQueue()
        self._refusal: str | None = None  # why nothing is accepted any more
        self._n_living = len(runners)
        self._engines = [
            Engine(
                runner,
                layout,
                queue_capacity=runner.buckets[-1],  # filled no further than it has slots
                post=post,
                on_death=self._bury,
                metronome=metronome,
                on_room=self._fill,
                observer=self._observer,
            )
            for runner in runners
        ]

    @property
    def n_slots(self) -> int:
        """Notes that can be written at once."""
        return sum(engine.n_slots for engine in self._engines)

    @property
    def n_occupied(self) -> int:
        """Slots in use."""
        return sum(engine.n_occupied for engine in self._engines)

    @property
    def n_waiting(self) -> int:
        """Requests that have no slot yet."""
        with self._lock:
            return len(self._waiting) + sum(engine.n_waiting for engine in self._engines)

    @property
    def is_accepting(self) -> bool:
        """Whether requests are taken at all: engines that have died or been stopped take none."""
        return self._refusal is None

    @property
    def frames_waiting(self) -> int:
        """Frames of work that have no slot yet: as many as keys are held for."""
        with self._lock:
            return self._waiting.n_frames

    @property
    def step_seconds(self) -> float:
        """Of a step, lately, on the fastest engine. 0 before the first."""
        return min(engine.step_seconds for engine in self._engines)

    def start(self) -> None:
        """Starts the engines' threads."""
        for engine in self._engines:
            engine.start()

    @property
    def steps_in_progress(self) -> Sequence[int | None]:
        """As `Engine.step_in_progress`, of each."""
        return [engine.step_in_progress for engine in self._engines]

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Gives up what is in hand and ends the threads; they have ended when this returns, or time is up."""
        self._refuse("the server is shutting down")
        for engine in self._engines:
            engine.stop(timeout_seconds)

    def fail(self, reason: str) -> None:
        """Gives up what is in hand, though a step may never end; nothing more is accepted."""
        self._refuse(reason)
        for engine in self._engines:
            engine.fail(reason)

    def submit(self, request: NoteRequest, receive: Callable[[Delivery], None]) -> Ticket:
        """As `Engine.submit`, from nobody in particular."""
        ticket = Ticket(request, receive)
        self.accept(ticket)
        return ticket

    def accept(self, ticket: Ticket, seconds_left: float | None = None) -> None:
        """Takes a request on.

        Args:
            seconds_left: until it is of no use any more; None where there is no such time.

        Raises:
            OverloadedError: the queue is full, or the note cannot be written in time.
            UnavailableError: the engines have stopped.
        """
        with self._lock:
            if self._refusal is not None:
                raise UnavailableError(self._refusal)
            if seconds_left is not None:
                self._check_time(ticket, seconds_left)
            try:
                self._limits.enter(ticket)
            except QueueFull as full:
                if not ticket.origin.patient:
                    self._observer.refused()
                seconds = min(engine.seconds_to_room(ticket.request) for engine in self._engines)
                raise OverloadedError(str(full), seconds) from None
            ticket.receive = self._observer.follow(ticket.receive)
            self._waiting.append(ticket)
            self._fill()

    def release(self, ticket: Ticket) -> None:
        """As `Engine.release`."""
        with self._lock:
            if ticket in self._waiting:
                ticket.release(0)
            else:
                for engine in self._engines:
                    engine.release(ticket)

    def cancel(self, ticket: Ticket) -> None:
        """As `Engine.cancel`."""
        self._observer.cancelled(ticket.receive)
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                self._limits.leave(ticket)
            else:
                for engine in self._engines:
                    engine.cancel(ticket)

    def _fill(self) -> None:
        """Hands out what waits to those that have room."""
        if not self._waiting:  # so that an engine that has nothing to gain does not wait for the lock
            return
        with self._lock:
            while self._waiting:
                engine = max(self._engines, key=lambda each: each.n_room)
                if engine.n_room == 0:
                    return
                ticket = self._waiting.popleft()
                try:
                    engine.accept(ticket)
                except UnavailableError:  # it has just died, and has room no more
                    self._waiting.appendleft(ticket)
                else:
                    self._limits.leave(ticket)

    def _check_time(self, ticket: Ticket, seconds_left: float) -> None:
        """Raises OverloadedError where the key goes up too late for what has its turn before."""
        if any(engine.n_room for engine in self._engines):
            return  # it is the caller's own haste, and no better later: the deadline itself will tell
        n_running = sum(engine.n_frames_left for engine in self._engines)
        n_ahead = n_running + self._waiting.frames_ahead(ticket.origin.caller)
        wait = n_ahead / self.n_slots * self.step_seconds
        own = (ticket.request.held_frames + self._n_flushing) * self.step_seconds
        if wait + own > seconds_left:
            self._observer.refused()
            raise OverloadedError(
                f"this note needs about {wait + own:.3g} seconds, {wait:.3g} of them waiting;"
                f" its deadline leaves {max(0.0, seconds_left):.3g}",
                min(max(wait + own - seconds_left, SHORTEST_RETRY_SECONDS), LONGEST_RETRY_SECONDS),
            )

    def _bury(self) -> None:
        with self._lock:
            self._n_living -= 1
            if self._n_living > 0:
                return
        self._refuse("the engine has died")
        self._on_death()

    def _refuse(self, reason: str) -> None:
        with self._lock:
            self._refusal = self._refusal or reason
            given_up = self._waiting.drain()
            for ticket in given_up:
                self._limits.leave(ticket)
        if given_up:
            self._post([(ticket, Delivery(error=UnavailableError(reason))) for ticket in given_up])
