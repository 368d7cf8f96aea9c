"""Streams of requests: read until their caller or the server ends them, and answered side by side."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.errors import (
    InvalidRequestError,
    ServiceError,
    UnauthenticatedError,
    UnavailableError,
    presentable,
)
from timbrel_server.limits import Limits
from timbrel_server.rpc.handlers import parse
from timbrel_server.served_bundles.served_bundle import BundleRegistry

LEAST_IN_FLIGHT = 32


class Item(NamedTuple):
    """An item of a stream, read."""

    n_notes: int
    """Notes that it asks for."""

    work: Callable[[], Coroutine[Any, Any, None]]
    """Works on it until it has been answered. Lets no error out."""


BeginItem = Callable[[bytes], Item]
"""Takes an item's body. Raises InvalidRequestError where it is no message."""

Render = Callable[[pb.GenerateRequest, pb.GenerateResponse], AbstractAsyncContextManager[None]]
"""Writes a whole note into a reply, which is to be on its way when the block ends. Raises ServiceErrors."""


def max_in_flight(registry: BundleRegistry, asked: int | None = None) -> int:
    """Returns how many items of one stream to have in hand: so many that one stream alone keeps every slot
    busy, and no more, since what a caller does not read has to be kept for it. One number for all bundles:
    items of one stream may name different ones.

    Args:
        asked: by the operator, who knows better.
    """
    n_slots = [served.engine.n_slots for served in registry if served.engine is not None]
    return asked if asked is not None else max(LEAST_IN_FLIGHT, 2 * max(n_slots))


async def read_until_closing(
    reading: Coroutine[Any, Any, None], closing: asyncio.Event
) -> ServiceError | None:
    """Runs `reading`, which reads all that the caller sends, and gives it up once `closing` is set.

    Returns:
        Why reading ended: InvalidRequestError where a message was none, UnauthenticatedError where its caller
        may say no more, UnavailableError where the server shuts down; None where there is no more to say.
    """
    reader = asyncio.ensure_future(reading)
    closed = asyncio.ensure_future(closing.wait())
    try:
        await asyncio.wait([reader, closed], return_when=asyncio.FIRST_COMPLETED)
        if not reader.done():
            return UnavailableError("the server is shutting down")
        reader.result()
    except (InvalidRequestError, UnauthenticatedError) as error:
        return error
    finally:
        reader.cancel()
        closed.cancel()
    return None


class ItemStream:
    """Reads items and has them worked on, so many at once; each is answered when it is ready. What else there
    is waits where it is, since the stream's flow control holds back whoever sends what is not read."""

    def __init__(self, begin: BeginItem, max_in_flight: int, limits: Limits, account: str) -> None:
        """
        Args:
            max_in_flight: items that may be read and not yet be answered, at least 1.
            limits: an item is read once there is a place for a note.
            account: whose.
        """
        self._begin = begin
        self._places = asyncio.Semaphore(max_in_flight)
        self._notes = limits.notes
        self._account = account

    async def run(self, bodies: AsyncIterator[bytes], closing: asyncio.Event) -> None:
        """Reads until the stream is half-closed, and returns once the last item has been answered.

        Cancelled, it gives up every item.

        Args:
            closing: once set, no more is read.

        Raises:
            InvalidRequestError: a message is none. What was read before has been answered.
            UnauthenticatedError: the caller's token was taken back. Likewise.
            UnavailableError: `closing` ended the stream. Likewise.
        """
        async with asyncio.TaskGroup() as items:
            failure = await read_until_closing(self._take_all(bodies, items), closing)
        if failure is not None:
            raise failure

    async def _take_all(self, bodies: AsyncIterator[bytes], items: asyncio.TaskGroup) -> None:
        messages = aiter(bodies)
        while True:
            await self._places.acquire()
            with contextlib.ExitStack() as reading:
                place = reading.enter_context(await self._notes.wait(self._account))
                try:
                    body = await anext(messages)
                except StopAsyncIteration:
                    return
                item = self._begin(body)
                if item.n_notes > 1:  # all at once: items that had some each could wait for one another
                    place.close()
                    reading.enter_context(await self._notes.wait(self._account, item.n_notes))
                task = items.create_task(item.work())
                task.add_done_callback(functools.partial(self._answered, reading.pop_all()))

    def _answered(self, places: contextlib.ExitStack, _: asyncio.Task[None]) -> None:
        places.close()
        self._places.release()


class BatchItems:
    """The items of one GenerateBatch stream: each is a note that is answered whole."""

    def __init__(self, render: Render, write: Callable[[pb.GenerateBatchResponse], Awaitable[None]]) -> None:
        """
        Args:
            write: sends a response, and returns once it is on its way.
        """
        self._render = render
        self._write = write
        self._live: set[int] = set()

    def begin(self, body: bytes) -> Item:
        """Takes the next item on. Raises InvalidRequestError where the body is no message."""
        item = parse(pb.GenerateBatchRequest, body)
        if item.id in self._live:
            description = f"{item.id} is the id of an item that lives still"
            return Item(1, functools.partial(self._refuse, item.id, description))
        self._live.add(item.id)
        return Item(1, functools.partial(self._work, item))

    async def _work(self, item: pb.GenerateBatchRequest) -> None:
        response = pb.GenerateBatchResponse(id=item.id)
        async with contextlib.AsyncExitStack() as until_written:
            try:
                await until_written.enter_async_context(self._render(item.note, response.note))
                response.status.SetInParent()
            except Exception as error:
                response.ClearField("note")
                response.status.CopyFrom(presentable(error, "GenerateBatch").to_status())
            self._live.discard(item.id)  # so that the id is free once the caller knows that it is
            await self._write(response)

    async def _refuse(self, item_id: int, description: str) -> None:
        status = InvalidRequestError([("id", description)]).to_status()
        await self._write(pb.GenerateBatchResponse(id=item_id, status=status))
