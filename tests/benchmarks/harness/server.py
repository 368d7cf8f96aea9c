"""A real server in a process of its own, on cores of its own."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection
from pathlib import Path

from benchmarks.harness.pinning import start_pinned

READY = re.compile(r"timbrel ready on (?P<address>\S+:\d+) ")


class BenchServer:
    """`timbrel serve` on a free loopback port, ready when this returns."""

    def __init__(
        self, bundle: Path, cores: Collection[int], *options: str, module: str = "timbrel_server"
    ) -> None:
        """
        Args:
            options: more of the command line.
            module: what to run in its place.

        Raises:
            SystemExit: it does not start; what it had to say of that is told.
        """
        arguments = ["-m", module, "--bundle", str(bundle), "--port", "0", "--exit-with-parent", *options]
        with tempfile.TemporaryFile(mode="w+") as log:
            self._process = start_pinned(arguments, cores, stderr=log)
            assert self._process.stdout is not None
            match = READY.match(line := self._process.stdout.readline())
            if match is None:
                self._process.kill()
                self._process.wait()
                log.seek(0)
                raise SystemExit(f"the server does not start: {line.strip()} {log.read().strip()}")
        self.address = match["address"]

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def close(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.wait(60)
