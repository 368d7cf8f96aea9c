"""The server that is soaked: its process, its memory, what it counts itself, and the time of day it sees."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.harness.processes import BenchServer

JUMPS = ("+1d", "-1d", "+0")


class SoakedServer(BenchServer):
    """`timbrel serve` with metrics, ready when this returns."""

    @property
    def is_running(self) -> bool:
        """Tells whether the process has not ended."""
        return self._process.poll() is None

    def resident_bytes(self) -> int:
        """The memory that it has."""
        pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="utf-8").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def n_frames(self) -> float:
        """Frames written so far, for whomever."""
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=30.0) as reply:
            lines = reply.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("timbrel_frames_total"))

    def reload(self) -> None:
        """Has it read its files anew."""
        self._process.send_signal(signal.SIGHUP)

    def end(self) -> int:
        """Asks it to end; returns its exit status, negative where it had to be killed."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return -self._process.wait()


class MemoryWatch:
    """Notes a server's memory once a second."""

    def __init__(self, resident_bytes: Callable[[], int]) -> None:
        self._resident_bytes = resident_bytes
        self._noted: list[int] = []

    async def run(self) -> None:
        """Notes it until cancelled."""
        while True:
            self._noted.append(self._resident_bytes())
            await asyncio.sleep(1.0)

    def growth(self) -> tuple[float, float]:
        """The growth of the last minute's median over that of minute 3: the share, and bytes.

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


class WallClock:
    """The time of day as a server sees it, set while it runs; the clocks that merely count on go right.

    It wants Debian's libfaketime.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.n_jumps = 0
        self._set("+0")

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that have a process see it. Raises SystemExit where the library is not installed."""
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
