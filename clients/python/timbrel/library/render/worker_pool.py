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

MAX_THREADS = 8

NICE = 10
"""A server on the same machine comes first: it is what everything else waits for."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Urgency(IntEnum):
    """The urgency of work. The nearest to its end comes first: once finished, it leaves the memory."""

    FINISH = 0
    MEASURE = 1


class WorkerPool(contextlib.AbstractContextManager["WorkerPool"]):
    """Threads that take work by its urgency, and in order where that is equal."""

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads
        self._waiting: queue.PriorityQueue[_Task] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._generation = 0
        self._threads: list[threading.Thread] = []

    def __exit__(self, *_: object) -> None:
        """Waits for what is running; what has not begun is dropped."""
        with contextlib.suppress(queue.Empty):  # asked for at once: a worker may take the last one
            while True:
                task = self._waiting.get_nowait()
                if task.future is not None:
                    task.future.cancel()
        for _thread in self._threads:
            self._put(_LAST, None, lambda: None)
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

    def set_low_priority(self, low: bool) -> None:
        """Gives work that begins from now on a low priority, if the system has such a thing, or a normal one.

        On Linux a thread has a priority of its own, which it may lower and not raise: others take over.
        """
        self._generation += 1
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for _ in range(self._n_threads):
            thread = threading.Thread(
                target=self._work, args=(self._generation, low), name="timbrel-worker", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _put(self, urgency: int, future: Future[Any] | None, work: Callable[[], Any]) -> None:
        self._waiting.put(_Task(urgency, next(self._numbers), future, work))

    def _work(self, generation: int, low_priority: bool) -> None:
        if low_priority:
            _lower_priority()
        while True:
            task = self._waiting.get()
            if task.future is None:
                return
            if generation != self._generation:
                self._waiting.put(task)  # for the threads that took over
                return
            if task.future.set_running_or_notify_cancel():
                try:
                    task.future.set_result(task.work())
                except BaseException as error:  # for whoever asks for the result
                    task.future.set_exception(error)
            del task


class _Task(NamedTuple):
    """A piece of work; tasks are ordered by urgency, then by number."""

    urgency: int
    number: int
    future: Future[Any] | None
    """None ends the thread that gets it."""

    work: Callable[[], Any]


_LAST = max(Urgency) + 1


def done_future(result: _Result) -> Future[_Result]:
    """Makes the future of work that is done already."""
    future: Future[_Result] = Future()
    future.set_result(result)
    return future


def default_threads() -> int:
    """Counts the cores that this process may use, up to MAX_THREADS."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(MAX_THREADS, cores)


def _lower_priority() -> None:
    """Lowers the priority of the calling thread alone."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + NICE))
