"""A process on a core of its own that answers one line of JSON with another."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection
from typing import Any

from benchmarks.harness.pinning import start_pinned


class HelperProcess:
    """`python -m MODULE ARGUMENTS`, which says "ready" and then answers questions."""

    def __init__(self, module: str, arguments: list[str], cores: Collection[int]) -> None:
        self._process = start_pinned(["-m", module, *arguments], cores)
        self.read()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

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
    """In the process itself: says "ready", then answers until there are no more questions."""
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(handle(**json.loads(line))), flush=True)
