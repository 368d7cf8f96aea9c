"""Limits on what one caller may take, and all of them together: `Limits` has each that is counted here.

What gRPC itself holds callers to (connections, their streams, the size of a message) is in `rpc/listener.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import mmap
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Protocol

from timbrel_server.config import ServerConfig
from timbrel_server.errors import OverloadedError

BODY_SECONDS = 60.0
"""A request has this time to arrive: 4 MiB over half a megabit a second."""

NOTES_PER_SLOT = 64
"""A caller's share of them is what several streams of its have in flight."""

NOTES_PER_STREAM = 2
"""At least: a stream holds a place for the item that it waits for, so that silent ones, too, hold some."""

RETURN_SECONDS = 4.0
"""The pause between two looks at how much memory there is."""

WORTH_RETURNING_BYTES = 24 << 20
"""So much more than there once was may be memory that is in use no more."""

FIRST_RETRY_SECONDS = 0.5
SHORTEST_RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 10.0


class Place(contextlib.AbstractContextManager["Place"]):
    """A part of a quota, until it is closed; leaving the `with` block closes it."""

    def __init__(self, quota: Quota, caller: str, amount: int) -> None:
        """Is called by `Quota`."""
        self._quota: Quota | None = quota
        self._caller = caller
        self._amount = amount
        self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives it back. Harmless where it has been given back."""
        quota, self._quota = self._quota, None
        if quota is not None:
            quota._give_back(self._caller, self._amount, time.monotonic() - self._since)


class Quota:
    """Whoever finds no room is refused, or waits: first come, first served for each caller, and callers take
    turns, those first who have least."""

    def __init__(self, name: str, most: int, share: float) -> None:
        """
        Args:
            name: the option that sets it.
            most: for all callers together, at least 1.
            share: of it for each caller, 0 to 1.
        """
        self.name = name
        self.most = most
        self.most_each = max(1, int(most * share))
        self.n_refused = 0
        self._held: dict[str, int] = {}
        self.in_use = 0
        """How much is taken."""
        self._waiting: dict[str, OrderedDict[asyncio.Future[Place], int]] = {}  # amounts, the oldest first
        self._n_turns = 0
        self._last_turns: dict[str, int] = {}  # of those who have something or wait
        self._held_seconds = FIRST_RETRY_SECONDS  # running mean

    @property
    def n_waiting(self) -> int:
        """Counts those who wait for their part."""
        return sum(map(len, self._waiting.values()))

    def held_by(self, caller: str) -> int:
        """Returns how much a caller has."""
        return self._held.get(caller, 0)

    def take(self, caller: str, amount: int = 1) -> Place:
        """Takes a part now.

        Args:
            amount: more than a caller's share counts as all of it.

        Raises:
            OverloadedError: there is no room.
        """
        amount = min(amount, self.most_each)
        if self._has_room(caller, amount):
            return self._give(caller, amount)
        self.n_refused += 1
        raise OverloadedError(self._refusal(caller), self._retry_seconds())

    async def wait(self, caller: str, amount: int = 1) -> Place:
        """Takes a part as soon as it is this caller's turn and there is room; `amount` as of `take`."""
        amount = min(amount, self.most_each)
        if not self._waiting and self._has_room(caller, amount):
            return self._give(caller, amount)
        place: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, OrderedDict())[place] = amount
        self._grant()
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                place.result().close()
            else:
                self._forget(caller, place)
                self._grant()  # less may be wanted by who comes next
            raise

    def _has_room(self, caller: str, amount: int) -> bool:
        return self.held_by(caller) + amount <= self.most_each and self.in_use + amount <= self.most

    def _give(self, caller: str, amount: int) -> Place:
        self._held[caller] = self.held_by(caller) + amount
        self.in_use += amount
        self._n_turns += 1
        self._last_turns[caller] = self._n_turns
        return Place(self, caller, amount)

    def _give_back(self, caller: str, amount: int, seconds: float) -> None:
        self.in_use -= amount
        self._held[caller] -= amount
        if not self._held[caller]:
            del self._held[caller]
            if caller not in self._waiting:
                self._last_turns.pop(caller, None)
        self._held_seconds += 0.1 * (seconds - self._held_seconds)
        self._grant()

    def _grant(self) -> None:
        """Lets in who has waited, as far as there is room: a large part is not overtaken for ever by small
        ones of others, since nobody gets anything before it once it is its caller's turn."""
        while self._waiting:
            ready = [
                caller
                for caller, waiters in self._waiting.items()
                if self.held_by(caller) + next(iter(waiters.values())) <= self.most_each
            ]
            if not ready:
                return
            caller = min(ready, key=lambda each: (self.held_by(each), self._last_turns.get(each, 0)))
            place, amount = next(iter(self._waiting[caller].items()))
            gives_up = place.cancelled()
            if self.in_use + amount > self.most and not gives_up:
                return
            self._forget(caller, place)
            if gives_up:
                continue
            place.set_result(self._give(caller, amount))

    def _forget(self, caller: str, place: asyncio.Future[Place]) -> None:
        waiters = self._waiting.get(caller, OrderedDict())
        waiters.pop(place, None)  # it may be forgotten already
        if not waiters:
            self._waiting.pop(caller, None)
            if caller not in self._held:
                self._last_turns.pop(caller, None)

    def _refusal(self, caller: str) -> str:
        if self.held_by(caller) < self.most_each:
            return f"the server is full ({self.name}): {self.in_use} of {self.most} are taken"
        return f"this caller has its share already ({self.name}): {self.most_each} at once"

    def _retry_seconds(self) -> float:
        """In about half the time that parts are held for, some place is free."""
        return min(max(self._held_seconds / 2, SHORTEST_RETRY_SECONDS), LONGEST_RETRY_SECONDS)


