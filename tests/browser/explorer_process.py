"""A real `timbrel explore` in a process of its own, as the page needs one."""

from __future__ import annotations

import random
import re
import socket
import subprocess
import sys
import tempfile
import threading

from server_process import START_TIMEOUT_SECONDS, end_process, server_environment

READY = re.compile(r"explorer: (?P<url>https?://\S+/)\n")


LEAST_PORT, MOST_PORT = 20_000, 32_000
"""Below those that a system gives to whoever asks for any: nobody is given one while its server is away."""


def lasting_port() -> int:
    """Finds a loopback port for servers that follow one another."""
    while True:
        port = random.randrange(LEAST_PORT, MOST_PORT)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


class ExplorerProcess:
    """The explorer of a running server, on a free loopback port, ready when this returns."""

    def __init__(self, server: str, *options: str) -> None:
        """
        Args:
            server: HOST:PORT of the server that it plays on.
        """
        self._log = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - closed by close()
        command = [sys.executable, "-m", "timbrel", "explore", "--server", server, "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--no-browser", *options],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=server_environment(),
        )
        assert self.process.stdout is not None
        watchdog = threading.Timer(START_TIMEOUT_SECONDS, self.process.kill)
        watchdog.start()
        ready_line = self.process.stdout.readline()
        watchdog.cancel()
        match = READY.fullmatch(ready_line)
        if match is None:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"no ready line, but {ready_line!r} and the log: {self.log()}")
        self.url = match["url"]

    def log(self) -> str:
        """What it has written to its standard error."""
        self._log.seek(0)
        return self._log.read()

    def close(self) -> None:
        """Ends it, if it has not ended."""
        end_process(self.process)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._log.close()
