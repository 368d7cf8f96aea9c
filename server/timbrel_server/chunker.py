"""How many frames go into one reply."""

from __future__ import annotations

from collections.abc import Sequence

from timbrel_server.ticket import Frame

LARGEST_CHUNK_FRAMES = 16
"""Beyond this larger replies save next to nothing, and the listener waits longer for each."""


class Chunker:
    """Gathers a note's frames into chunks: the first frame goes out alone, so that sound can begin; then the
    chunks double in size, since each reply costs about the same whatever is in it."""

    def __init__(self) -> None:
        self._pending: list[Frame] = []
        self._size = 1

    def add(self, frame: Frame) -> Sequence[Frame]:
        """Takes a frame; returns the chunk that it fills, else nothing."""
        self._pending.append(frame)
        if len(self._pending) < self._size:
            return ()
        self._size = min(2 * self._size, LARGEST_CHUNK_FRAMES)
        return self.flush()

    def flush(self) -> Sequence[Frame]:
        """Returns what there is."""
        chunk, self._pending = self._pending, []
        return chunk
