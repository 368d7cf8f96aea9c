"""The one queue: requests that wait for a slot of any engine, whose turn it is, and how much may wait."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Protocol

from timbrel_server.engine.request import RequestHandle

SPARE_SHARE = 4
"""Beyond the capacity, one in so many places is there for callers who have less than their share waiting: a
caller who fills the queue keeps nobody else out."""


class QueueFull(Exception):
    """As much waits as may. The message says how much that is."""


class Taker(Protocol):
    """Takes requests out of the queue, into slots of its own."""

    @property
    def n_free(self) -> int:
        """Requests that it can take before its next step."""


class RequestQueue:
    """Serves callers in turn, and the calls of each; first come, first served within a call. So a caller who
    asks for much waits for itself, and not others for it.

    Bounded by requests and by frames of work, with a share of both for every caller; a request of more frames
    than the bound may wait alone. A request that finds a free slot does not count: it is as good as begun.

    `changed` guards the queue, and the slots of all who take from it; whoever calls a method holds it.
    """

    def __init__(self, capacity: int, n_frames: int) -> None:
        """
        Args:
            capacity: requests that may wait, of those who would rather be refused than wait long.
            n_frames: frames of work that may.
        """
        self.changed = threading.Condition()
        self._takers: list[Taker] = []
        self._slot_is_free: dict[RequestHandle, None] = {}  # in the order they came
        self._callers: OrderedDict[str, _Caller] = OrderedDict()  # whose turn is next comes first
        self._most = _Load(capacity, n_frames)
        self._impatient = _Load()
        self._n_patient = 0

    def __len__(self) -> int:
        return len(self._slot_is_free) + self._impatient.n + self._n_patient

    def __contains__(self, handle: RequestHandle) -> bool:
        caller = self._callers.get(handle.client.caller)
        return handle in self._slot_is_free or (caller is not None and handle in caller)

    @property
    def n_free(self) -> int:
        """Slots that no request waits for."""
        return sum(taker.n_free for taker in self._takers) - len(self)

    def join(self, taker: Taker) -> None:
        """From now on this one takes requests, too."""
        self._takers.append(taker)

    def leave(self, taker: Taker) -> None:
        """From now on this one takes none; harmless where it took none."""
        if taker in self._takers:
            self._takers.remove(taker)

    def put(self, handle: RequestHandle) -> None:
        """Puts a request behind those of its call. Raises QueueFull."""
        if self.n_free > 0:
            self._slot_is_free[handle] = None
            return
        self._check(handle)
        self._callers.setdefault(handle.client.caller, _Caller()).append(handle)
        self._count(handle, 1)

    def has_for(self, taker: Taker) -> bool:
        """Whether `take` would give this taker a request: those with more free slots come first."""
        if not len(self) or taker not in self._takers:
            return False
        n_before = sum(max(0, other.n_free - taker.n_free) for other in self._takers if other is not taker)
        return len(self) > n_before

    def take(self) -> RequestHandle:
        """Takes the next request out. Raises StopIteration where none waits."""
        if self._slot_is_free:
            handle = next(iter(self._slot_is_free))
            del self._slot_is_free[handle]
            return handle
        name, caller = next(iter(self._callers.items()))
        handle = caller.popleft()
        self._count(handle, -1)
        if name in self._callers:
            self._callers.move_to_end(name)
        return handle

    def remove(self, handle: RequestHandle) -> None:
        """Takes a request out that waits. Raises KeyError for another."""
        if handle in self._slot_is_free:
            del self._slot_is_free[handle]
        else:
            self._callers[handle.client.caller].remove(handle)
            self._count(handle, -1)

    def drain(self) -> list[RequestHandle]:
        """Takes every request out, in the order of their turns."""
        return [self.take() for _ in range(len(self))]

    def frames_ahead(self, name: str) -> float:
        """Estimates how many frames of work have their turn before the next request of this caller."""
        own = self._callers.get(name)
        turns = own.all.n + 1 if own is not None else 1
        return sum(handle.held_frames for handle in self._slot_is_free) + sum(
            caller.all.n_frames * min(1.0, turns / caller.all.n) if caller is not own else caller.all.n_frames
            for caller in self._callers.values()
        )

    def _count(self, handle: RequestHandle, change: int) -> None:
        name = handle.client.caller
        self._callers[name].count(handle, change)
        if handle.client.patient:
            self._n_patient += change
        else:
            self._impatient.count(handle, change)
        if self._callers[name].all.n == 0:
            del self._callers[name]

    def _check(self, handle: RequestHandle) -> None:
        if handle.client.patient:
            return
        if self._impatient.has_place(handle, self._most):
            return
        own = self._callers.get(handle.client.caller, _Caller()).impatient
        n_callers = sum(caller.impatient.n > 0 for caller in self._callers.values()) + (own.n == 0)
        share = _Load(self._most.n // n_callers, self._most.n_frames // n_callers)
        beyond = _Load(
            self._most.n + self._most.n // SPARE_SHARE,
            self._most.n_frames + self._most.n_frames // SPARE_SHARE,
        )
        if not (own.has_place(handle, share) and self._impatient.has_place(handle, beyond)):
            waiting = self._impatient
            raise QueueFull(f"{waiting.n} requests are waiting already, for {waiting.n_frames} frames")


@dataclass
class _Load:
    """So many requests, for so many frames."""

    n: int = 0
    n_frames: int = 0

    def count(self, handle: RequestHandle, change: int) -> None:
        self.n += change
        self.n_frames += change * handle.request.held_frames

    def has_place(self, handle: RequestHandle, most: _Load) -> bool:
        """Whether one more is within the bound."""
        n_frames = self.n_frames + handle.request.held_frames
        return self.n < most.n and (n_frames <= most.n_frames or self.n == 0)


@dataclass
class _Caller:
    """The requests of one caller that wait, by the call they came with."""

    all: _Load = field(default_factory=_Load)
    impatient: _Load = field(default_factory=_Load)
    calls: OrderedDict[Hashable, OrderedDict[RequestHandle, None]] = field(default_factory=OrderedDict)

    def __contains__(self, handle: RequestHandle) -> bool:
        return handle in self.calls.get(handle.client.call, ())

    def append(self, handle: RequestHandle) -> None:
        self.calls.setdefault(handle.client.call, OrderedDict())[handle] = None

    def popleft(self) -> RequestHandle:
        call, handles = next(iter(self.calls.items()))
        handle = next(iter(handles))
        self.calls.move_to_end(call)
        self.remove(handle)
        return handle

    def remove(self, handle: RequestHandle) -> None:
        handles = self.calls[handle.client.call]
        del handles[handle]
        if not handles:
            del self.calls[handle.client.call]

    def count(self, handle: RequestHandle, change: int) -> None:
        self.all.count(handle, change)
        if not handle.client.patient:
            self.impatient.count(handle, change)
