"""A real server in a process of its own, as tests need one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from forked_servers import IS_POSSIBLE, ForkedProcess

START_TIMEOUT_SECONDS = 120.0
STOP_TIMEOUT_SECONDS = 60.0

READY = re.compile(
    r"timbrel ready on (?P<address>\S+:\d+) bundle=(?P<bundle>\S+) provider=(?P<provider>\S+)"
    r"(?: metrics=(?P<metrics>\S+:\d+))?(?: processes=\d+)?\n"
)


def end_process(process: subprocess.Popen[str] | ForkedProcess) -> None:
    """Ends it, by force if need be, unless it has ended."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


MODULE = ("-m", "timbrel_server")


class ServerProcess:
    """`python -m timbrel_server` on a free loopback port, ready when this returns."""

    def __init__(
        self,
        bundle: Path,
        *options: str,
        program: Sequence[str] = MODULE,
        stderr: IO[str] | None = None,
        is_forked: bool = True,
        **environment: str,
    ) -> None:
        """
        Args:
            program: what Python is to run.
            stderr: where its log goes, in place of `log`.
            is_forked: whether it may be a copy of a process that has imported everything.
        """
        self._log = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - closed by close()
        arguments = ["--bundle", str(bundle), "--port", "0", "--threads", "1", *options]
        self._is_alone = "--processes" not in options
        own, log = server_environment(**environment), stderr or self._log
        self.process: subprocess.Popen[str] | ForkedProcess
        is_usual = program == MODULE and all(name.startswith("TIMBREL_") for name in environment)
        if is_forked and is_usual and IS_POSSIBLE:
            self.process = ForkedProcess(arguments, own, log)
        else:
            self.process = subprocess.Popen(
                [sys.executable, *program, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=own,
            )
        assert self.process.stdout is not None
        watchdog = threading.Timer(START_TIMEOUT_SECONDS, self.process.kill)
        watchdog.start()
        self.ready_line = self.process.stdout.readline()
        watchdog.cancel()
        match = READY.fullmatch(self.ready_line)
        if match is None:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"no ready line, but {self.ready_line!r} and the log: {self.log()}")
        self.address = match["address"]
        self.metrics_address: str | None = match["metrics"]

    def log(self) -> str:
        """What it has written to its standard error."""
        log = self._log.fileno()
        # The server's own place in it stays. It may be amid a letter.
        if hasattr(os, "pread"):
            return os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")
        os.lseek(log, 0, os.SEEK_SET)  # Windows: it stays only where the server does not write meanwhile
        return os.read(log, os.fstat(log).st_size).decode(errors="replace")

    def log_entries(self) -> list[dict[str, Any]]:
        """Each line of a log in JSON, but for one that it is amid of."""
        return [json.loads(line) for line in self.log().rpartition("\n")[0].splitlines()]

    def signal(self, number: int) -> None:
        """Sends a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Waits for the end; returns the exit status."""
        return self.process.wait(STOP_TIMEOUT_SECONDS)

    def rest_of_output(self) -> str:
        """What it wrote to the standard output after the ready line; waits for the end."""
        assert self.process.stdout is not None
        return self.process.stdout.read()

    def close(self) -> None:
        """Ends it, if it has not ended: at once, for nobody is served any more."""
        if self._is_alone:
            self.process.kill()
            self.process.wait()
        else:
            end_process(self.process)
        for pipe in (self.process.stdin, self.process.stdout, self._log):
            if pipe is not None:
                pipe.close()


def run_server(*options: str, is_forked: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs a server that ends by itself, within two minutes; `is_forked` as of `ServerProcess`."""
    environment = server_environment()
    if not (is_forked and IS_POSSIBLE):
        return subprocess.run(
            server_command(*options),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_SECONDS,
            env=environment,
            check=False,
        )
    with tempfile.TemporaryFile(mode="w+") as log:
        process = ForkedProcess(options, environment, log)
        watchdog = threading.Timer(START_TIMEOUT_SECONDS, process.kill)
        watchdog.start()
        process.stdin.close()
        with process.stdout as output:
            said = output.read()
        status = process.wait()
        watchdog.cancel()
        log.seek(0)
        return subprocess.CompletedProcess(process.args, status, said, log.read())


def hasty(change: str) -> tuple[str, ...]:
    """What Python is to run: a server but for one change, of what it has patience with."""
    module = change.split(" = ")[0].rpartition(".")[0]
    return (
        "-c",
        f"import sys, timbrel_server.{module}; timbrel_server.{change};"
        " from timbrel_server.__main__ import main; sys.exit(main())",
    )


def server_command(*options: str) -> list[str]:
    """The command line of a server."""
    return [sys.executable, "-m", "timbrel_server", *options]


def server_environment(**changes: str) -> dict[str, str]:
    """This process's environment, without what would change how a server runs, but for `changes`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIMBREL_")}
    return {**kept, "OMP_NUM_THREADS": "1", **changes}
