"""How much may wait: so many requests, so many frames of work, and a share of both for every caller."""

from __future__ import annotations

from dataclasses import dataclass

from timbrel_server.engine.ticket import Ticket

SPARE_SHARE = 4
"""Beyond the capacity, one in so many places is there for callers who have less than their share waiting: a
caller who fills the queue keeps nobody else out."""

PATIENT_FACTOR = 16
"""So many times the capacity may wait patiently. Each stream's flow control holds it to far less: this bounds
what very many streams may hold."""


class QueueFull(Exception):
    """As much waits as may. Its message says what."""


@dataclass
class _Load:
    n: int = 0
    n_frames: int = 0

    def count(self, ticket: Ticket, change: int) -> None:
        self.n += change
        self.n_frames += change * ticket.request.held_frames


class QueueLimits:
    """Counts what waits, and says what may join. A request of more frames than the bound may wait alone.

    No locks: whoever owns it guards it.
    """

    def __init__(self, capacity: int, n_frames: int) -> None:
        """
        Args:
            capacity: requests that may wait, of those who would rather be refused than wait long.
            n_frames: frames of work that may.
        """
        self._most = _Load(capacity, n_frames)
        self._all = _Load()
        self._by_caller: dict[str, _Load] = {}
        self._n_patient = 0

    def enter(self, ticket: Ticket) -> None:
        """Counts a request in. Raises QueueFull."""
        if ticket.origin.patient:
            if self._n_patient >= PATIENT_FACTOR * self._most.n:
                raise QueueFull(f"{self._n_patient} requests of streams are waiting already")
            self._n_patient += 1
            return
        self._check(ticket)
        self._all.count(ticket, 1)
        self._by_caller.setdefault(ticket.origin.caller, _Load()).count(ticket, 1)

    def leave(self, ticket: Ticket) -> None:
        """Counts one out that `enter` counted in."""
        if ticket.origin.patient:
            self._n_patient -= 1
            return
        self._all.count(ticket, -1)
        load = self._by_caller[ticket.origin.caller]
        load.count(ticket, -1)
        if load.n == 0:
            del self._by_caller[ticket.origin.caller]

    def _check(self, ticket: Ticket) -> None:
        if self._fits(ticket, self._all, self._most):
            return
        n_callers = len(self._by_caller.keys() | {ticket.origin.caller})
        share = _Load(self._most.n // n_callers, self._most.n_frames // n_callers)
        beyond = _Load(
            self._most.n + self._most.n // SPARE_SHARE,
            self._most.n_frames + self._most.n_frames // SPARE_SHARE,
        )
        own = self._by_caller.get(ticket.origin.caller, _Load())
        if not (self._fits(ticket, own, share) and self._fits(ticket, self._all, beyond)):
            raise QueueFull(f"{self._all.n} requests are waiting already, for {self._all.n_frames} frames")

    @staticmethod
    def _fits(ticket: Ticket, load: _Load, most: _Load) -> bool:
        n_frames = load.n_frames + ticket.request.held_frames
        return load.n < most.n and (n_frames <= most.n_frames or load.n == 0)
