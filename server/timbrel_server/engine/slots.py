"""The slots: the rows of the engine's batch and the notes in them, in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from timbrel_server.engine.progress import FAR, NoteColumns, TokenLayout
from timbrel_server.engine.request import RequestHandle


class StepInput(NamedTuple):
    """The inputs of a step for the first n rows of the batch. Rows without a note run along at position 0."""

    active: npt.NDArray[np.bool_]
    """[n], whether the row has a note."""
    positions: npt.NDArray[np.int64]
    """[n], the step of the row's note, from 0."""
    tokens: npt.NDArray[np.int64]
    """[n, K]."""
    gate: npt.NDArray[np.int64]
    """[n], of the frame that codebook 0 predicts next: see `TokenLayout.release_frames`."""
    moving: npt.NDArray[np.bool_] | None = None
    """[n], the rows whose notes move on, where not all do: what others draw is dropped."""


class Slots:
    """Keeps which note is in which row, its gate, and when it may move on.

    A row is free; then it has a note, which is active until it is complete or given up; then it is done, and
    to be vacated before it is free again.
    """

    def __init__(self, layout: TokenLayout, n_slots: int) -> None:
        self.notes = NoteColumns(layout, n_slots)
        self.n_rows = 0
        """Rows up to the last that is not free."""
        self.done: set[int] = set()
        """Rows that are to be vacated."""
        self.n_moving = 0
        """Notes that the last step moved on, or this one does."""
        self._free = list(range(n_slots))  # a heap
        self._handles: list[RequestHandle | None] = [None] * n_slots
        self._rows: dict[RequestHandle, int] = {}  # of active notes
        self._live: set[int] = set()  # rows of active notes that are played live
        self._active = np.zeros(n_slots, np.bool_)
        self._held_frames = np.zeros(n_slots, np.int64)
        self._is_released = np.zeros(n_slots, np.bool_)  # whether it is as good as up
        self._release_frames = layout.release_frames
        self._lead = np.full(n_slots, FAR)  # with the tick added: the position to be reached by now
        self._stop = np.full(n_slots, FAR)  # the position to wait at for the key to go up
        self._is_stepping = False
        self._moving: npt.NDArray[np.bool_] | None = None  # the rows that the step moves on, if not all

    def __iter__(self) -> Iterator[tuple[int, RequestHandle]]:
        """The rows of active notes, rising, and their requests."""
        return iter(sorted((row, handle) for handle, row in self._rows.items()))

    @property
    def n_active(self) -> int:
        """Notes that go on."""
        return len(self._rows)

    @property
    def n_occupied(self) -> int:
        """Rows that are not free."""
        return len(self._rows) + len(self.done)

    @property
    def n_frames_left(self) -> int:
        """Frames until the keys of all active notes go up."""
        left = np.maximum(self._held_frames - self.notes.position, 0)
        return int(left.sum(where=self._active))

    def handle(self, row: int) -> RequestHandle:
        """Returns the request of a row's note. Raises RuntimeError for a free row."""
        handle = self._handles[row]
        if handle is None:
            raise RuntimeError(f"slot {row} holds no note")
        return handle

    def occupy(self, handle: RequestHandle, tick: int = 0) -> int:
        """Begins a note in the lowest free row, in the frame of real time that `tick` counts; returns the
        row. Raises IndexError where none is free."""
        row = heappop(self._free)
        self._handles[row] = handle
        self._rows[handle] = row
        self._active[row] = True
        self._held_frames[row] = handle.held_frames
        self._is_released[row] = handle.is_released or handle.request.is_header
        if (lead := handle.request.frames_ahead) is not None:
            self._lead[row] = lead - tick
            self._live.add(row)
            if handle.request.held_on_frames and not handle.is_released:
                self._stop[row] = handle.held_frames
        self.notes.begin(row, handle.request.pitch)
        self.n_rows = max(self.n_rows, row + 1)
        return row

    def release(self, handle: RequestHandle) -> None:
        """The key goes up: from the next step on, if one is being run. One whose note has ended is let be."""
        if (row := self._rows.get(handle)) is not None:
            is_begun = self._is_stepping and (self._moving is None or self._moving[row])
            handle.release(int(self.notes.position[row]) + bool(is_begun))
            self._held_frames[row], self._stop[row] = handle.held_frames, FAR
            self._is_released[row] = True

    @property
    def standing(self) -> list[RequestHandle]:
        """The notes that have come to where they wait for their key to go up."""
        rows = np.flatnonzero(self._active & (self.notes.position >= self._stop))
        return [self.handle(row) for row in rows.tolist()]

    @property
    def keys_down(self) -> list[RequestHandle]:
        """The notes played live whose key is down."""
        return [handle for row in self._live if not (handle := self.handle(row)).is_released]

    @property
    def n_dying(self) -> int:
        """Active notes whose key is up, or is let go of and has to stay down for a few frames yet; and those
        that are for their header alone."""
        is_up = (self.notes.position >= self._held_frames) & (self._stop == FAR)
        return int(np.count_nonzero((is_up | self._is_released) & self._active))

    def end(self, handle: RequestHandle) -> None:
        """The note is complete, or given up. One that has ended is let be."""
        if (row := self._rows.pop(handle, None)) is not None:
            self._active[row] = False
            self._live.discard(row)
            self.done.add(row)

    def vacate(self, row: int) -> None:
        """Makes room for another note. Raises KeyError for a row that is not done."""
        self.done.remove(row)
        self._clear(row)

    def move_down(self, source: int) -> int:
        """Moves an active note to the lowest free row, which it returns."""
        handle, target = self.handle(source), heappop(self._free)
        self._handles[target], self._rows[handle] = handle, target
        for column in (self._active, self._held_frames, self._is_released, self._lead, self._stop):
            column[target] = column[source]
        if source in self._live:
            self._live.add(target)
        self.notes.move(source, target)
        self._clear(source)
        return target

    def is_due(self, tick: int) -> bool:
        """Whether any note may move on now."""
        return len(self._rows) > len(self._live) or bool(self._due(tick).any())

    def begin_step(self, tick: int) -> StepInput | None:
        """Returns what a step reads: from now on its frames can no longer be released. None where no note is
        due."""
        n, notes = self.n_rows, self.notes
        n_moving = n
        if self._live or len(self._rows) < n:
            moving = self._due(tick)
            n_moving = int(np.count_nonzero(moving))
            if n_moving == 0:
                return None
            self._moving = moving if n_moving < n else None
        elif not n:
            return None
        self._is_stepping, self.n_moving = True, n_moving
        position, most = notes.position[:n], self._release_frames
        gate = np.minimum(np.maximum(self._held_frames[:n] + (most - 1) - position, 0), most)
        return StepInput(self._active[:n], position, notes.tokens[:n], gate, self._moving)

    def end_step(self, drawn: npt.NDArray[np.int64], now: float) -> Sequence[int]:
        """Takes the tokens [n, K] that the step drew; returns the rows to look at, as of
        `NoteColumns.advance`, whose notes are still wanted."""
        moving, self._moving, self._is_stepping = self._moving, None, False
        named = self.notes.advance(drawn, now, moving)
        return [row for row in named if self._active[row]] if named else named

    def _due(self, tick: int) -> npt.NDArray[np.bool_]:
        """The rows [n] whose note may move on now. One that is played live waits while it is ahead of real
        time, and where the model is to write no more frames with the key down; once that is up, nothing is
        left to wait for."""
        n = self.n_rows
        position = self.notes.position[:n]
        is_let = (position < self._lead[:n] + tick) | (position >= self._held_frames[:n])
        return is_let & self._active[:n] & (position < self._stop[:n])

    def _clear(self, row: int) -> None:
        self.notes.clear(row)
        self._handles[row] = None
        self._active[row] = self._is_released[row] = False
        self._held_frames[row] = 0
        self._lead[row] = self._stop[row] = FAR
        self._live.discard(row)
        heappush(self._free, row)
        while self.n_rows and self._handles[self.n_rows - 1] is None:
            self.n_rows -= 1
