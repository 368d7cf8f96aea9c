"""The time of day as a server sees it, set while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

JUMPS = ("+1d", "-1d", "+0")


class WallClock:
    """Wants Debian's libfaketime. The clocks that merely count on go right."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.n_jumps = 0
        self._set("+0")

    @property
    def environment(self) -> Mapping[str, str]:
        """What has a process see it. Raises SystemExit where the library is not installed."""
        libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        if not libraries:
            raise SystemExit("--clock-jumps needs libfaketime (apt-get install libfaketime)")
        return {
            "LD_PRELOAD": str(libraries[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }

    async def jump(self, every_seconds: float) -> None:
        """A day on, two back, and right again; until cancelled."""
        while True:
            for offset in JUMPS:
                await asyncio.sleep(every_seconds)
                self._set(offset)
                self.n_jumps += 1

    def _set(self, offset: str) -> None:
        temporary = self._file.with_suffix(".new")
        temporary.write_text(f"{offset}\n", encoding="utf-8")
        temporary.replace(self._file)
