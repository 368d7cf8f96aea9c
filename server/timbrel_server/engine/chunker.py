"""How many frames go into one reply."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from timbrel_server.engine.ticket import Frame

LARGEST_CHUNK_FRAMES = 32
"""Beyond this larger replies save next to nothing."""

NO_LIMIT = 1 << 30

GROWTH = 3

LONGEST_WAIT_SECONDS = 0.15
"""How old a frame gets before it is sent: a listener who began 0.3 s behind a note that is written as fast
as it is played is never kept waiting, while a note that is written faster goes in few large replies."""

LONGEST_WAIT_AFTER_QUEUING_SECONDS = 0.25
"""The same where the note itself came late: its listener begins 0.3 s behind the first chunk, not behind the
asking. Where notes queue, replies are what the machine has no time for."""


class Chunker:
    """Gathers a note's frames into chunks: the first frame goes out alone, so that sound can begin; then each
    chunk is three times as large as the last, since each reply costs about the same whatever is in it."""

    def __init__(
        self,
        largest: int = LARGEST_CHUNK_FRAMES,
        clock: Callable[[], float] = time.monotonic,
        *,
        first: int = 1,
    ) -> None:
        """
        Args:
            largest: frames of the largest chunk, at least 1.
            clock: seconds since some moment in the past, never falling.
            first: frames of the first chunk, at least 1.
        """
        self._pending: list[Frame] = []
        self._size = first
        self._longest_wait_seconds = LONGEST_WAIT_SECONDS
        self._growth = GROWTH
        self._largest = largest
        self._clock = clock
        self._due = 0.0  # when what is pending is to go out, however little it is
        self._is_live = False
        self.is_urgent = True
        """Whether the next chunk is to go out at once: its listener hears nothing yet, or plays live."""

    @classmethod
    def of_whole_notes(cls) -> Chunker:
        """Nothing goes out before the end."""
        chunker = cls(NO_LIMIT, first=NO_LIMIT)
        chunker._longest_wait_seconds = math.inf
        chunker.is_urgent = False
        return chunker

    @classmethod
    def of_live_notes(cls) -> Chunker:
        """The next frame is a frame of real time away: nothing is gained by waiting for more."""
        chunker = cls(largest=1)
        chunker._is_live = True
        return chunker

    def add(self, frame: Frame) -> Sequence[Frame]:
        """Takes a frame; returns the chunk that it completes, else nothing."""
        now = self._clock()
        if not self._pending:
            self._due = now + self._longest_wait_seconds
        self._pending.append(frame)
        if len(self._pending) < self._size and now < self._due:
            return ()
        self._size = min(self._growth * self._size, self._largest)
        self.is_urgent = self._is_live
        return self.flush()

    def note_came_late(self) -> None:
        """Its listener is in no hurry any more, unless the note is played live: the first frame goes out
        alone, then what there is once it is as old as it may get."""
        if self._is_live:
            return
        self._growth = self._largest = NO_LIMIT
        self._longest_wait_seconds = max(self._longest_wait_seconds, LONGEST_WAIT_AFTER_QUEUING_SECONDS)

    def flush(self) -> Sequence[Frame]:
        """Returns what there is."""
        chunk, self._pending = self._pending, []
        return chunk
