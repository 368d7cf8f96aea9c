"""Reads what a page sends, and ends the work for a page that has left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from timbrel.explore.errors import TooLargeError

READ_ON_FACTOR = 4
"""So many times the limit is read and thrown away, so that a browser still sending hears what was wrong."""

_Result = TypeVar("_Result")


async def read_body(request: Request, max_bytes: int, what: str) -> bytes:
    """Reads the body of a request, no further than it is wanted.

    Args:
        what: it is, for the message.

    Raises:
        TooLargeError: it is longer than `max_bytes`, of which no more are held.
        ClientDisconnect: the caller has left.
    """
    parts: list[bytes] = []
    n_bytes = 0
    async for part in request.stream():
        n_bytes += len(part)
        if n_bytes <= max_bytes:
            parts.append(part)
        else:
            parts.clear()
        if n_bytes > READ_ON_FACTOR * max_bytes:
            break
    if n_bytes > max_bytes:
        size = f"{max_bytes >> 20} MiB" if max_bytes >= 2**20 else f"{max_bytes >> 10} KiB"
        raise TooLargeError(f"{what} is too large; {size} at most are taken")
    return b"".join(parts)


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Runs the work and returns its result; cancels it where the caller leaves. The body must have been read.

    Raises:
        ClientDisconnect: the caller has left.
    """
    task, gone = asyncio.create_task(work), asyncio.create_task(_until_disconnected(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _until_disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
