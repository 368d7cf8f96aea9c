"""The event loop of the blocking clients, and the thread that reads a caller's requests."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncGenerator, Iterator

import pytest

import timbrel
from timbrel.threads import LoopThread, ThreadedIterator, loop_thread


async def double(number: int) -> int:
    await asyncio.sleep(0)
    if number < 0:
        raise ValueError(number)
    return 2 * number


def test_results_and_errors_come_back_to_whoever_asked() -> None:
    thread = loop_thread()
    assert thread is loop_thread()
    assert [thread.run(double, number) for number in range(3)] == [0, 2, 4]
    with pytest.raises(ValueError, match="-1"):
        thread.run(double, -1)


def test_an_interrupt_cancels_what_was_waited_for() -> None:
    started, ended = threading.Event(), threading.Event()

    async def stall() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def interrupt() -> None:
        started.wait()
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident
    assert main is not None
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        loop_thread().run(stall)
    assert ended.is_set()


def test_an_interrupt_that_comes_with_the_result_does_not_wait_for_another() -> None:
    async def interrupt() -> None:
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident
    assert main is not None
    for _ in range(50):
        with pytest.raises(KeyboardInterrupt):
            loop_thread().run(interrupt)
            time.sleep(10.0)  # the signal may come just after


def test_a_cancelled_task_is_an_error_of_timbrels() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(timbrel.CancelledError):
        loop_thread().run(cancelled)


def test_who_leaves_an_iteration_closes_what_it_iterates_over() -> None:
    closed = threading.Event()

    async def count() -> AsyncGenerator[int, None]:
        try:
            for number in range(1000):
                yield number
        finally:
            closed.set()

    numbers = loop_thread().iterate(count())
    assert [next(numbers), next(numbers)] == [0, 1]
    numbers.close()
    assert closed.wait(10.0)
    assert list(loop_thread().iterate(count())) == list(range(1000))


def test_items_are_read_in_one_other_thread_and_only_when_asked_for() -> None:
    threads, n_read = set(), 0

    def items() -> Iterator[int]:
        nonlocal n_read
        for number in range(5):
            threads.add(threading.current_thread())
            n_read += 1
            yield number
        raise ZeroDivisionError

    async def read() -> list[int]:
        reader, got = ThreadedIterator(items()), []
        async for item in reader:
            got.append(item)
            assert n_read == len(got)
        assert isinstance(reader.failure, ZeroDivisionError)
        return got

    thread = LoopThread()
    assert thread.run(read) == [0, 1, 2, 3, 4]
    assert len(threads) == 1 and threading.current_thread() not in threads
    thread.stop()
