"""When to try again after the server said that it is full, or was not there."""

from __future__ import annotations

from dataclasses import dataclass

from timbrel.errors import OverloadedError, UnavailableError


@dataclass(frozen=True)
class RetryPolicy:
    """How often a server is asked again that is overloaded or not there. The caller does the waiting.

    One that is not there may be one of several behind a name or a proxy, or be starting anew.
    """

    attempts: int = 6
    """Calls in all, the first one included."""

    attempts_unavailable: int = 4
    """Likewise, where the server is not there: who mistyped its name is not to wait for long."""

    first_delay_seconds: float = 0.25
    """Wait before the second attempt where the server suggests nothing; it doubles each time."""

    longest_delay_seconds: float = 10.0
    """Neither doubling nor a server's suggestion goes beyond this."""

    def delay(
        self, attempt: int, error: OverloadedError | UnavailableError, remaining_seconds: float | None
    ) -> float | None:
        """Seconds to wait after attempt number `attempt` (from 1) failed so; None to give up.

        Args:
            remaining_seconds: what is left of the time allowed; None where it is not bounded.
        """
        if attempt >= (self.attempts if isinstance(error, OverloadedError) else self.attempts_unavailable):
            return None
        suggested = error.retry_after_seconds if isinstance(error, OverloadedError) else None
        doubled = self.first_delay_seconds * 2.0 ** (attempt - 1)
        delay = min(self.longest_delay_seconds, suggested if suggested is not None else doubled)
        if remaining_seconds is not None and delay >= remaining_seconds:
            return None
        return delay
