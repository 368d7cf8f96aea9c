"""Which note stands in which row: no tensors, no I/O, no threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.slots import Slot, SlotState
from timbrel_server.engine.ticket import Ticket


class QueueFull(Exception):
    """As many requests wait as may."""


@dataclass(frozen=True)
class Move:
    """A running note that changes rows: its cache has to follow."""

    source: int
    target: int


@dataclass(frozen=True)
class Admission:
    """What changed in the batch between two steps, in the order to carry it out."""

    begun: Sequence[Slot]
    """Slots whose note begins with this step."""

    moves: Sequence[Move]


class Scheduler:
    """First come, first served, into the lowest free row.

    The batch is run at the smallest bucket that reaches its highest occupied row. Where notes that left have
    made room for a smaller one, the highest are moved down into the gaps.
    """

    def __init__(
        self, layout: TokenLayout, buckets: Sequence[int], queue_capacity: int, *, compacts: bool = True
    ) -> None:
        """
        Args:
            buckets: batch sizes that can be run, rising; the last is the number of slots.
            queue_capacity: requests that may wait for a slot.
            compacts: whether notes may be moved between rows.
        """
        self._layout = layout
        self._buckets = tuple(buckets)
        self._capacity = queue_capacity
        self._compacts = compacts
        self._slots = [Slot(row) for row in range(self._buckets[-1])]  # by row
        self._waiting: deque[Ticket] = deque()

    @property
    def n_waiting(self) -> int:
        """Requests that have no slot yet."""
        return len(self._waiting)

    @property
    def active(self) -> list[Slot]:
        """Slots that the next step moves on, by row."""
        return [slot for slot in self._slots if slot.active]

    @property
    def n_occupied(self) -> int:
        """Slots that are not free."""
        return sum(slot.state is not SlotState.FREE for slot in self._slots)

    @property
    def n_room(self) -> int:
        """Further requests that would have a slot from the next admission on."""
        n_active = sum([slot.active for slot in self._slots])
        return max(0, len(self._slots) - n_active - len(self._waiting))

    @property
    def n_frames_left(self) -> int:
        """Frames until the keys of all notes in hand go up, waiting ones included."""
        running = sum(max(0, slot.ticket.held_frames - slot.progress.position) for slot in self.active)
        return running + sum(ticket.held_frames for ticket in self._waiting)

    def has_work(self, tick: int) -> bool:
        """Whether there is anything to admit, run or free at this tick."""
        return any(self._wants_step(slot, tick) for slot in self._slots)

    def enqueue(self, ticket: Ticket) -> None:
        """Puts a request at the end of the queue. Raises QueueFull."""
        if len(self._waiting) >= self._capacity:
            raise QueueFull
        self._waiting.append(ticket)

    def cancel(self, ticket: Ticket) -> None:
        """Drops a request: from the queue at once, from its slot with the next admission.

        One that has ended already is let be.
        """
        if ticket in self._waiting:
            self._waiting.remove(ticket)
            return
        for slot in self._slots:
            if slot.state is not SlotState.FREE and slot.ticket is ticket:
                slot.abandon()

    def release(self, ticket: Ticket) -> None:
        """Its key goes up with the next step. One that waits has its key up as early as may be; one that has
        ended is let be."""
        if ticket in self._waiting:
            ticket.release(0)
            return
        for slot in self._slots:
            if slot.active and slot.ticket is ticket:
                slot.release()

    def admit(self, tick: int = 0) -> Admission:
        """Frees the slots that are done, fills them from the queue, closes gaps."""
        for slot in self._slots:
            if slot.state is SlotState.DONE:
                slot.vacate()
        return Admission(begun=self._fill(tick), moves=self._close_gaps())

    def drain(self) -> list[Ticket]:
        """Gives up every request, waiting or running, and returns them."""
        running = [slot.ticket for slot in self.active]
        for slot in self._slots:
            slot.abandon()
        waiting = list(self._waiting)
        self._waiting.clear()
        return running + waiting

    def _wants_step(self, slot: Slot, tick: int) -> bool:
        if slot.state is SlotState.FREE:
            return bool(self._waiting)
        return slot.state is SlotState.DONE or slot.is_due(tick)

    def _fill(self, tick: int) -> list[Slot]:
        begun = []
        for slot in self._slots:
            if not self._waiting:
                break
            if slot.state is SlotState.FREE:
                slot.occupy(self._waiting.popleft(), self._layout, tick)
                begun.append(slot)
        return begun

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
