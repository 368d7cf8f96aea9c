"""Work spread over several processes, each with a worker object of its own that is made once.

Each process keeps to one core, and keeps its memory.
"""

from __future__ import annotations

import ctypes
import functools
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from timbrel_training.errors import TrainingError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""glibc's names, see mallopt(3)."""
LARGEST_KEPT = 2**30
"""Bytes."""

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
    items at a time. Raises TrainingError: the system ended a process."""
    if min(jobs, len(items)) <= 1:
        yield map(functools.partial(method, make_worker()), items)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(items)), context, initializer=_remember, initargs=(make_worker,))
    try:
        yield pool.map(functools.partial(_work, method), items, chunksize=chunk)
    except BrokenProcessPool:
        raise TrainingError(
            "a worker process was ended, perhaps for want of memory; "
            "the same command goes on with what is done so far: give it fewer --jobs"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


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


def _remember(make_worker: Callable[[], Any]) -> None:
    """Begins a process. Its worker is made with the first item, so that its errors reach the caller."""
    global _worker
    threading.Thread(target=_end_with_parent, daemon=True).start()
    begin()
    _worker = functools.cache(make_worker)


def _end_with_parent() -> None:
    """Ends this process when the one that it works for is killed: it would wait for items for ever."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _work(method: Callable[[Any, Any], Any], item: Any) -> Any:
    return method(_worker(), item)
