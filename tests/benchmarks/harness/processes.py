"""Processes of a benchmark, each confined to its cores: the server, and helpers that answer lines of JSON."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[3]

READY = re.compile(r"timbrel ready on (?P<address>\S+:\d+) (?:.*metrics=(?P<metrics>\S+:\d+))?")


class BenchServer:
    """`timbrel serve` on a free loopback port, ready when this returns."""

    def __init__(
        self,
        bundle: Path,
        cores: Collection[int],
        *options: str,
        module: str = "timbrel_server",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            options: more of the command line.
            module: runs in its place.
            environment: changes to it.

        Raises:
            SystemExit: it does not start; what it had to say of that is told.
        """
        arguments = ["-m", module, "--bundle", str(bundle), "--port", "0", "--exit-with-parent", *options]
        self._log = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - the server writes for as long as it runs
        self._process = start_pinned(arguments, cores, stderr=self._log, changes=environment)
        assert self._process.stdout is not None
        match = READY.match(line := self._process.stdout.readline())
        if match is None:
            self._process.kill()
            self._process.wait()
            raise SystemExit(f"the server does not start: {line.strip()} {self.log().strip()}")
        self.address = match["address"]
        self._metrics = match["metrics"]

    def log(self) -> str:
        """Returns what it wrote to the standard error."""
        self._log.seek(0)
        return self._log.read()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def close(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.wait(60)


class HelperProcess:
    """`python -m MODULE ARGUMENTS`, which says "ready" and then answers questions."""

    def __init__(self, module: str, arguments: list[str], cores: Collection[int]) -> None:
        self._process = start_pinned(["-m", module, *arguments], cores)
        self.read()

    def ask(self, **question: Any) -> Any:
        """Asks and waits for the answer."""
        self.send(**question)
        return self.read()

    def send(self, **question: Any) -> None:
        """Asks only."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()

    def read(self) -> Any:
        """The next answer.

        Raises:
            SystemExit: the process has ended; what it had to say of that is on the standard error.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a process of this benchmark has ended: {self._process.args!r}")
        return json.loads(line)

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def answer(handle: Callable[..., Any]) -> None:
    """Is called in the helper process: says "ready", then answers until there are no more questions."""
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(handle(**json.loads(line))), flush=True)


def start_pinned(
    arguments: list[str],
    cores: Collection[int],
    *,
    stderr: IO[Any] | None = None,
    changes: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Starts `python ARGUMENTS` in the repository's root, confined to these cores, with one thread for BLAS;
    its standard input and output are pipes.

    Args:
        changes: to the environment.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIMBREL_")}
    paths = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    environment |= changes or {}
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        cwd=ROOT,
        env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
