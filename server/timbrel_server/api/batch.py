"""A GenerateBatch stream: many notes asked for, each answered whole when it is finished."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.api.convert import parse
from timbrel_server.errors import InvalidRequestError
from timbrel_server.wire.failures import presentable

LEAST_IN_FLIGHT = 32

Render = Callable[[pb.GenerateRequest], Awaitable[pb.GenerateResponse]]
"""Writes a whole note. Raises ServiceErrors."""

Write = Callable[[pb.GenerateBatchResponse], Awaitable[None]]


def max_in_flight(n_slots: int, asked: int | None = None) -> int:
    """Items of one stream to have in hand: so many that one stream alone keeps every slot busy, and no more,
    since what a caller does not read has to be kept for it.

    Args:
        asked: by the operator, who knows better.
    """
    return asked if asked is not None else max(LEAST_IN_FLIGHT, 2 * n_slots)


class Batch:
    """The items of one stream."""

    def __init__(self, render: Render, write: Write) -> None:
        """
        Args:
            write: sends a response, and returns once it is on its way.
        """
        self._render = render
        self._write = write
        self._live: set[int] = set()

    def begin(self, body: bytes) -> Coroutine[Any, Any, None]:
        """Takes the next item on. Raises InvalidRequestError where the body is no message."""
        item = parse(pb.GenerateBatchRequest, body)
        if item.id in self._live:
            return self._refuse(item.id, f"{item.id} is the id of an item that lives still")
        self._live.add(item.id)
        return self._work(item)

    async def _work(self, item: pb.GenerateBatchRequest) -> None:
        response = pb.GenerateBatchResponse(id=item.id)
        try:
            response.note.CopyFrom(await self._render(item.note))
            response.status.SetInParent()
        except Exception as error:
            response.status.CopyFrom(presentable(error, "GenerateBatch").to_status())
        self._live.discard(item.id)  # so that the id is free once the caller knows that it is
        await self._write(response)

    async def _refuse(self, item_id: int, description: str) -> None:
        status = InvalidRequestError([("id", description)]).to_status()
        await self._write(pb.GenerateBatchResponse(id=item_id, status=status))
