"""Work spread over several processes, each with a worker object of its own that is made once.

Each process keeps to one core, and keeps its memory.
"""

from __future__ import annotations

import ctypes
import functools
import multiprocessing
import os
import signal
import sys
import threading
from _thread import interrupt_main
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from timbrel_training.errors import TrainingError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""glibc's names, see mallopt(3)."""
LARGEST_KEPT = 2**30
"""Bytes."""
MOST_PROCESSES = 61 if sys.platform == "win32" else sys.maxsize
"""A pool cannot wait for more on Windows."""
HEARING_SECONDS = 0.2
"""So often who waits hears of a Ctrl-C on Windows, where no wait for another thread is broken off by one."""

Worker = TypeVar("Worker")
Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def results(
    make_worker: Callable[[], Worker],
    method: Callable[[Worker, Item], Result],
    items: Sequence[Item],
    jobs: int,
    chunk: int = 1,
) -> Iterator[Iterator[Result]]:
    """Yields the results of the items, in order, as they are done by `jobs` processes, one thread each; 1
    works in this one. A process has one worker, whose maker and method can be pickled, and is handed `chunk`
    items at a time. What is being done when the caller has had enough, as at Ctrl-C, is broken off. Raises
    TrainingError: the system ended a process."""
    n_processes = min(jobs, len(items), MOST_PROCESSES)
    if n_processes <= 1:
        yield map(functools.partial(method, make_worker()), items)
        return
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(n_processes, context, initializer=_remember, initargs=(make_worker, theirs))
    try:
        with _interrupts_kept_from_processes():
            chunks = (items[begin : begin + chunk] for begin in range(0, len(items), chunk))
            begun = [pool.submit(_work, method, each) for each in chunks]
        yield _results_of(begun)
    except BrokenProcessPool:
        raise TrainingError(
            "a worker process was ended, perhaps for want of memory; "
            "the same command goes on with what is done so far: give it fewer --jobs"
        ) from None
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)
        theirs.close()


@contextmanager
def _interrupts_kept_from_processes() -> Iterator[None]:
    """Lets the processes that are begun within it hear of no Ctrl-C, which a terminal sends to them, too:
    those that are still beginning would tell at length what they were at."""
    if sys.platform == "win32":  # whose processes inherit that they hear of none
        ctypes.windll.kernel32.SetConsoleCtrlHandler(None, True)
        try:
            yield
        finally:
            ctypes.windll.kernel32.SetConsoleCtrlHandler(None, False)
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _results_of(begun: list[Future[list[Result]]]) -> Iterator[Result]:
    """Yields the results as they are done, and lets go of them."""
    begun.reverse()
    while begun:
        while wait(begun[-1:], HEARING_SECONDS).not_done:
            pass
        yield from begun.pop().result()


def begin() -> None:
    """Keeps this process to one thread, of torch and of numpy, and has it keep the memory that it frees.

    Threads of several processes fight for the cores: by waiting for each other they make small products ten
    times as slow. Arrays of a note's length are made and freed all the time: glibc gives each back to the
    system, and half the time went by in having its pages again.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # what is loaded later reads it
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    threadpool_limits(1)
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        libc.mallopt(M_TRIM_THRESHOLD, 2 * LARGEST_KEPT - 1)


_worker: Callable[[], Any]
_is_working = _is_over = False


def _remember(make_worker: Callable[[], Any], theirs: Connection) -> None:
    """Begins a process. Its worker is made with the first item, so that its errors reach the caller."""
    global _worker
    signal.signal(signal.SIGINT, _break_off)
    threading.Thread(target=_end_with, args=(theirs,), daemon=True).start()
    begin()
    _worker = functools.cache(make_worker)


def _break_off(*_: object) -> None:
    """Breaks off the items at hand, but not what the pool does between two: others would wait for its end."""
    if _is_working:
        raise KeyboardInterrupt


def _end_with(theirs: Connection) -> None:
    """Breaks off the work once the connection's other end is closed; and ends this process when the one that
    it works for is killed: it would wait for items for ever."""
    global _is_over
    with suppress(EOFError, OSError):
        theirs.recv()
    _is_over = True
    interrupt_main()
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _work(method: Callable[[Any, Any], Any], items: Sequence[Any]) -> list[Any]:
    global _is_working
    _is_working = True
    try:
        if _is_over:  # of what the pool had handed out already, nobody wants the results
            raise KeyboardInterrupt
        return [method(_worker(), item) for item in items]
    finally:
        _is_working = False
