"""The asyncio side of a request to the engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType

from timbrel_server.engine.engine import Post
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.engine.origin import Origin
from timbrel_server.engine.request import NoteRequest
from timbrel_server.engine.ticket import Delivery, Ticket
from timbrel_server.errors import NoteCancelledError
from timbrel_server.watching.call_facts import current_facts


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

    def __init__(
        self,
        engine: EnginePool,
        request: NoteRequest,
        origin: Origin | None = None,
        seconds_left: float | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """
        Args:
            origin: whose turn it takes while it waits.
            seconds_left: until its caller gives up; None where that is open.
            whole: whether it comes in one delivery.

        Raises:
            OverloadedError: the queue is full, or the note cannot be written in time.
            UnavailableError: the engine has stopped.
        """
        self.request = request
        self._engine = engine
        self._deliveries: asyncio.Queue[Delivery] = asyncio.Queue()
        self._ticket = Ticket(request, self._deliveries.put_nowait, origin, whole=whole)
        self._ended = False
        self._facts = current_facts()
        self.on_close: Callable[[], None] = lambda: None
        """Called once nobody reads this any more."""
        engine.accept(self._ticket, seconds_left)

    def __enter__(self) -> NoteStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """What leaving the `with` block does. Harmless where it has been done."""
        if not self._ended:
            self._ended = True
            self._engine.cancel(self._ticket)
        on_close, self.on_close = self.on_close, lambda: None
        on_close()

    @property
    def held_frames(self) -> int:
        """Frames for which the key is held; final once the note has ended."""
        return self._ticket.held_frames

    def release(self) -> None:
        """The key goes up. Harmless where it is up, or where the note has ended."""
        self._engine.release(self._ticket)

    def cancel(self) -> None:
        """Ends the note at once: its reader gets NoteCancelledError, and none of what still waits for it."""
        self._engine.cancel(self._ticket)
        while not self._deliveries.empty():
            self._deliveries.get_nowait()
        self._deliveries.put_nowait(Delivery(error=NoteCancelledError("the note was cancelled")))

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        """Raises UnavailableError where the engine ends before the note does, NoteCancelledError after
        `cancel`."""
        finish, first = None, True
        while finish is None:
            delivery = await self._deliveries.get()
            if delivery.error is not None:
                raise delivery.error
            if self._facts is not None:
                self._facts.count(self._ticket, delivery, first=first)
                first = False
            finish = delivery.finish
            self._ended = self._ended or finish is not None  # so that nothing is left to give up
            yield delivery


def _hand_out(deliveries: Sequence[tuple[Ticket, Delivery]]) -> None:
    for ticket, delivery in deliveries:
        ticket.receive(delivery)
