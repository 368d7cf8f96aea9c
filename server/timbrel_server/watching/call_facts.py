"""What became of the notes of one call, for whoever tells of it when it has ended."""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass

from timbrel_server.engine.ticket import Delivery, Ticket

_facts: ContextVar[CallFacts | None] = ContextVar("call_facts", default=None)


@dataclass
class CallFacts:
    """Counts, and how long a caller was kept waiting: where a call has many notes, by the slowest. In seconds
    from a note's acceptance on; None where no note came so far.

    For one event loop.
    """

    n_notes: int = 0
    """That were answered with anything at all."""

    n_frames: int = 0

    queue_wait_seconds: float | None = None
    """Until it had a slot."""

    first_chunk_seconds: float | None = None
    """Until its first frames were on their way."""

    def count(self, ticket: Ticket, delivery: Delivery, *, first: bool) -> None:
        """A note's reader takes a delivery.

        Args:
            first: whether it is the note's first.
        """
        self.n_frames += len(delivery.frames)
        if first:
            self.n_notes += 1
            waited = time.monotonic() - ticket.submitted
            self.first_chunk_seconds = max(self.first_chunk_seconds or 0.0, waited)
            if ticket.waited_seconds is not None:
                self.queue_wait_seconds = max(self.queue_wait_seconds or 0.0, ticket.waited_seconds)


def begin_facts() -> CallFacts:
    """Has the notes that this task and its children ask for be counted from now on."""
    facts = CallFacts()
    _facts.set(facts)
    return facts


def current_facts() -> CallFacts | None:
    """Those of the call that is being answered here; None where nobody wants to know."""
    return _facts.get()
