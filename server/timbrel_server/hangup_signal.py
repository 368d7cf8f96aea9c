"""What tells a server to read its files anew."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable


class HangupSignal:
    """SIGHUP. One that comes before `repeat`, or while it is busy, is not lost.

    Must be made inside a running event loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._came = asyncio.Event()

    def watch_signal(self) -> None:
        """Takes it from now on; until then it would end the process."""
        self._loop.add_signal_handler(signal.SIGHUP, self._came.set)

    async def repeat(self, action: Callable[[], Awaitable[None]]) -> None:
        """Does this at each, one at a time, until cancelled."""
        while True:
            await self._came.wait()
            self._came.clear()
            await action()
