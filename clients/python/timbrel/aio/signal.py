"""Tells waiting tasks that something has changed."""

from __future__ import annotations

import asyncio
import contextlib


class Signal:
    """What `threading.Condition` is to threads, for the tasks of one event loop: no lock is needed there."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wakes every task that waits now."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds: float | None) -> None:
        """Returns at the next `notify`, or after so many seconds; None: however long it takes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
