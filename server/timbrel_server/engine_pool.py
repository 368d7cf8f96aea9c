"""Several engines behind one queue."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from timbrel_server.engine import Engine, Post, StepRunner
from timbrel_server.errors import OverloadedError, UnavailableError
from timbrel_server.metronome import Metronome
from timbrel_server.progress import TokenLayout
from timbrel_server.request import NoteRequest
from timbrel_server.ticket import Delivery, Ticket


class EnginePool:
    """Accepts requests from any thread, first come, first served: each goes to the engine with the most free
    slots, and waits here while there is none.

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
    ) -> None:
        """
        Args:
            runners: one for each engine, at least one.
            queue_capacity: requests that may wait for a slot of any.
            post: as the engines call it, each on its own thread.
            on_death: called once the last engine has died.
            metronome: what live notes keep to.
        """
        self._capacity = queue_capacity
        self._post = post
        self._on_death = on_death
        # Taken before an engine's own lock, never within it. Guards what follows.
        self._lock = threading.RLock()
        self._waiting: deque[Ticket] = deque()
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

    def start(self) -> None:
        """Starts the engines' threads."""
        for engine in self._engines:
            engine.start()

    def stop(self) -> None:
        """Gives up what is in hand and ends the threads; they have ended when this returns."""
        self._refuse("the server is shutting down")
        for engine in self._engines:
            engine.stop()

    def submit(self, request: NoteRequest, receive: Callable[[Delivery], None]) -> Ticket:
        """As `Engine.submit`."""
        ticket = Ticket(request, receive)
        with self._lock:
            if self._refusal is not None:
                raise UnavailableError(self._refusal)
            if len(self._waiting) >= self._capacity:
                seconds = min(engine.seconds_to_room(request) for engine in self._engines)
                raise OverloadedError(f"{len(self._waiting)} requests are waiting already", seconds)
            self._waiting.append(ticket)
            self._fill()
        return ticket

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
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
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
            given_up = list(self._waiting)
            self._waiting.clear()
        if given_up:
            self._post([(ticket, Delivery(error=UnavailableError(reason))) for ticket in given_up])
