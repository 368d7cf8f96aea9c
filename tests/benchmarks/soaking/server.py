"""The server that is soaked: its process, its memory, and what it counts itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Collection, Mapping
from pathlib import Path

from benchmarks.harness.pinning import start_pinned

READY = re.compile(r"timbrel ready on (?P<address>\S+:\d+) .*metrics=(?P<metrics>\S+:\d+)")


class SoakedServer:
    """`timbrel serve` with metrics, ready when this returns. Its log is kept."""

    def __init__(
        self, bundle: Path, cores: Collection[int], *options: str, environment: Mapping[str, str]
    ) -> None:
        """
        Raises:
            SystemExit: it does not start; what it had to say of that is told.
        """
        self._log = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - closed by close()
        own = ("--bundle", str(bundle), "--port", "0", "--metrics-port", "0", "--exit-with-parent")
        self._process = start_pinned(
            ["-m", "timbrel_server", *own, *options], cores, stderr=self._log, changes=environment
        )
        assert self._process.stdout is not None
        match = READY.match(line := self._process.stdout.readline())
        if match is None:
            self._process.kill()
            raise SystemExit(f"the server does not start: {line.strip()} {self.log().strip()}")
        self.address = match["address"]
        self._metrics = match["metrics"]

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def resident_bytes(self) -> int:
        """Memory that it has."""
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

    def log(self) -> str:
        """What it wrote to the standard error."""
        self._log.seek(0)
        return self._log.read()

    def end(self) -> int:
        """Asks it to end; returns its exit status, negative where it had to be killed."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return -self._process.wait()
