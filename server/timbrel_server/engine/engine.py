"""The engine: one thread that writes many notes at once, a step at a time."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from timbrel_server.engine.chunker import Chunker
from timbrel_server.engine.metronome import Metronome
from timbrel_server.engine.observer import EngineObserver
from timbrel_server.engine.outbox import Outbox
from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.request import NoteRequest
from timbrel_server.engine.scheduler import Move, QueueFull, Scheduler
from timbrel_server.engine.slots import Slot
from timbrel_server.engine.ticket import Delivery, Ticket
from timbrel_server.errors import OverloadedError, UnavailableError

_log = logging.getLogger(__name__)

SHORTEST_RETRY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 10.0

NOTICEABLE_WAIT_SECONDS = 0.1
"""A note that waited longer for its slot came late."""

UNTIMED_FRAME_RATE = 1e6
"""So many frames a second that no note ever waits for its tick."""


class StepRow(NamedTuple):
    """What one row of a step reads."""

    row: int
    position: int
    """The step of this row's note, from 0."""
    tokens: Sequence[int]  # [K]
    held: bool


class StepRunner(Protocol):
    """What runs the graphs. All but the attributes is called on the engine's thread only."""

    buckets: Sequence[int]
    """Batch sizes that can be run, rising; the last is the number of slots."""

    can_move: bool

    def admit(self, row: int, request: NoteRequest) -> None:
        """Prepares a row for a new note."""

    def move(self, source: int, target: int) -> None:
        """Copies a running note to another row."""

    def step(self, rows: Sequence[StepRow]) -> list[list[int]]:
        """Moves these rows on by one position; returns the tokens [K] that each drew, in the order given."""


Post = Callable[[Sequence[tuple[Ticket, Delivery]]], None]
"""Hands out deliveries, in order, without blocking; called on the engine's thread, or on that of `fail`."""


