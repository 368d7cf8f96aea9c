"""The event loop of the blocking clients, and the thread that reads a caller's requests."""

from __future__ import annotations

import _thread
import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from unittest.mock import Mock

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
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        loop_thread().run(stall)
    assert ended.is_set()


def test_an_interrupt_that_comes_with_the_result_does_not_wait_for_another() -> None:
    async def interrupt() -> None:
        _thread.interrupt_main()

    for _ in range(50):
        with pytest.raises(KeyboardInterrupt):
            loop_thread().run(interrupt)
            time.sleep(10.0)  # the signal may come just after


def test_a_cancelled_task_is_an_error_of_timbrels() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(timbrel.CancelledError):
        loop_thread().run(cancelled)


def test_nobody_waits_for_a_loop_that_has_ended() -> None:
    thread, waiting = LoopThread(), threading.Event()
    thread.stop()
    with pytest.raises(timbrel.CancelledError, match="the program is ending"):
        thread.run(double, 1)

    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    thread = LoopThread()
    threading.Thread(target=lambda: (waiting.wait(), thread.stop())).start()
    with pytest.raises(timbrel.CancelledError, match="the program is ending"):
        thread.run(wait)


CLOSED_AT_THE_END = """
import atexit
atexit.register(lambda: (late.close(), print("closed after the loop", flush=True)))
import timbrel
def clients():
    with timbrel.Client("localhost:1") as client:
        yield client
late, kept = timbrel.Client("localhost:1"), clients()
late.__enter__(), next(kept)
atexit.register(lambda: print("the end", flush=True))
"""


def test_a_program_ends_though_clients_are_closed_when_the_interpreter_is_ending() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLOSED_AT_THE_END], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["the end", "closed after the loop"]


@pytest.mark.parametrize("loop_has_ended", [True, False])
def test_a_private_server_is_ended_even_then(monkeypatch: pytest.MonkeyPatch, loop_has_ended: bool) -> None:
    """After the loop, or before, when threads can no longer be started."""

    async def refuse(function: object) -> None:
        raise RuntimeError("can't register atexit after shutdown")

    thread = LoopThread()
    monkeypatch.setattr("timbrel.client.loop_thread", lambda: thread)
    monkeypatch.setattr(asyncio, "to_thread", refuse)
    client, server = timbrel.Client("localhost:1"), Mock()
    client._connection.private_server = server
    if loop_has_ended:
        thread.stop()
    client.close()
    server.close.assert_called_once_with()
    thread.stop()


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
