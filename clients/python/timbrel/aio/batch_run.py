"""Many notes over one stream: the tasks around `timbrel.core.batch`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable

from timbrel.aio.transport import StreamCall, Transport
from timbrel.core.batch import Batch, Result
from timbrel.core.request import NoteRequest
from timbrel.errors import TimbrelError, UnavailableError
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Open = Callable[[], Awaitable[Transport]]
"""Gives the connection, or says why there is none any more."""

Requests = Iterable[NoteRequest] | AsyncIterable[NoteRequest]
"""A plain iterable is read in the event loop and should not make it wait."""

END_SECONDS = 2.0
"""How long a server that has answered all may take to end the stream, before it is given up."""

TURN_SECONDS = 0.5
"""For so long a server is listened to that had nothing heard of it while who iterates kept the loop busy."""


class BatchRun:
    """Sends the requests and hands out their results, once.

    One task reads the requests, one the replies, gRPC's own sends; who iterates only waits.
    """

    def __init__(self, open_transport: Open, batch: Batch, requests: Requests) -> None:
        self._open_transport = open_transport
        self._batch = batch
        self._requests = requests
        self._change = asyncio.Event()  # of what follows, or of the batch: see `_notify`
        self._call: StreamCall[pb.GenerateBatchResponse] | None = None  # the present stream
        self._n_streams = 0
        self._failure: Exception | None = None  # of the stream: ends all at once
        self._requests_failure: BaseException | None = None  # of the caller's iterable: once all is answered

    async def results(self) -> AsyncGenerator[Result, None]:
        """Leaving it early gives the rest up. Raises TimbrelError: the stream failed for good; Exception:
        what reading the requests raised, after the results of those before."""
        tasks = [asyncio.create_task(work()) for work in (self._read_requests, self._read_replies)]
        try:
            while (result := await self._next_result()) is not None:
                yield result
            # Cut now, a call that did all it should would count as cancelled at the server.
            await asyncio.wait(tasks, timeout=END_SECONDS)
            if self._requests_failure is not None:
                raise self._requests_failure
        finally:
            for task in tasks:
                task.cancel()
            self._n_streams += 1
            if self._call is not None:
                self._call.cancel()
            self._notify()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _next_result(self) -> Result | None:
        heard_at = time.monotonic() + TURN_SECONDS
        while True:
            if (result := self._batch.next_result()) is not None:
                self._notify()  # there is room again
                return result
            if self._failure is not None:
                raise self._failure
            if self._batch.is_finished:
                return None
            now = time.monotonic()
            left = self._batch.seconds_left(now)
            if left is not None and now < heard_at:
                left = max(left, heard_at - now)
            else:
                self._batch.check(now)
            await self._wait(left)

    async def _read_requests(self) -> None:
        """Reads requests in a task of its own, never more than there is room for."""
        try:
            requests = _each_in_turn(self._requests)
            while True:
                while not self._batch.has_room:
                    await self._wait(None)
                self._batch.add(await anext(requests), time.monotonic())
                self._notify()
        except StopAsyncIteration:
            pass
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise  # by `results`; else what the requests wait for was cancelled
            self._requests_failure = error
        except Exception as error:
            self._requests_failure = error
        self._batch.end()
        self._notify()

    async def _read_replies(self) -> None:
        """Reads replies in a task of its own: one stream after the other, until all is answered."""
        try:
            while (delay := await self._read_stream()) is not None:
                await asyncio.sleep(delay)
        except Exception as error:
            self._failure = error
        self._notify()

    async def _read_stream(self) -> float | None:
        """One stream, to its end; returns the seconds until the next, None where none is needed."""
        transport = await self._open_transport()
        self._n_streams += 1
        self._batch.open_stream()
        self._call = transport.generate_batch(self._messages(self._n_streams))
        ended: TimbrelError = UnavailableError("the server ended the stream before all was answered")
        try:
            async for response in self._call:
                self._batch.receive(response, time.monotonic())
                self._notify()
        except TimbrelError as error:
            ended = error
        self._n_streams += 1  # who still sends on this one stops
        self._notify()
        return None if self._batch.is_answered else self._batch.break_off(ended, time.monotonic())

    async def _messages(self, stream: int) -> AsyncIterator[pb.GenerateBatchRequest]:
        """The messages sent on this stream; their end says that no more will follow."""
        while self._n_streams == stream and not self._batch.is_answered:
            now = time.monotonic()
            if (message := self._batch.next_to_send(now)) is not None:
                yield message
            else:
                await self._wait(self._batch.seconds_until_due(now))

    def _notify(self) -> None:
        """Wakes every task that waits now: a condition without the lock, which one loop does not need."""
        self._change.set()
        self._change = asyncio.Event()

    async def _wait(self, seconds: float | None) -> None:
        """Returns at the next change, or after so many seconds; None: however long it takes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._change.wait()


async def _each_in_turn(requests: Requests) -> AsyncIterator[NoteRequest]:
    """An asynchronous iterator over either kind of iterable."""
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            yield request
    else:
        for request in requests:
            yield request
