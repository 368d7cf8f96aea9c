"""When to try again after the server said that it is full, or was not there."""

from __future__ import annotations

from dataclasses import dataclass

from timbrel.errors import OverloadedError, TimbrelError, UnavailableError

SHORTEST_DELAY_SECONDS = 0.05
"""Before a full server is asked again, should it say "now": many notes at once would be a storm."""


@dataclass(frozen=True)
class RetryPolicy:
    """Says how often a server is asked again that is overloaded or not there. The caller does the waiting.

    One that is not there may be one of several behind a name or a proxy, or be starting anew. One that is
    overloaded is asked again only if it said when, and never sooner.
    """

    attempts: int = 6
    """Calls in all, the first one included."""

    attempts_unavailable: int = 4
    """Likewise, where the server is not there: who mistyped its name is not to wait for long."""

    first_delay_seconds: float = 0.25
    """Wait before the second attempt at a server that is not there; it doubles each time."""

    longest_delay_seconds: float = 4.0
    """Doubling does not go beyond this."""

    def attempts_after(self, error: TimbrelError) -> int:
        """Attempts at one call, in all, where they fail so."""
        return self.attempts if isinstance(error, OverloadedError) else self.attempts_unavailable

    def pause(self, attempt: int, error: TimbrelError) -> float | None:
        """Seconds to wait after attempt number `attempt`, however many there were; None: it is no use."""
        if isinstance(error, OverloadedError):
            said = error.retry_after_seconds
            return None if said is None else max(said, SHORTEST_DELAY_SECONDS)
        if not isinstance(error, UnavailableError):
            return None
        # The exponent is bounded: after a day of attempts 2.0 ** attempt would overflow.
        return float(min(self.longest_delay_seconds, self.first_delay_seconds * 2.0 ** min(attempt - 1, 30)))


class Patience:
    """The time that a call bears with a server that gives nothing, all its retries included.

    Each part of a call of many renews it: a job may last for hours, but not stand still for longer.
    """

    def __init__(
        self, policy: RetryPolicy, limit_seconds: float | None, now: float, *, server_returns: bool = True
    ) -> None:
        """The time allowed is None for no bound; `now` is seconds by any clock, the same in every call;
        `server_returns` says whether a server that is not there may come back."""
        self._policy = policy
        self.limit_seconds = limit_seconds
        self._server_returns = server_returns
        self._since = now

    def renew(self, now: float) -> None:
        """A part came, or the first is asked for."""
        self._since = now

    def left(self, now: float) -> float | None:
        """Seconds until it ends, never below 0; None where it is not bounded."""
        return None if self.limit_seconds is None else max(0.0, self._since + self.limit_seconds - now)

    def delay_after(self, error: TimbrelError, attempt: int, now: float) -> float | None:
        """Seconds to wait after the call, or a part, failed so for the time number `attempt` (from 1).

        None where another attempt is of no use, or would begin too late.
        """
        if isinstance(error, UnavailableError) and not self._server_returns:
            return None
        pause, left = self._policy.pause(attempt, error), self.left(now)
        return None if pause is None or (left is not None and pause >= left) else pause