class Crowd:
    """Lets every newcomer in: where there is no room, whoever came first, of the caller who has most, is sent
    away. For what is over in no time where it is honest, and must not be kept out by what is not."""

    def __init__(self, name: str, most: int, share: float) -> None:
        """Arguments are those of `Quota`."""
        self.name = name
        self.most = most
        self.most_each = max(1, int(most * share))
        self.n_refused = 0
        self.n_waiting = 0
        self._members: dict[str, OrderedDict[asyncio.Timeout, None]] = {}

    @property
    def in_use(self) -> int:
        """Returns how many there are."""
        return sum(map(len, self._members.values()))

    @contextlib.asynccontextmanager
    async def join(self, caller: str) -> AsyncIterator[None]:
        """Is of the crowd while the block runs. Raises OverloadedError within it once sent away."""
        try:
            async with asyncio.timeout(None) as stay:
                self._members.setdefault(caller, OrderedDict())[stay] = None
                self._make_room(caller)
                try:
                    yield
                finally:
                    self._remove(caller, stay)
        except TimeoutError:
            if not stay.expired():
                raise
            raise OverloadedError(f"others came since ({self.name})", SHORTEST_RETRY_SECONDS) from None

    def _make_room(self, caller: str) -> None:
        if len(self._members[caller]) > self.most_each:
            self._send_away(caller)
        elif self.in_use > self.most:
            self._send_away(max(self._members, key=lambda each: len(self._members[each])))

    def _send_away(self, caller: str) -> None:
        oldest = next(iter(self._members[caller]))
        self._remove(caller, oldest)
        self.n_refused += 1
        oldest.reschedule(asyncio.get_running_loop().time())

    def _remove(self, caller: str, stay: asyncio.Timeout) -> None:
        members = self._members.get(caller, OrderedDict())
        members.pop(stay, None)
        if not members:
            self._members.pop(caller, None)


class Limit(Protocol):
    """A limit, as far as the metrics tell of it."""

    name: str
    """The option that sets it."""

    most: int
    """How much there is for all callers."""

    n_refused: int
    """How many were sent away."""

    @property
    def in_use(self) -> int:
        """Returns how much of it is taken."""

    @property
    def n_waiting(self) -> int:
        """Counts those who wait for their part."""


class Limits:
    """All of one server. Callers are told apart by token, by certificate, or by the network they are in."""

    def __init__(self, config: ServerConfig) -> None:
        share = config.caller_share
        self.calls = Quota("max_calls", config.n_calls, share)
        self.streams = Quota("max_item_streams", config.max_item_streams, share)
        self.bodies = Quota("max_bodies", config.max_bodies, share)
        most_notes = max(NOTES_PER_SLOT * config.n_slots, NOTES_PER_STREAM * config.max_item_streams)
        self.notes = Quota("max_notes", config.max_notes or most_notes, share)
        self.audio_bytes = Quota("max_audio_bytes", config.max_audio_bytes, share)
        self.locates = Quota("max_locates", config.max_locates, share)
        self.files = Quota("max_files", config.max_files, share)
        self.health_bodies = Crowd("health_bodies", config.max_bodies, share)
        self.health_calls = Crowd("max_health_calls", config.max_health_calls, share)

    def __iter__(self) -> Iterator[Quota | Crowd]:
        return iter(vars(self).values())


async def return_memory() -> None:
    """Gives memory back that was in use, whoever had it, until cancelled: glibc keeps what was freed, thread
    by thread, unless told."""
    least = _resident_bytes()
    while True:
        await asyncio.sleep(RETURN_SECONDS)
        resident = _resident_bytes()
        least = min(least, resident)
        if resident > least + WORTH_RETURNING_BYTES:
            with contextlib.suppress(OSError, AttributeError):  # another C library
                await asyncio.to_thread(ctypes.CDLL(None).malloc_trim, 0)


def _resident_bytes() -> int:
    with contextlib.suppress(OSError):  # no Linux
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    return 0
