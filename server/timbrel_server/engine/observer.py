"""The observer of an engine: the side of it that metrics see."""

from __future__ import annotations

from timbrel_server.engine.request import Delivery, RequestHandle


class EngineObserver:
    """Is told of what happens, from the engine's threads and from the event loop; must not block.

    This one ignores it all.
    """

    def accepted(self, handle: RequestHandle) -> None:
        """A request is accepted."""
        return

    def delivered(self, handle: RequestHandle, delivery: Delivery) -> None:
        """The reader of a request has got a delivery."""
        return

    def cancelled(self, handle: RequestHandle) -> None:
        """A request is wanted no more; it may have ended."""
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
