"""Work spread over several processes, each with a worker object of its own that is made once."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from timbrel_training import worker_process

Worker = TypeVar("Worker")
Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def results(
    make_worker: Callable[[], Worker],
    method: Callable[[Worker, Item], Result],
    items: Sequence[Item],
    jobs: int,
    chunk: int,
) -> Iterator[Iterator[Result]]:
    """Yields the results of the items, in order, as they are done by `jobs` processes, one thread each; 1
    works in this one. A process has one worker, whose maker and method can be pickled, and is handed `chunk`
    items at a time."""
    if jobs <= 1:
        yield map(functools.partial(method, make_worker()), items)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=_remember, initargs=(make_worker,))
    try:
        yield pool.map(functools.partial(_work, method), items, chunksize=chunk)
    finally:
        pool.shutdown(cancel_futures=True)


_worker: Callable[[], Any]


def _remember(make_worker: Callable[[], Any]) -> None:
    """Begins a process. Its worker is made with the first item, so that its errors reach the caller."""
    global _worker
    worker_process.begin()
    _worker = functools.cache(make_worker)


def _work(method: Callable[[Any, Any], Any], item: Any) -> Any:
    return method(_worker(), item)
