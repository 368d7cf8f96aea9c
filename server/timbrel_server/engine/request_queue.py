"""The one queue: requests that wait for a slot of any engine, whose turn it is, and how much may wait."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Protocol

from timbrel_server.engine.request import RequestHandle

SPARE_SHARE = 4
"""Beyond the capacity, one in so many places is there for callers who have less than their share waiting: a
caller who fills the queue keeps nobody else out."""


COMPANY_SECONDS = 1.0
"""Whoever asked within this time is company."""

LARGEST_COMPANY = 16
"""Where more callers than that ask at once, their turns alone share the slots out."""


class QueueFull(Exception):
    """As much waits as may. The message says how much that is."""


class Taker(Protocol):
    """Takes requests out of the queue, into slots of its own."""

    @property
    def n_free(self) -> int:
        """Requests that it can take before its next step."""

    @property
    def n_dying(self) -> int:
        """Its slots that are soon free as it is."""


class RequestQueue:
    """Serves callers in turn, and the calls of each; first come, first served within a call. So a caller who
    asks for much waits for itself, and not others for it.

    Bounded by requests and by frames of work, with a share of both for every caller; a request of more frames
    than the bound may wait alone. A request that finds a free slot does not count: it is as good as begun.

    A step takes the longer the more notes it moves on. So a caller has its share of the slots at most while
    somebody else asks for no more than that, and one more for a header, so that a chord which is all of the
    share moves. Live notes, of which each comes late that waits, go beyond it as long as a share stays free.
    Where all ask for more, and where nobody else asks, the slots are theirs who come first, but for some that
    live notes leave: these keep their slots for as long as keys are held, and somebody else may come.

    `changed` guards the queue, and the slots of all who take from it; whoever calls a method holds it.
    """

    def __init__(self, capacity: int, n_frames: int, share: int = 1 << 30, most_live: int = 1 << 30) -> None:
        """
        Args:
            capacity: requests that may wait, of those who would rather be refused than wait long.
            n_frames: frames of work that may.
            share: slots of one caller in the company of one who asks for less, at least 1.
            most_live: slots that notes played live may take of callers who have their share.
        """
        self.changed = threading.Condition()
        self._takers: list[Taker] = []
        self._slot_is_free: dict[RequestHandle, None] = {}  # in the order they came
        self._callers: OrderedDict[str, _Caller] = OrderedDict()  # whose turn is next comes first
        self._most = _Load(capacity, n_frames)
        self._impatient = _Load()
        self._n_patient = 0
        self.share = share
        self.most_live = most_live
        self._n_live = 0  # notes played live among those that run
        self._n_running: Counter[str] = Counter()  # slots in use or as good as that, by caller
        self._asked: dict[str, float] = {}  # when each caller asked last

    def __len__(self) -> int:
        return len(self._slot_is_free) + self._impatient.n + self._n_patient

    def __contains__(self, handle: RequestHandle) -> bool:
        caller = self._callers.get(handle.client.caller)
        return handle in self._slot_is_free or (caller is not None and handle in caller)

    @property
    def n_free(self) -> int:
        """Slots that no request waits for which may have one now."""
        return self._n_free - self.n_ready

    @property
    def n_dying(self) -> int:
        """Slots that are soon free as it is."""
        return sum(taker.n_dying for taker in self._takers)

    def join(self, taker: Taker) -> None:
        """From now on this one takes requests, too."""
        self._takers.append(taker)

    def leave(self, taker: Taker) -> None:
        """From now on this one takes none; harmless where it took none."""
        if taker in self._takers:
            self._takers.remove(taker)

    def finds_slot(self, handle: RequestHandle) -> bool:
        """Whether `put` would give this request a slot at once."""
        return self.n_free > 0 and self._is_let(handle.client.caller, handle)

    def put(self, handle: RequestHandle) -> None:
        """Puts a request behind those of its call. Raises QueueFull."""
        name = handle.client.caller
        self._note_company(name)
        if self.finds_slot(handle):
            self._slot_is_free[handle] = None
            self._n_running[name] += 1
            self._n_live += handle.request.is_live
            return
        if not handle.client.patient:
            self._check(name, handle.request.held_frames)
        self._callers.setdefault(handle.client.caller, _Caller()).append(handle)
        self._count(handle, 1)

    def check_room(self, name: str) -> None:
        """Raises QueueFull where `put` would refuse this caller even the shortest request."""
        self._note_company(name)
        if self._n_free == 0:
            self._check(name, 1)

    def n_in_hand(self, name: str) -> int:
        """Counts what a caller has in slots and waiting."""
        waiting = self._callers.get(name)
        return self._n_running.get(name, 0) + (waiting.all.n if waiting is not None else 0)

    @property
    def mean_frames(self) -> float:
        """Frames of a request that waits, on average; 0 where none does."""
        return self._impatient.n_frames / max(1, self._impatient.n)

    def has_for(self, taker: Taker) -> bool:
        """Whether `take` would give this taker a request: those with more free slots come first."""
        if not len(self) or taker not in self._takers:
            return False
        n_before = sum(max(0, other.n_free - taker.n_free) for other in self._takers if other is not taker)
        return self.n_ready > n_before

    def take(self) -> RequestHandle:
        """Takes the next request out, into a slot, until `leave_slot`. Raises StopIteration where none may
        have one."""
        if self._slot_is_free:
            handle = next(iter(self._slot_is_free))
            del self._slot_is_free[handle]
            return handle
        fair = self._fair_share
        turns = [name for name in self._callers if self._n_running.get(name, 0) < fair]
        name = next(iter(turns or filter(self._may_begin, self._callers)))
        self._n_running[name] += 1
        handle = self._pop(name)
        self._n_live += handle.request.is_live
        return handle

    def leave_slot(self, handle: RequestHandle) -> None:
        """Says that what was taken needs its slot no more."""
        name = handle.client.caller
        self._n_running[name] -= 1
        self._n_live -= handle.request.is_live
        if not self._n_running[name]:
            del self._n_running[name]

    def remove(self, handle: RequestHandle) -> None:
        """Takes a request out that waits. Raises KeyError for another."""
        if handle in self._slot_is_free:
            del self._slot_is_free[handle]
            self.leave_slot(handle)
        else:
            self._callers[handle.client.caller].remove(handle)
            self._count(handle, -1)

    def drain(self) -> list[RequestHandle]:
        """Takes every request out, in the order of their turns."""
        drained = [*self._slot_is_free]
        for handle in drained:
            self.remove(handle)
        while self._callers:
            drained.append(self._pop(next(iter(self._callers))))
        return drained

    @property
    def n_owed(self) -> int:
        """Requests that wait of callers who have less than a fair share of the slots, up to that share."""
        fair = self._fair_share
        lacks = ((caller, fair - self._n_running.get(name, 0)) for name, caller in self._callers.items())
        return sum(min(caller.all.n, lack) for caller, lack in lacks if lack > 0)

    def surplus(self) -> Counter[str]:
        """Counts the slots that each caller has beyond a fair share; below 0 for one who has less."""
        fair = self._fair_share
        return Counter({name: n - fair for name, n in self._n_running.items()})

    @property
    def _fair_share(self) -> int:
        """Slots for each caller who has some or waits for some, were they shared out; at least 1."""
        n_callers = len(self._n_running.keys() | self._callers.keys())
        n_slots = self._n_running.total() + self._n_free - len(self._slot_is_free)
        return max(1, min(self.share, n_slots // max(1, n_callers)))

    @property
    def _n_free(self) -> int:
        return sum(taker.n_free for taker in self._takers)

    def frames_ahead(self, name: str) -> float:
        """Estimates how many frames of work have their turn before the next request of this caller."""
        own = self._callers.get(name)
        turns = own.all.n + 1 if own is not None else 1
        return sum(handle.held_frames for handle in self._slot_is_free) + sum(
            caller.all.n_frames * min(1.0, turns / caller.all.n) if caller is not own else caller.all.n_frames
            for caller in self._callers.values()
        )

    def _pop(self, name: str) -> RequestHandle:
        """Takes out the next request of a caller, who then comes last."""
        handle = self._callers[name].popleft()
        self._count(handle, -1)
        if name in self._callers:
            self._callers.move_to_end(name)
        return handle

    @property
    def n_ready(self) -> int:
        """Requests that wait and may have a slot now."""
        # Looked at once: company that is over between two looks would make n_wanted count who is kept back.
        has_light_company = bool(self._callers) and self._has_light_company()
        if has_light_company:
            return self._wanted(has_light_company) + self._n_ready_beyond_shares
        if self._n_live < self.most_live:
            return len(self)
        kept_back = (caller.all.n for name, caller in self._callers.items() if not self._may_begin(name))
        return len(self) - sum(kept_back)

    @property
    def finds_room(self) -> bool:
        """Whether some request that waits is about to have a slot."""
        return self._n_free > 0 and self.n_ready > 0

    @property
    def n_wanted(self) -> int:
        """Slots that those who wait would take, did the live notes of others end."""
        return self._wanted(bool(self._callers) and self._has_light_company())

    def _wanted(self, has_light_company: bool) -> int:
        if not has_light_company:
            return len(self)
        return len(self._slot_is_free) + sum(
            min(caller.all.n, max(0, self.share - self._n_running.get(name, 0)))
            for name, caller in self._callers.items()
        )

    @property
    def _n_ready_beyond_shares(self) -> int:
        """Callers who have their share of the slots, and whose next request may have one all the same."""
        return sum(
            self._n_running.get(name, 0) >= self.share and self._is_let_in_company(name, caller.first)
            for name, caller in self._callers.items()
        )

    def _may_begin(self, name: str) -> bool:
        """Whether a caller who waits may have a slot that is free."""
        return self._is_let(name, self._callers[name].first)

    def _is_let(self, name: str, handle: RequestHandle) -> bool:
        if self._is_let_in_company(name, handle):
            return True
        is_kept_back = handle.request.is_live and self._n_live >= self.most_live
        return not is_kept_back and not self._has_light_company(of=name)

    def _is_let_in_company(self, name: str, handle: RequestHandle) -> bool:
        """Whether a caller may have a slot that is free, whoever else asks."""
        if self._n_running.get(name, 0) < self.share + handle.request.is_header:
            return True
        n_left = self._n_free - len(self._slot_is_free)
        return handle.request.is_live and n_left > self.share and self._n_live < self.most_live

    def _has_light_company(self, of: str | None = None) -> bool:
        """Whether somebody who asked lately, another caller than `of`, wants no more than a share: others are
        then kept to theirs."""
        if not 2 <= len(self._asked) <= LARGEST_COMPANY:
            return False
        since = time.monotonic() - COMPANY_SECONDS
        return any(
            asked > since and name != of and self.n_in_hand(name) <= self.share
            for name, asked in self._asked.items()
        )

    def _note_company(self, name: str) -> None:
        now = time.monotonic()
        self._asked[name] = now
        if len(self._asked) > LARGEST_COMPANY:
            self._asked = {each: at for each, at in self._asked.items() if at > now - COMPANY_SECONDS}

    def _count(self, handle: RequestHandle, change: int) -> None:
        name = handle.client.caller
        self._callers[name].count(handle, change)
        if handle.client.patient:
            self._n_patient += change
        else:
            self._impatient.count(handle, change)
        if self._callers[name].all.n == 0:
            del self._callers[name]

    def _check(self, name: str, n_frames: int) -> None:
        if self._impatient.has_place(n_frames, self._most):
            return
        own = self._callers.get(name, _Caller()).impatient
        n_callers = sum(caller.impatient.n > 0 for caller in self._callers.values()) + (own.n == 0)
        share = _Load(self._most.n // n_callers, self._most.n_frames // n_callers)
        beyond = _Load(
            self._most.n + self._most.n // SPARE_SHARE,
            self._most.n_frames + self._most.n_frames // SPARE_SHARE,
        )
        if not (own.has_place(n_frames, share) and self._impatient.has_place(n_frames, beyond)):
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

    def has_place(self, n_frames: int, most: _Load) -> bool:
        """Whether one more, for so many frames, is within the bound."""
        return self.n < most.n and (self.n_frames + n_frames <= most.n_frames or self.n == 0)


@dataclass
class _Caller:
    """The requests of one caller that wait, by the call they came with."""

    all: _Load = field(default_factory=_Load)
    impatient: _Load = field(default_factory=_Load)
    calls: OrderedDict[Hashable, OrderedDict[RequestHandle, None]] = field(default_factory=OrderedDict)

    def __contains__(self, handle: RequestHandle) -> bool:
        return handle in self.calls.get(handle.client.call, ())

    @property
    def first(self) -> RequestHandle:
        """The request whose turn it is."""
        return next(iter(next(iter(self.calls.values()))))

    def append(self, handle: RequestHandle) -> None:
        self.calls.setdefault(handle.client.call, OrderedDict())[handle] = None

    def popleft(self) -> RequestHandle:
        handle = self.first
        self.calls.move_to_end(handle.client.call)
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
