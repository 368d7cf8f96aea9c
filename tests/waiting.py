"""Waiting for what another thread, task or process does.

A test asks for a state and not for a span of time; the upper limit is generous, and costs nothing where all
is well.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

PATIENCE_SECONDS = 60.0
LONGEST_NAP_SECONDS = 0.02

T = TypeVar("T")


def wait_for(
    condition: Callable[[], T],
    what: str,
    *,
    seen: Callable[[], object] | None = None,
    seconds: float = PATIENCE_SECONDS,
) -> T:
    """Waits until `condition()` is true, and returns what it gave; fails the test where it never is.

    Args:
        condition: asked again and again.
        what: what is waited for, as the failure names it.
        seen: gives what the failure shows as the last state; by default what the condition gave last.
        seconds: a generous upper limit.
    """
    patience = _Patience(what, seen, seconds)
    while not (found := condition()):
        time.sleep(patience.nap(found))
    return found


async def wait_for_async(
    condition: Callable[[], T],
    what: str,
    *,
    seen: Callable[[], object] | None = None,
    seconds: float = PATIENCE_SECONDS,
) -> T:
    """The same within an event loop, which runs on meanwhile."""
    patience = _Patience(what, seen, seconds)
    while not (found := condition()):
        await asyncio.sleep(patience.nap(found))
    return found


def wait_until_blocked(thread: threading.Thread) -> None:
    """Waits until a thread waits for a lock, a condition or an event of the standard library itself."""

    def is_blocked() -> bool:
        frame = sys._current_frames().get(thread.ident or 0)
        if frame is None:
            return False
        return frame.f_code.co_filename == threading.__file__ and frame.f_code.co_name == "wait"

    wait_for(is_blocked, f"the thread {thread.name} to block")


def is_running(pid: int) -> bool:
    """Whether a process is there, and is more than an entry that its parent has yet to collect (a zombie)."""
    try:
        os.kill(pid, 0)
        return not Path("/proc").is_dir() or "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):  # both come of its end, even between opening and reading
        return False


def wait_until_gone(pid: int) -> None:
    """Waits until a process has ended."""
    wait_for(lambda: not is_running(pid), f"the end of process {pid}")


class _Patience:
    """Spaces out the looks at a condition, and fails the test once its time is up."""

    def __init__(self, what: str, seen: Callable[[], object] | None, seconds: float) -> None:
        self._what = what
        self._seen = seen
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._nap_seconds = 0.001

    def nap(self, found: object) -> float:
        """Seconds until the next look: few at first, since most things come about at once."""
        if time.monotonic() > self._end:
            last = found if self._seen is None else self._seen()
            raise AssertionError(f"waited {self._seconds:g} s for {self._what}; seen last: {last!r}")
        self._nap_seconds = min(1.5 * self._nap_seconds, LONGEST_NAP_SECONDS)
        return self._nap_seconds
