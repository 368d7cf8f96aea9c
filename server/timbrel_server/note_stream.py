"""The asyncio side of a request to the engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

from timbrel_server.engine import Engine, Post
from timbrel_server.request import NoteRequest
from timbrel_server.ticket import Delivery, Ticket


def post_to(loop: asyncio.AbstractEventLoop) -> Post:
    """Hands deliveries out on the loop's thread: one hop for all that a step has to deliver."""

    def post(deliveries: Sequence[tuple[Ticket, Delivery]]) -> None:
        # The loop is closed where a server ends in a hurry: nobody listens any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_hand_out, deliveries)

    return post


class NoteStream:
    """A note's deliveries as they come, for one reader. Leaving the `with` block gives up what is unwritten.

    A note is some kilobytes of codes at most, so a slow reader holds nobody up: what is
    written waits here.
    """

    def __init__(self, engine: Engine, request: NoteRequest) -> None:
        """
        Raises:
            OverloadedError: the queue is full.
            UnavailableError: the engine has stopped.
        """
        self._engine = engine
        self._deliveries: asyncio.Queue[Delivery] = asyncio.Queue()
        self._ticket = engine.submit(request, self._deliveries.put_nowait)

    def __enter__(self) -> NoteStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.cancel(self._ticket)

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        """Raises UnavailableError where the engine ends before the note does."""
        finish = None
        while finish is None:
            delivery = await self._deliveries.get()
            if delivery.error is not None:
                raise delivery.error
            yield delivery
            finish = delivery.finish


def _hand_out(deliveries: Sequence[tuple[Ticket, Delivery]]) -> None:
    for ticket, delivery in deliveries:
        ticket.receive(delivery)
