"""What steps have to deliver, until it is handed out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from timbrel_server.engine.ticket import Delivery, Ticket

LONGEST_HOLD_SECONDS = 0.01
"""So long at most waits a delivery that nobody is in a hurry for: several steps of many notes, and little
beside what frames wait for a chunk to fill."""


class Outbox:
    """Lets deliveries that can wait go out with others, since to wake up who takes them costs more than to
    take them.

    No locks: whoever owns it guards it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            clock: seconds since some moment in the past, never falling.
        """
        self._clock = clock
        self._held: dict[Ticket, Delivery] = {}
        self._since = 0.0  # when the first of them came
        self._is_urgent = False

    def put(self, ticket: Ticket, delivery: Delivery, *, urgent: bool) -> None:
        """Takes a delivery; one more of the same note becomes one with what waits of it.

        Args:
            urgent: whether it is to go out now, and all that waits with it.
        """
        if not self._held:
            self._since = self._clock()
        before = self._held.get(ticket)
        self._held[ticket] = delivery if before is None else _joined(before, delivery)
        self._is_urgent |= urgent

    def take(self, *, again_in_seconds: float = math.inf) -> Sequence[tuple[Ticket, Delivery]]:
        """What is to go out now: all or nothing.

        Args:
            again_in_seconds: when this will be asked again; what could wait too long until then goes out now.
        """
        held_then = self._clock() - self._since + again_in_seconds
        if not self._is_urgent and held_then < LONGEST_HOLD_SECONDS:
            return ()
        taken = list(self._held.items())
        self._held.clear()
        self._is_urgent = False
        return taken

    def drop(self, ticket: Ticket) -> None:
        """Forgets what waits of a note."""
        self._held.pop(ticket, None)


def _joined(first: Delivery, second: Delivery) -> Delivery:
    return Delivery([*first.frames, *second.frames], second.finish)
