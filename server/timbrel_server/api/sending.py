"""Sending on a stream from many tasks at once."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from timbrel_server.wire.grpc_types import Context


class Sender:
    """Sends the messages of one call, one at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._turn = asyncio.Lock()

    async def __call__(self, message: Any) -> None:
        """Returns once the message is on its way.

        Raises:
            asyncio.CancelledError: the caller has gone. gRPC cancels the call's handler only a little later.
        """
        async with self._turn:
            try:
                await self._context.write(message)
            except (grpc.aio.InternalError, grpc.aio.UsageError):
                raise asyncio.CancelledError from None
