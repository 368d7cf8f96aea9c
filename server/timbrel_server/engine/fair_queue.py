"""Requests that wait for a slot: callers take turns, and so do the calls of each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from timbrel_server.engine.ticket import Ticket


class FairQueue:
    """Round robin between callers, and between the calls of one; first come, first served within a call.

    So a caller who asks for much waits for itself, and not others for it.
    No locks: whoever owns it guards it.
    """

    def __init__(self) -> None:
        # Whose turn is next comes first, on both levels.
        self._callers: OrderedDict[str, _Calls] = OrderedDict()
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def __contains__(self, ticket: Ticket) -> bool:
        calls = self._callers.get(ticket.origin.caller)
        return calls is not None and ticket in calls

    @property
    def n_frames(self) -> int:
        """Frames of work that wait: as many as keys are held for."""
        return sum(calls.n_frames for calls in self._callers.values())

    def append(self, ticket: Ticket) -> None:
        """Puts a request behind those of its call."""
        self._callers.setdefault(ticket.origin.caller, _Calls()).append(ticket)
        self._n += 1

    def appendleft(self, ticket: Ticket) -> None:
        """Puts a request back that `popleft` gave: its turn comes next."""
        caller = ticket.origin.caller
        self._callers.setdefault(caller, _Calls()).appendleft(ticket)
        self._callers.move_to_end(caller, last=False)
        self._n += 1

    def popleft(self) -> Ticket:
        """Takes the next request out. Raises StopIteration where none waits."""
        caller, calls = next(iter(self._callers.items()))
        ticket = calls.popleft()
        self._tidy(caller)
        if calls.n:
            self._callers.move_to_end(caller)
        return ticket

    def remove(self, ticket: Ticket) -> None:
        """Takes a request out that waits. Raises KeyError for another."""
        self._callers[ticket.origin.caller].remove(ticket)
        self._tidy(ticket.origin.caller)

    def drain(self) -> list[Ticket]:
        """Takes every request out, in the order of their turns."""
        return [self.popleft() for _ in range(self._n)]

    def frames_ahead(self, caller: str) -> float:
        """About how many frames of work have their turn before the next request of this caller."""
        own = self._callers.get(caller)
        turns = own.n + 1 if own is not None else 1
        return sum(
            calls.n_frames * min(1.0, turns / calls.n) if name != caller else calls.n_frames
            for name, calls in self._callers.items()
        )

    def _tidy(self, caller: str) -> None:
        self._n -= 1
        if self._callers[caller].n == 0:
            del self._callers[caller]


class _Calls:
    """What one caller has waiting."""

    def __init__(self) -> None:
        self.n = 0
        self.n_frames = 0
        self._calls: OrderedDict[Hashable, OrderedDict[Ticket, None]] = OrderedDict()

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket in self._calls.get(ticket.origin.call, ())

    def append(self, ticket: Ticket) -> None:
        self._calls.setdefault(ticket.origin.call, OrderedDict())[ticket] = None
        self._count(ticket, 1)

    def appendleft(self, ticket: Ticket) -> None:
        self.append(ticket)
        self._calls[ticket.origin.call].move_to_end(ticket, last=False)
        self._calls.move_to_end(ticket.origin.call, last=False)

    def popleft(self) -> Ticket:
        call, tickets = next(iter(self._calls.items()))
        ticket, _ = tickets.popitem(last=False)
        self._calls.move_to_end(call)
        self._tidy(ticket)
        return ticket

    def remove(self, ticket: Ticket) -> None:
        del self._calls[ticket.origin.call][ticket]
        self._tidy(ticket)

    def _tidy(self, ticket: Ticket) -> None:
        self._count(ticket, -1)
        if not self._calls[ticket.origin.call]:
            del self._calls[ticket.origin.call]

    def _count(self, ticket: Ticket, change: int) -> None:
        self.n += change
        self.n_frames += change * ticket.request.held_frames
