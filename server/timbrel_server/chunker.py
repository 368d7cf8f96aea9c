"""How many frames go into one reply."""

from __future__ import annotations

from collections.abc import Sequence

from timbrel_server.ticket import Frame

LARGEST_CHUNK_FRAMES = 8
"""Beyond this larger replies save next to nothing, and the listener waits longer for each: a note that is
written just as fast as it is played is never late for one who began a chunk's length, 0.2 s or so, behind."""


class Chunker:
    """Gathers a note's frames into chunks: the first frame goes out alone, so that sound can begin; then the
    chunks double in size, since each reply costs about the same whatever is in it."""

    def __init__(self, largest: int = LARGEST_CHUNK_FRAMES) -> None:
        """
        Args:
            largest: frames of the largest chunk, at least 1.
        """
        self._pending: list[Frame] = []
        self._size = 1
        self._largest = largest

    def add(self, frame: Frame) -> Sequence[Frame]:
        """Takes a frame; returns the chunk that it fills, else nothing."""
        self._pending.append(frame)
        if len(self._pending) < self._size:
            return ()
        self._size = min(2 * self._size, self._largest)
        return self.flush()

    def flush(self) -> Sequence[Frame]:
        """Returns what there is."""
        chunk, self._pending = self._pending, []
        return chunk
