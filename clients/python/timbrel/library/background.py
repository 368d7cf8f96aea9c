"""Threads for what is done beside the rendering: the most urgent first, in the time that others leave."""

from __future__ import annotations

import itertools
import os
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from enum import IntEnum
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, TypeVar

NICE = 10
"""A server on the same machine comes first: it is what everything else waits for."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Urgency(IntEnum):
    """What is taken first. Nearest to the end comes first: what is finished need not be kept in memory."""

    FINISH = 0
    MEASURE = 1


class WorkerPool:
    """Threads that take work by its urgency, and in order where that is equal."""

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads
        self._waiting: queue.PriorityQueue[_Errand] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._shift = 0
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Waits for what is running; what has not begun is dropped."""
        while not self._waiting.empty():
            errand = self._waiting.get()
            if errand.future is not None:
                errand.future.cancel()
        for _ in self._threads:
            self._put(_LAST, None, _nothing)
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
        self._put(urgency, future, lambda: work(*args, **named))
        return future

    def step_back(self, modest: bool) -> None:
        """Work that begins from now on is of low priority, where the system has such a thing, or of normal.

        On Linux a thread has a priority of its own, which it may lower and not raise: others take over.
        """
        self._shift += 1
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for _ in range(self._n_threads):
            thread = threading.Thread(
                target=self._work, args=(self._shift, modest), name="timbrel-worker", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _put(self, urgency: int, future: Future[Any] | None, work: Callable[[], Any]) -> None:
        self._waiting.put(_Errand(urgency, next(self._numbers), future, work))

    def _work(self, shift: int, modest: bool) -> None:
        if modest:
            _lower_priority()
        while True:
            errand = self._waiting.get()
            if errand.future is None:
                return
            if shift != self._shift:
                self._waiting.put(errand)  # for those who took over
                return
            if errand.future.set_running_or_notify_cancel():
                try:
                    errand.future.set_result(errand.work())
                except BaseException as error:  # for who asks for the result
                    errand.future.set_exception(error)
            del errand


class _Errand(NamedTuple):
    """Something to do; ordered by urgency, then by number."""

    urgency: int
    number: int
    future: Future[Any] | None
    """None: there is nothing to do any more."""

    work: Callable[[], Any]


_LAST = max(Urgency) + 1


def usable_cores() -> int:
    """Cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _nothing() -> None:
    pass


def _lower_priority() -> None:
    """Of the calling thread alone."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + NICE))
