"""A stream of items that are worked on side by side, each of which is answered when it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from timbrel_server.api.reading import read_until_closing

Begin = Callable[[bytes], Coroutine[Any, Any, None]]
"""Takes an item's body; the coroutine works on it until it has been answered. It lets no error out, but
InvalidRequestError, before there is a coroutine, where the body is no message."""


class ItemStream:
    """Reads items and has them worked on, so many at once: what else there is waits where it is, since the
    stream's flow control holds back whoever sends what is not read."""

    def __init__(self, begin: Begin, max_in_flight: int) -> None:
        """
        Args:
            max_in_flight: items that may be read and not yet be answered, at least 1.
        """
        self._begin = begin
        self._places = asyncio.Semaphore(max_in_flight)

    async def run(self, bodies: AsyncIterator[bytes], closing: asyncio.Event) -> None:
        """Reads until the stream is half-closed, and returns once the last item has been answered.

        Cancelled, it gives up every item.

        Args:
            closing: once set, no more is read.

        Raises:
            InvalidRequestError: a message is none. What was read before has been answered.
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
            try:
                body = await anext(messages)
            except StopAsyncIteration:
                return
            task = items.create_task(self._begin(body))
            task.add_done_callback(lambda _: self._places.release())
