"""Threads beside the caller's: the event loop of all blocking clients, and threads that may wait."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from typing import Any, Generic, ParamSpec, TypeVar

from timbrel.errors import CancelledError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Item = TypeVar("_Item")

TURN_SECONDS = 0.5
"""How late Ctrl-C may take effect at worst."""

STOP_SECONDS = 2.0
"""How long the end of the program waits for the loop, and a daemon thread for the end of the program."""

ENDING = "the program is ending: nothing can be asked of a server any more"


class LoopThread:
    """An event loop in a daemon thread, in which other threads have coroutines run.

    All blocking clients of a process share one: gRPC wakes every event loop that has a channel at each of its
    events, so that a loop for each client would cost several times as much.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_handle_exception)
        self._is_stopped = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="timbrel-loop", daemon=True)
        self._thread.start()

    def run(
        self,
        function: Callable[_Arguments, Coroutine[Any, Any, _Result]],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result:
        """Runs a coroutine function in the loop and waits for its result.

        A caller that is interrupted meanwhile (Ctrl-C) cancels it, and waits until it has cleaned up.

        Raises:
            CancelledError: it was cancelled by others, or the program is ending and the loop has ended.
        """
        self._check()
        ended: queue.SimpleQueue[asyncio.Task[_Result] | None] = queue.SimpleQueue()
        started: list[asyncio.Task[_Result]] = []

        def start() -> None:
            started.append(self._loop.create_task(function(*args, **kwargs)))
            started[0].add_done_callback(ended.put)

        def cancel() -> None:
            if started and not started[0].done():
                started[0].cancel()
            else:  # interrupted before it began, or just as its end had been taken from the queue
                ended.put(started[0] if started else None)

        try:
            self._loop.call_soon_threadsafe(start)
            self._wait(ended)
        except CancelledError:
            raise  # there is no loop any more that could cancel it
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            task = self._wait(ended)
            if task is not None and not task.cancelled():
                task.exception()  # of no interest any more, and not to be complained of
            raise
        try:
            return started[0].result()
        except asyncio.CancelledError:
            raise CancelledError("the call was cancelled, or its client closed") from None

    def iterate(self, items: AsyncGenerator[_Item, None]) -> Generator[_Item, None, None]:
        """The items of an asynchronous generator that runs in the loop. Closing this one closes that."""

        async def next_item() -> list[_Item]:
            async for item in items:
                return [item]
            return []

        try:
            while item := self.run(next_item):
                yield item[0]
        finally:
            # Not waited for: this may be the garbage collector's work, in any thread, at any time.
            self.call_soon(lambda: self._loop.create_task(items.aclose()))

    def call_soon(self, function: Callable[[], object]) -> None:
        """Has the loop call a function, some time; nothing where the program is ending."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """Ends the thread, at the end of the program: what still runs is left as it is."""
        self._is_stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_SECONDS)

    def _wait(self, items: queue.SimpleQueue[_Item]) -> _Item:
        """The next item, which the loop puts there. A signal that comes just before the waiting begins does
        not end it, hence in turns. Raises CancelledError: the loop has ended."""
        while True:
            with contextlib.suppress(queue.Empty):
                return items.get(timeout=TURN_SECONDS)
            self._check()

    def _check(self) -> None:
        """Raises CancelledError: the loop has ended. A daemon thread that the interpreter's end has stopped
        still counts as alive.

        A daemon thread learns it late, by when the program has mostly ended and the thread with it: its error
        would be a traceback after the program's last line.
        """
        if self._is_stopped or sys.is_finalizing():
            if threading.current_thread().daemon:
                time.sleep(STOP_SECONDS)
            raise CancelledError(ENDING)


def _handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Reports what failed in the loop, but for gRPC's wake-ups of other loops, which may have been closed."""
    if "PollerCompletionQueue" not in str(context.get("handle")):
        loop.default_exception_handler(context)


_lock = threading.Lock()
_loop_thread: LoopThread | None = None


def loop_thread() -> LoopThread:
    """The process's, started at first need. Raises CancelledError: the interpreter starts no more threads."""
    global _loop_thread
    with _lock:
        if _loop_thread is None:
            if sys.is_finalizing():
                raise CancelledError(ENDING)
            _loop_thread = LoopThread()
        return _loop_thread


def _forget_loop_thread() -> None:
    """In a forked child: the thread has stayed with the parent, and maybe one that held the lock."""
    global _lock, _loop_thread
    _lock, _loop_thread = threading.Lock(), None


@atexit.register
def _stop_loop_thread() -> None:
    if _loop_thread is not None:
        _loop_thread.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_loop_thread)


def next_in_turns(items: queue.SimpleQueue[_Item]) -> _Item:
    """The next item. On Windows, and where a signal comes just before the waiting begins, Ctrl-C ends no
    waiting: it takes effect after it, hence in turns."""
    while True:
        with contextlib.suppress(queue.Empty):
            return items.get(timeout=TURN_SECONDS)


def start_in_thread(
    function: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> Future[_Result]:
    """Runs a function in a daemon thread of its own: the end of the program does not wait for it."""
    future: Future[_Result] = Future()
    future.set_running_or_notify_cancel()  # nothing stops it once it runs

    def work() -> None:
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="timbrel-worker", daemon=True).start()
    return future


class ThreadedIterator(Generic[_Item]):
    """Reads an iterator in a daemon thread of its own, an item each time that one is asked for.

    Where reading raises, this ends, and `failure` tells what was raised.
    """

    def __init__(self, items: Iterator[_Item]) -> None:
        self._items = items
        self._asked: queue.SimpleQueue[asyncio.Future[list[_Item]] | None] = queue.SimpleQueue()
        self.failure: BaseException | None = None

    async def __aiter__(self) -> AsyncIterator[_Item]:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), name="timbrel-requests", daemon=True).start()
        try:
            while True:
                answer: asyncio.Future[list[_Item]] = loop.create_future()
                self._asked.put(answer)
                if not (item := await answer):
                    return
                yield item[0]
        finally:
            self._asked.put(None)

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread's work."""
        item: list[_Item] = [None]  # type: ignore[list-item]
        while item and (answer := self._asked.get()) is not None:
            try:
                item = [next(self._items)]
            except StopIteration:
                item = []
            except BaseException as error:
                self.failure, item = error, []
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_answer, answer, item)


def _answer(future: asyncio.Future[_Result], result: _Result) -> None:
    if not future.done():
        future.set_result(result)
