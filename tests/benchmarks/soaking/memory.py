"""How much memory a server has, second by second."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable


class MemoryWatch:
    """Notes it once a second."""

    def __init__(self, resident_bytes: Callable[[], int]) -> None:
        self._resident_bytes = resident_bytes
        self._noted: list[int] = []

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._noted.append(self._resident_bytes())
            await asyncio.sleep(1.0)

    def growth(self) -> tuple[float, float]:
        """Of the last minute's median over that of minute 3: the share, and bytes.

        Where there are no four minutes: of the last quarter over the second.
        """
        n = len(self._noted)
        early, late = (
            (self._noted[120:180], self._noted[-60:])
            if n >= 240
            else (self._noted[n // 4 : n // 2], self._noted[-(-3 * n // 4) :])
        )
        if not early or not late:
            return 0.0, 0.0
        before, after = statistics.median(early), statistics.median(late)
        return after / before - 1.0, after - before