class Engine:
    """Accepts requests from any thread, and writes their notes on its own.

    Requests join, are released and leave between steps. Notes that are played live move on with the metronome
    and wait between its ticks, while all others are written as fast as it goes. Once the thread has died or
    been stopped, requests in hand get UnavailableError and new ones are refused with it.
    """

    def __init__(
        self,
        runner: StepRunner,
        layout: TokenLayout,
        queue_capacity: int,
        post: Post,
        on_death: Callable[[], None] = lambda: None,
        *,
        metronome: Metronome | None = None,
        on_room: Callable[[], None] = lambda: None,
        observer: EngineObserver | None = None,
    ) -> None:
        """
        Args:
            queue_capacity: requests that may wait for a slot.
            on_death: called on the engine's thread when it ends by an error.
            metronome: what notes with `lead_frames` keep to; without one, they too run as fast as it goes.
            on_room: called on the engine's thread after each step that leaves slots free.
            observer: told of admissions and steps.
        """
        self._observer = observer or EngineObserver()
        self._runner = runner
        self._metronome = metronome or Metronome(UNTIMED_FRAME_RATE)
        self._on_room = on_room
        self._scheduler = Scheduler(layout, runner.buckets, queue_capacity, compacts=runner.can_move)
        self._post = post
        self._on_death = on_death
        self._changed = threading.Condition()  # guards the scheduler and all below
        self._chunkers: dict[Ticket, Chunker] = {}
        self._outbox = Outbox()
        self._refusal: str | None = None  # why nothing is accepted any more
        self._step_seconds = 0.0  # running mean
        self._n_steps = 0
        self._stepping = False
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)

    @property
    def n_slots(self) -> int:
        """Notes that can be written at once."""
        return self._runner.buckets[-1]

    @property
    def n_occupied(self) -> int:
        """Slots in use."""
        with self._changed:
            return self._scheduler.n_occupied

    @property
    def n_waiting(self) -> int:
        """Requests that have no slot yet."""
        with self._changed:
            return self._scheduler.n_waiting

    @property
    def n_room(self) -> int:
        """Further requests that would have a slot from the next step on."""
        with self._changed:
            return 0 if self._refusal is not None else self._scheduler.n_room

    @property
    def n_frames_left(self) -> int:
        """Frames that the notes in hand will go on for, at least: until their keys go up."""
        with self._changed:
            return self._scheduler.n_frames_left

    @property
    def step_seconds(self) -> float:
        """Of a step, lately. 0 before the first."""
        return self._step_seconds

    @property
    def step_in_progress(self) -> int | None:
        """The number of the step that is being taken; None between steps."""
        return self._n_steps if self._stepping else None

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Gives up what is in hand and ends the thread; it has ended when this returns, but for a timeout."""
        with self._changed:
            self._refusal = self._refusal or "the server is shutting down"
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def fail(self, reason: str) -> None:
        """Gives up what is in hand, though a step that is being taken may never end. From any thread."""
        self._give_up(reason)

    def submit(self, request: NoteRequest, receive: Callable[[Delivery], None]) -> Ticket:
        """Accepts a request; its deliveries go to `receive`, by way of `post`.

        Raises:
            OverloadedError: the queue is full.
            UnavailableError: the engine has stopped.
        """
        ticket = Ticket(request, receive)
        self.accept(ticket)
        return ticket

    def accept(self, ticket: Ticket) -> None:
        """Takes a ticket that was made elsewhere; errors are those of `submit`."""
        with self._changed:
            if self._refusal is not None:
                raise UnavailableError(self._refusal)
            try:
                self._scheduler.enqueue(ticket)
            except QueueFull:
                waiting = self._scheduler.n_waiting
                raise OverloadedError(
                    f"{waiting} requests are waiting already", self.seconds_to_room(ticket.request)
                ) from None
            self._chunkers[ticket] = _chunker_of(ticket)
            self._changed.notify()

    def release(self, ticket: Ticket) -> None:
        """The key goes up: the gate of every frame that no step has begun yet is closed.

        The note has then exactly the codes of a request for `ticket.held_frames`. A key that is up already,
        or whose note has ended, is let be; a note that still waits for its slot is held as shortly as may be.
        """
        with self._changed:
            self._scheduler.release(ticket)
            self._changed.notify()

    def cancel(self, ticket: Ticket) -> None:
        """Gives a request up: nothing more is delivered from the next step on. Finished ones are let be."""
        with self._changed:
            self._scheduler.cancel(ticket)
            self._chunkers.pop(ticket, None)
            self._outbox.drop(ticket)
            self._changed.notify()

    def seconds_to_room(self, request: NoteRequest) -> float:
        """When a place in the queue should be free, if the notes ahead are about as long as this one."""
        seconds = self._step_seconds * request.held_frames / self.n_slots
        return min(max(seconds, SHORTEST_RETRY_SECONDS), LONGEST_RETRY_SECONDS)

    def step(self) -> None:
        """Moves every running note that is due on by one frame position."""
        self._n_steps += 1
        self._stepping = True
        try:
            due, rows = self._admit()
            drawn = self._run(rows)
            self._publish(due, drawn)
        finally:  # one that raised has ended too: its engine has died, and has not stalled
            self._stepping = False

    def _admit(self) -> tuple[list[Slot], list[StepRow]]:
        """The slots that are to move on, by row, and what the step reads."""
        with self._changed:
            tick = self._metronome.tick
            admission = self._scheduler.admit(tick)
            active = self._scheduler.active
            due = [slot for slot in active if slot.is_due(tick)]
            for slot in due:
                slot.begin_step()
            rows = [_step_row(slot) for slot in active] if due else []
            begun = [(slot.row, slot.ticket.request) for slot in admission.begun]
            for slot in admission.begun:
                self._note_wait(slot.ticket)
        self._prepare(begun, admission.moves)
        return due, rows

    def _note_wait(self, ticket: Ticket) -> None:
        waited = ticket.waited_seconds = time.monotonic() - ticket.submitted
        if waited > NOTICEABLE_WAIT_SECONDS:
            self._chunkers[ticket].note_came_late()
        self._observer.admitted(waited)

    def _prepare(self, begun: Sequence[tuple[int, NoteRequest]], moves: Sequence[Move]) -> None:
        for row, request in begun:
            self._runner.admit(row, request)
        for move in moves:
            self._runner.move(move.source, move.target)

    def _run(self, rows: Sequence[StepRow]) -> dict[int, list[int]]:
        """Tokens [K] by row.

        Notes that are not due run along, and what they draw is dropped: their next step does the same again
        at the same position, to the same effect. Left out, they would lose what their cache holds.
        """
        if not rows:
            return {}
        started = time.monotonic()
        drawn = self._runner.step(rows)
        seconds = time.monotonic() - started
        self._step_seconds += 0.1 * (seconds - self._step_seconds)
        self._observer.stepped(seconds, len(rows))
        return {row.row: tokens for row, tokens in zip(rows, drawn, strict=True)}

    def _publish(self, due: Sequence[Slot], drawn: Mapping[int, Sequence[int]]) -> None:
        with self._changed:
            for slot in due:
                if slot.active:
                    self._advance(slot, drawn[slot.row])
            goes_on = self._scheduler.has_work(self._metronome.tick)
            deliveries = self._outbox.take(again_in_seconds=self._step_seconds if goes_on else math.inf)
            has_room = self._scheduler.n_room > 0
        if deliveries:
            self._post(deliveries)
        if has_room:
            self._on_room()

    def _advance(self, slot: Slot, tokens: Sequence[int]) -> None:
        """Puts what there is to deliver of this slot's note into the outbox, after a step that drew these."""
        ticket = slot.ticket
        chunker = self._chunkers[ticket]
        urgent = chunker.is_urgent
        frame = slot.advance(tokens)
        frames = chunker.add(frame) if frame is not None else ()
        if slot.finish is not None:
            del self._chunkers[ticket]
            self._outbox.put(ticket, Delivery([*frames, *chunker.flush()], slot.finish), urgent=urgent)
        elif frames:
            self._outbox.put(ticket, Delivery(frames), urgent=urgent)

    def _main(self) -> None:
        try:
            while self._wait_for_work():
                self.step()
        except BaseException:
            _log.exception("the engine has died")
            self._give_up("the engine has died")
            self._on_death()
        else:
            self._give_up("the server is shutting down")

    def _wait_for_work(self) -> bool:
        """Sleeps until there is something to do; returns False once it is time to end."""
        with self._changed:
            while self._refusal is None and not self._scheduler.has_work(self._metronome.tick):
                # Only notes that wait for their tick are here, if any.
                self._changed.wait(self._metronome.seconds_to_next if self._scheduler.n_occupied else None)
            return self._refusal is None

    def _give_up(self, reason: str) -> None:
        with self._changed:
            self._refusal = reason
            given_up = self._scheduler.drain()
            self._scheduler.admit()  # frees the slots
            self._chunkers.clear()
            written = self._outbox.take()
        if written or given_up:
            errors = [(ticket, Delivery(error=UnavailableError(reason))) for ticket in given_up]
            self._post([*written, *errors])


def _chunker_of(ticket: Ticket) -> Chunker:
    if ticket.whole:
        return Chunker.of_whole_notes()
    return Chunker() if ticket.request.lead_frames is None else Chunker.of_live_notes()


def _step_row(slot: Slot) -> StepRow:
    progress = slot.progress
    return StepRow(slot.row, progress.position, progress.tokens, progress.position < slot.ticket.held_frames)
