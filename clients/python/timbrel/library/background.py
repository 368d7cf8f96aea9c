"""Threads that take only the processor time that others leave."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import ParamSpec, TypeVar

NICE = 10
"""A server on the same machine comes first: it is what everything else waits for."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class BackgroundPool:
    """A thread pool of low priority, where the system has such a thing (Linux has)."""

    def __init__(self, n_threads: int) -> None:
        self._pool = ThreadPoolExecutor(n_threads, "timbrel-background", initializer=_step_back)

    def __enter__(self) -> BackgroundPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Waits for what is running; what has not begun is dropped."""
        self._pool.shutdown(cancel_futures=True)

    def submit(
        self, work: Callable[_Arguments, _Result], *args: _Arguments.args, **named: _Arguments.kwargs
    ) -> Future[_Result]:
        """Runs this as soon as a thread is free."""
        return self._pool.submit(work, *args, **named)


def _step_back() -> None:
    """Lowers the priority of the calling thread alone: on Linux a thread has one of its own."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + NICE))
