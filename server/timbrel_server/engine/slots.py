"""A slot: one row of the engine's batch, and the note in it."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from timbrel_server.engine.progress import NoteProgress, TokenLayout
from timbrel_server.engine.request import Finish, Frame, RequestHandle


class SlotState(enum.Enum):
    """The states of a slot."""

    FREE = enum.auto()
    """It holds no note."""

    WRITING = enum.auto()
    """Its note goes on."""

    FLUSHING = enum.auto()
    """Its note's length is known; the later codebooks are catching up."""

    DONE = enum.auto()
    """Its note is complete, or its caller has gone: free from the next admission on."""


_NEXT: dict[SlotState, frozenset[SlotState]] = {
    SlotState.FREE: frozenset({SlotState.WRITING}),
    SlotState.WRITING: frozenset({SlotState.FLUSHING, SlotState.DONE}),
    SlotState.FLUSHING: frozenset({SlotState.DONE}),
    SlotState.DONE: frozenset({SlotState.FREE}),
}


class Slot:
    """One row of the batch. Its state changes in `_become` alone."""

    def __init__(self, row: int) -> None:
        self.row = row
        self.state = SlotState.FREE
        self.active = False
        """Whether the next step moves this slot's note on. Asked for often, so it is no property."""
        self._handle: RequestHandle | None = None
        self._progress: NoteProgress | None = None
        self._n_begun = 0  # steps that are being run or have been
        self._frames_ahead: int | None = None
        self._first_tick = 0

    @property
    def handle(self) -> RequestHandle:
        """The request of the note. Raises RuntimeError for a free slot, as do the next two."""
        if self._handle is None:
            raise RuntimeError(f"slot {self.row} holds no note")
        return self._handle

    @property
    def progress(self) -> NoteProgress:
        """The note's progress."""
        if self._progress is None:
            raise RuntimeError(f"slot {self.row} holds no note")
        return self._progress

    @property
    def held(self) -> bool:
        """The gate of the frame that codebook 0 predicts next."""
        return self.progress.position < self.handle.held_frames

    @property
    def finish(self) -> Finish | None:
        """The reason for which the note ended, once every frame is complete."""
        return self._progress.finish if self._progress and self._progress.complete else None

    def is_due(self, tick: int) -> bool:
        """Whether the note may move on now. One that is played live waits while it is ahead of real time;
        once its key is up, nothing is left to wait for."""
        lead = self._frames_ahead
        return lead is None or self.progress.position < tick - self._first_tick + lead or not self.held

    def occupy(self, handle: RequestHandle, layout: TokenLayout, tick: int = 0) -> None:
        """Begins a note, in the frame of real time that `tick` counts."""
        self._become(SlotState.WRITING)
        self._handle = handle
        self._progress = NoteProgress(layout, handle.request.pitch)
        self._n_begun = 0
        self._frames_ahead = handle.request.frames_ahead
        self._first_tick = tick

    def begin_step(self) -> None:
        """A step reads this slot's gate from now on: its frame can no longer be released."""
        self._n_begun = self.progress.position + 1

    def advance(self, drawn: Sequence[int]) -> Frame | None:
        """Takes the tokens [K] that a step drew; returns the frame that they complete, if any."""
        progress = self.progress
        frame = progress.advance(drawn)
        if progress.finish is not None and self.state is SlotState.WRITING:
            self._become(SlotState.FLUSHING)
        if progress.complete:
            self._become(SlotState.DONE)
        return frame

    def abandon(self) -> None:
        """Gives the note up: its caller has gone."""
        if self.active:
            self._become(SlotState.DONE)

    def release(self) -> None:
        """The key goes up: from the next step on, if one is being run."""
        if self.active:
            self.handle.release(self._n_begun)

    def vacate(self) -> None:
        """Makes room for the next note."""
        self._become(SlotState.FREE)
        self._handle = None
        self._progress = None

    def _become(self, state: SlotState) -> None:
        if state not in _NEXT[self.state]:
            raise RuntimeError(f"slot {self.row} cannot go from {self.state.name} to {state.name}")
        self.state = state
        self.active = state in (SlotState.WRITING, SlotState.FLUSHING)
