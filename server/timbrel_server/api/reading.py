"""The reading of a stream, until its caller has no more to say or the server shuts down."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from timbrel_server.errors import InvalidRequestError, ServiceError, UnavailableError


async def read_until_closing(
    reading: Coroutine[Any, Any, None], closing: asyncio.Event
) -> ServiceError | None:
    """Runs `reading`, which reads all that the caller sends, and gives it up once `closing` is set.

    Returns:
        Why reading ended: InvalidRequestError where a message was none, UnavailableError where the server
        shuts down; None where the caller has no more to say.
    """
    reader = asyncio.ensure_future(reading)
    closed = asyncio.ensure_future(closing.wait())
    try:
        await asyncio.wait([reader, closed], return_when=asyncio.FIRST_COMPLETED)
        if not reader.done():
            return UnavailableError("the server is shutting down")
        reader.result()
    except InvalidRequestError as error:
        return error
    finally:
        reader.cancel()
        closed.cancel()
    return None
