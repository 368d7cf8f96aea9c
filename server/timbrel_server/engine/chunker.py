"""How many frames go into one reply."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from timbrel_server.engine.ticket import Frame

LARGEST_CHUNK_FRAMES = 32
"""Beyond this larger replies save next to nothing."""

GROWTH = 3

LONGEST_WAIT_SECONDS = 0.15
"""How old a frame gets before it is sent: a listener who began 0.3 s behind a note that is written as fast
as it is played is never kept waiting, while a note that is written faster goes in few large replies."""


class Chunker:
    """Gathers a note's frames into chunks: the first frame goes out alone, so that sound can begin; then each
    chunk is three times as large as the last, since each reply costs about the same whatever is in it."""

    def __init__(
        self, largest: int = LARGEST_CHUNK_FRAMES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """
        Args:
            largest: frames of the largest chunk, at least 1.
            clock: seconds since some moment in the past, never falling.
        """
        self._pending: list[Frame] = []
        self._size = 1
        self._largest = largest
        self._clock = clock
        self._due = 0.0  # when what is pending is to go out, however little it is

    def add(self, frame: Frame) -> Sequence[Frame]:
        """Takes a frame; returns the chunk that it completes, else nothing."""
        now = self._clock()
        if not self._pending:
            self._due = now + LONGEST_WAIT_SECONDS
        self._pending.append(frame)
        if len(self._pending) < self._size and now < self._due:
            return ()
        self._size = min(GROWTH * self._size, self._largest)
        return self.flush()

    def flush(self) -> Sequence[Frame]:
        """Returns what there is."""
        chunk, self._pending = self._pending, []
        return chunk
