"""The scheduler: which note stands in which row, and when it moves on. No tensors, no I/O, no threads."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.request import RequestHandle
from timbrel_server.engine.request_queue import RequestQueue
from timbrel_server.engine.slots import Slot, SlotState


class FrameClock:
    """Counts frames of real time since some moment in the past: its ticks say when frames of live notes are
    due.

    One count for all notes, so that those that are played live move on in one step, however many they are and
    whenever each began.
    """

    def __init__(self, frame_rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            frame_rate: frames per second.
            clock: seconds since some moment in the past, never falling.
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
class Move:
    """A running note that changes rows: its cache has to follow."""

    source: int
    target: int


@dataclass(frozen=True)
class Admission:
    """The changes of the batch between two steps, in the order to carry them out."""

    begun: Sequence[Slot]
    """Slots whose note begins with this step."""

    moves: Sequence[Move]


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
        self._layout = layout
        self._buckets = tuple(buckets)
        self._queue = queue
        self._compacts = compacts
        self._slots = [Slot(row) for row in range(self._buckets[-1])]  # by row
        queue.join(self)

    @property
    def active(self) -> list[Slot]:
        """Slots that the next step moves on, by row."""
        return [slot for slot in self._slots if slot.active]

    @property
    def n_occupied(self) -> int:
        """Slots that are not free."""
        return sum(slot.state is not SlotState.FREE for slot in self._slots)

    @property
    def n_free(self) -> int:
        """Requests that would have a slot from the next admission on."""
        return len(self._slots) - sum([slot.active for slot in self._slots])

    @property
    def n_frames_left(self) -> int:
        """Frames until the keys of all running notes go up."""
        return sum(max(0, slot.handle.held_frames - slot.progress.position) for slot in self.active)

    def has_work(self, tick: int) -> bool:
        """Whether there is anything to admit, run or free at this tick."""
        is_waited_for = self._queue.has_for(self)
        return any(
            slot.is_due(tick) if slot.active else is_waited_for or slot.state is SlotState.DONE
            for slot in self._slots
        )

    def cancel(self, handle: RequestHandle) -> None:
        """Drops a note from its slot, with the next admission. One that has ended already is let be."""
        for slot in self._slots:
            if slot.active and slot.handle is handle:
                slot.abandon()

    def release(self, handle: RequestHandle) -> None:
        """The key of a note goes up with the next step. One that has ended is let be."""
        for slot in self._slots:
            if slot.active and slot.handle is handle:
                slot.release()

    def admit(self, tick: int = 0) -> Admission:
        """Frees the slots that are done, fills them from the queue, closes gaps."""
        begun = []
        for slot in self._slots:
            if slot.active:
                continue
            if slot.state is SlotState.DONE:
                self._vacate(slot)
            if self._queue.has_for(self):
                slot.occupy(self._queue.take(), self._layout, tick)
                begun.append(slot)
        return Admission(begun, moves=self._close_gaps())

    def close(self) -> list[RequestHandle]:
        """Gives up every running note, and returns them; no more is taken."""
        self._queue.leave(self)
        running = [slot.handle for slot in self.active]
        for slot in self._slots:
            slot.abandon()
            if slot.state is SlotState.DONE:
                self._vacate(slot)
        return running

    def _vacate(self, slot: Slot) -> None:
        self._queue.leave_slot(slot.handle)
        slot.vacate()

    def _close_gaps(self) -> list[Move]:
        """Moves the highest notes down, as long as that lets a smaller bucket do."""
        active = self.active
        if not self._compacts or not active:
            return []
        bucket = self._bucket(len(active))
        stranded = [slot for slot in active if slot.row >= bucket]
        gaps = [slot for slot in self._slots[:bucket] if not slot.active]
        return [self._swap(slot, gap) for slot, gap in zip(stranded, gaps, strict=False)]

    def _swap(self, slot: Slot, gap: Slot) -> Move:
        move = Move(source=slot.row, target=gap.row)
        slot.row, gap.row = gap.row, slot.row
        self._slots[slot.row], self._slots[gap.row] = slot, gap
        return move

    def _bucket(self, n_rows: int) -> int:
        return next(bucket for bucket in self._buckets if bucket >= n_rows)
