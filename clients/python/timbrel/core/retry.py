"""When to try again after the server said that it is full, or was not there."""

from __future__ import annotations

from timbrel.errors import OverloadedError, TimbrelError, UnavailableError

ATTEMPTS_UNAVAILABLE = 4
"""At one call, in all, that find no server: who mistyped its name is not to wait for long."""

SHORTEST_DELAY_SECONDS = 0.05
"""Before a full server is asked again, should it say "now": many notes at once would be a storm."""

FIRST_DELAY_SECONDS = 0.25
LONGEST_DELAY_SECONDS = 4.0
"""Before a server that is not there is asked again: doubled each time."""


class Patience:
    """The time that a call bears with a server that gives nothing, all its retries included.

    Each part of a call of many renews it: a job may last for hours, but not stand still for longer.
    """

    def __init__(
        self,
        limit_seconds: float | None,
        now: float,
        *,
        server_returns: bool = True,
        grows_with_notes: bool = False,
    ) -> None:
        """The time allowed is None for no bound; `now` is seconds by any clock, the same in every call;
        `server_returns` says whether a server that is not there may come back; `grows_with_notes` whether it
        has as much more time as whole notes are held."""
        self.limit_seconds = self._shortest = limit_seconds
        self._grows = grows_with_notes
        self._server_returns = server_returns
        self._since = now

    def renew(self, now: float) -> None:
        """A part came, or the first is asked for."""
        self._since = now

    def expect(self, held_seconds: float) -> None:
        """A whole note that is held for so long is asked for: nothing of it comes before it is written."""
        if self._grows and self.limit_seconds is not None and self._shortest is not None:
            self.limit_seconds = max(self.limit_seconds, self._shortest + held_seconds)

    def left(self, now: float) -> float | None:
        """Seconds until it ends, never below 0; None where it is not bounded."""
        return None if self.limit_seconds is None else max(0.0, self._since + self.limit_seconds - now)

    def delay_after(self, error: TimbrelError, attempt: int, now: float) -> float | None:
        """Seconds to wait after the call, or a part, failed so for the time number `attempt` (from 1).

        None where another attempt is of no use, or would begin too late. A server that is not there may be
        one of several behind a name or a proxy, or be starting anew. One that is overloaded is asked again
        only if it said when, and never sooner.
        """
        if isinstance(error, OverloadedError) and error.retry_after_seconds is not None:
            delay = max(error.retry_after_seconds, SHORTEST_DELAY_SECONDS)
        elif isinstance(error, UnavailableError) and self._server_returns:
            # The exponent is bounded: after a day of attempts 2.0 ** attempt would overflow.
            delay = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(attempt - 1, 30))
        else:
            return None
        left = self.left(now)
        return None if left is not None and delay >= left else delay
