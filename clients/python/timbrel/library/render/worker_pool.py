"""A pool of threads for work beside the rendering: the most urgent first, in the time that others leave."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from enum import IntEnum
from typing import Any, NamedTuple, ParamSpec, TypeVar

from timbrel_bundle.runtime import cores_within_quota

MAX_THREADS = 8

NICE = 10
"""A server on the same machine comes first: it is what everything else waits for."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Urgency(IntEnum):
    """The urgency of work. The nearest to its end comes first: once finished, it leaves the memory."""

    FINISH = 0
    MEASURE = 1


_LAST = max(Urgency) + 1


class _Task(NamedTuple):
    """A piece of work; tasks are ordered by urgency, then by number."""

    urgency: int
    number: int
    future: Future[Any]
    work: Callable[[], Any] | None
    """None ends the thread that gets it."""


class WorkerPool(contextlib.AbstractContextManager["WorkerPool"]):
    """Threads of low priority that take work by its urgency, and in order where that is equal."""

    def __init__(self, n_threads: int) -> None:
        self._waiting: queue.PriorityQueue[_Task] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._threads = [
            threading.Thread(target=self._work, name="timbrel-worker", daemon=True) for _ in range(n_threads)
        ]
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        """Waits for what is running; what has not begun is dropped."""
        with contextlib.suppress(queue.Empty):  # asked for at once: a worker may take the last one
            while True:
                self._waiting.get_nowait().future.cancel()
        for _thread in self._threads:
            self._waiting.put(_Task(_LAST, next(self._numbers), Future(), None))
        for thread in self._threads:
            thread.join()

    def submit(
        self,
        urgency: Urgency,
        work: Callable[_Arguments, _Result],
        *args: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> Future[_Result]:
        """Runs this as soon as a thread is free and nothing more urgent waits."""
        future: Future[_Result] = Future()
        self._waiting.put(_Task(urgency, next(self._numbers), future, lambda: work(*args, **named)))
        return future

    def _work(self) -> None:
        if sys.platform == "linux":  # elsewhere, a thread has no priority of its own
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + NICE))
        while (task := self._waiting.get()).work is not None:
            if task.future.set_running_or_notify_cancel():
                try:
                    task.future.set_result(task.work())
                except BaseException as error:  # for whoever asks for the result
                    task.future.set_exception(error)
            del task


def done_future(result: _Result) -> Future[_Result]:
    """Makes the future of work that is done already."""
    future: Future[_Result] = Future()
    future.set_result(result)
    return future


def default_threads() -> int:
    """Counts the cores that this process may keep busy, up to MAX_THREADS."""
    return min(MAX_THREADS, cores_within_quota())
