"""Holds what waits to be sent to one page: bounded, so that a page that does not read costs no memory."""

from __future__ import annotations

import asyncio
from collections import deque

from timbrel.errors import OverloadedError

MAX_BYTES = 4 * 2**20
"""How much of a page's messages may be unsent: some 20 seconds of sound at 48 kHz."""

PATIENCE_SECONDS = 5.0
"""How long a full buffer may stay full."""

Frame = str | bytes
"""A WebSocket's text or binary frame."""


class StalledError(OverloadedError):
    """The page takes nothing any more."""

    def __init__(self) -> None:
        super().__init__("the page does not take its sound: its notes were ended")


class SendBuffer:
    """Frames in order. One task takes them; any may put some in, and waits where it is full."""

    def __init__(self, max_bytes: int = MAX_BYTES, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._max_bytes = max_bytes
        self._patience_seconds = patience_seconds
        self._frames: deque[Frame] = deque()
        self._n_bytes = 0
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()

    @property
    def n_bytes(self) -> int:
        """How much waits."""
        return self._n_bytes

    async def put(self, frame: Frame) -> None:
        """Adds a frame; waits where there is no room for it.

        Raises:
            StalledError: there was no room for it, and none came.
        """
        if not self._has_room(frame):
            try:
                async with asyncio.timeout(self._patience_seconds):
                    while not self._has_room(frame):
                        self._emptied.clear()
                        await self._emptied.wait()
            except TimeoutError:
                raise StalledError from None
        self.put_at_once(frame)

    def put_at_once(self, frame: Frame) -> None:
        """Adds a frame whether or not there is room: for the few words that must be said."""
        self._frames.append(frame)
        self._n_bytes += len(frame)
        self._filled.set()

    async def take(self) -> Frame:
        """Removes and returns the next frame; waits for it."""
        while not self._frames:
            self._filled.clear()
            await self._filled.wait()
        frame = self._frames.popleft()
        self._n_bytes -= len(frame)
        self._emptied.set()
        return frame

    def drop_sound(self) -> None:
        """Forgets the binary frames that wait."""
        self._frames = deque(frame for frame in self._frames if isinstance(frame, str))
        self._n_bytes = sum(map(len, self._frames))
        self._emptied.set()

    def _has_room(self, frame: Frame) -> bool:
        return not self._frames or self._n_bytes + len(frame) <= self._max_bytes
