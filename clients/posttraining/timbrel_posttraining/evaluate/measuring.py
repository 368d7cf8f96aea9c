"""Measuring many takes, over several processes."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from timbrel.progress import bar
from timbrel_posttraining.evaluate.cache import TakeCache
from timbrel_posttraining.evaluate.listener import Listener
from timbrel_posttraining.evaluate.take import Take

CHUNK = 4
"""Takes handed to a process at a time."""


def measure_takes(
    bundle: Path,
    library: Path,
    wanted: Mapping[Take, bool],
    cache: TakeCache,
    jobs: int,
    *,
    progress: bool = False,
) -> int:
    """Measures what the cache lacks; returns how many takes that were.

    Args:
        bundle, library: their folders; each process opens its own.
        wanted: takes, and whether each is heard in full or its log-mel spectrogram is enough.
        jobs: processes; 1 works in this one.
    """
    missing = [(take, in_full) for take, in_full in wanted.items() if not _is_there(cache, take, in_full)]
    if not missing:
        return 0
    with (
        _workers(bundle, library, cache, min(jobs, len(missing)), missing) as done,
        bar("measuring", len(missing), "note", shown=progress) as shown,
    ):
        for _ in done:
            shown.update()
    return len(missing)


def _is_there(cache: TakeCache, take: Take, in_full: bool) -> bool:
    return cache.has_mel(take) and (cache.has_record(take) or not in_full)


@contextmanager
def _workers(
    bundle: Path, library: Path, cache: TakeCache, jobs: int, work: Sequence[tuple[Take, bool]]
) -> Iterator[Iterator[None]]:
    """Yields once per take as it is done."""
    if jobs <= 1:
        yield _listen_here(Listener(bundle, library, cache), work)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context)
    try:
        yield pool.map(partial(_listen, bundle, library, cache), work, chunksize=CHUNK)
    finally:
        pool.shutdown(cancel_futures=True)


def _listen_here(listener: Listener, work: Sequence[tuple[Take, bool]]) -> Iterator[None]:
    for take, in_full in work:
        listener.listen(take, in_full=in_full)
        yield


def _listen(bundle: Path, library: Path, cache: TakeCache, work: tuple[Take, bool]) -> None:
    take, in_full = work
    _listener(bundle, library, cache).listen(take, in_full=in_full)


@functools.cache
def _listener(bundle: Path, library: Path, cache: TakeCache) -> Listener:
    """Of a worker process, made with its first take."""
    return Listener(bundle, library, cache)
