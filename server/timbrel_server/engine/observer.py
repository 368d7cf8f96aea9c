"""Who wants to know how an engine fares."""

from __future__ import annotations

from collections.abc import Callable

from timbrel_server.engine.ticket import Delivery

Receive = Callable[[Delivery], None]


class EngineObserver:
    """Told of what happens, from the engine's threads and from the event loop; must not block.

    This one wants to know nothing.
    """

    def follow(self, receive: Receive) -> Receive:
        """A request is accepted: what its deliveries shall go to in place of `receive`."""
        return receive

    def cancelled(self, receive: Receive) -> None:
        """A request, whose reader is as `follow` returned it, is wanted no more; it may have ended."""
        return

    def refused(self) -> None:
        """A request found no place, or no time."""
        return

    def admitted(self, waited_seconds: float) -> None:
        """A request got its slot."""
        return

    def stepped(self, seconds: float, n_notes: int) -> None:
        """So many notes moved on by a step."""
        return
