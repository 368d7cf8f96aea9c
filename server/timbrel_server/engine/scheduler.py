"""The scheduler: which note stands in which row, and when it moves on. No tensors, no I/O, no threads."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.request import RequestHandle
from timbrel_server.engine.request_queue import RequestQueue
from timbrel_server.engine.slots import Slots


class FrameClock:
    """Counts frames of real time since some moment in the past: its ticks say when frames of live notes are
    due.

    One count for all notes, so that those that are played live move on in one step, however many they are and
    whenever each began.
    """

    def __init__(self, frame_rate: float, clock: Callable[[], float] = time.perf_counter) -> None:
        """
        Args:
            frame_rate: frames per second.
            clock: seconds since some moment in the past, never falling. Windows's `monotonic` moves on in
                steps of 16 ms before Python 3.13.
        """
        self._frame_rate = frame_rate
        self._clock = clock

    @property
    def tick(self) -> int:
        """Whole frames gone by."""
        return math.floor(self._clock() * self._frame_rate)

    @property
    def seconds_to_next(self) -> float:
        """Seconds until the next tick; above 0."""
        now = self._clock()
        return max((math.floor(now * self._frame_rate) + 1) / self._frame_rate - now, 1e-4)


@dataclass(frozen=True)
class Admission:
    """The changes of the batch between two steps, in the order to carry them out."""

    begun: Sequence[tuple[int, RequestHandle]]
    """Notes that begin with this step, and their rows."""

    moves: Sequence[tuple[int, int]]
    """Running notes that change rows, from one to another: their caches have to follow."""


NO_CHANGE = Admission((), ())


class Scheduler:
    """Takes requests out of the queue, each into the lowest free row.

    The batch is run at the smallest bucket that reaches its highest occupied row. Where notes that left have
    made room for a smaller one, the highest are moved down into the gaps.
    """

    def __init__(
        self, layout: TokenLayout, buckets: Sequence[int], queue: RequestQueue, *, compacts: bool = True
    ) -> None:
        """
        Args:
            buckets: batch sizes that can be run, rising; the last is the number of slots.
            queue: holds what waits, for this scheduler and others; its lock guards this one, too.
            compacts: whether notes may be moved between rows.
        """
        self._buckets = tuple(buckets)
        self._queue = queue
        self._compacts = compacts
        self.slots = Slots(layout, self._buckets[-1])
        queue.join(self)

    @property
    def n_free(self) -> int:
        """Requests that would have a slot from the next admission on."""
        return self._buckets[-1] - self.slots.n_active

    @property
    def n_dying(self) -> int:
        """Slots whose notes end by themselves."""
        return self.slots.n_dying

    def has_work(self, tick: int) -> bool:
        """Whether there is anything to admit, run or free at this tick."""
        slots = self.slots
        if slots.done or slots.is_due(tick):
            return True
        return (self.n_free > 0 and self._queue.has_for(self)) or bool(self._keys_to_let_go())

    def admit(self, tick: int = 0) -> Admission:
        """Frees the slots that are done, fills them from the queue, closes gaps."""
        slots = self.slots
        for row in sorted(slots.done):
            self._vacate(row)
        begun = []
        while self.n_free > 0 and self._queue.has_for(self):
            handle = self._queue.take()
            begun.append((slots.occupy(handle, tick), handle))
        for held in self._keys_to_let_go():
            slots.release(held)
        moves = self._close_gaps() if self._compacts and slots.n_active < slots.n_rows else ()
        return Admission(begun, moves) if begun or moves else NO_CHANGE

    def close(self) -> list[RequestHandle]:
        """Gives up every running note, and returns them; no more is taken."""
        self._queue.leave(self)
        running = [handle for _, handle in self.slots]
        for handle in running:
            self.slots.end(handle)
        for row in sorted(self.slots.done):
            self._vacate(row)
        return running

    def _keys_to_let_go(self) -> list[RequestHandle]:
        """Where no slot is to be had and somebody waits: keys that are held on, and while somebody with less
        than a fair share waits, any live ones of callers with more. Who has most slots comes first, and then
        what is held longest. Their releases are written as fast as it goes."""
        queue, slots = self._queue, self.slots
        if not len(queue) or queue.finds_room or not (keys := slots.keys_down):
            return []
        n_dying = queue.n_dying  # others may have let go of keys for the same requests
        n_wanted, n_owed = queue.n_wanted - n_dying, queue.n_owed - n_dying
        let_go: list[RequestHandle] = []
        standing, surplus = set(slots.standing), queue.surplus()
        for held in sorted(keys, key=lambda key: (-surplus[key.client.caller], key.submitted)):
            is_beyond_share = surplus[held.client.caller] > 0
            if len(let_go) < (n_wanted if held in standing else n_owed if is_beyond_share else 0):
                let_go.append(held)
                surplus[held.client.caller] -= 1
        return let_go

    def _vacate(self, row: int) -> None:
        self._queue.leave_slot(self.slots.handle(row))
        self.slots.vacate(row)

    def _close_gaps(self) -> list[tuple[int, int]]:
        """Moves the highest notes down, as long as that lets a smaller bucket do."""
        bucket = self._buckets[bisect_left(self._buckets, self.slots.n_active)]
        stranded = [row for row, _ in self.slots if row >= bucket] if bucket < self.slots.n_rows else ()
        return [(row, self.slots.move_down(row)) for row in stranded]
