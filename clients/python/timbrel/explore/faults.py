"""What the page is told of an error: a code, an HTTP status and one clear line."""

from __future__ import annotations

from dataclasses import dataclass

from timbrel.errors import (
    AuthenticationError,
    BundleMismatchError,
    CancelledError,
    DeadlineExceededError,
    InvalidRequestError,
    MissingExtraError,
    NotFoundError,
    OverloadedError,
    TimbrelError,
    UnavailableError,
)


@dataclass(frozen=True)
class Fault:
    """An error as it goes to the page."""

    code: str
    """invalid_request, unavailable, overloaded, not_found, deadline or internal."""

    message: str
    """One line, for people."""

    status: int
    """HTTP's."""

    retry_after_seconds: float | None = None
    """When to try again, where that is known."""

    def to_json(self) -> dict[str, dict[str, str]]:
        return {"error": {"code": self.code, "message": self.message}}


_KINDS: tuple[tuple[type[TimbrelError], str, int], ...] = (
    (InvalidRequestError, "invalid_request", 400),
    (NotFoundError, "not_found", 404),
    (OverloadedError, "overloaded", 503),
    (DeadlineExceededError, "deadline", 504),
    (UnavailableError, "unavailable", 503),
    (CancelledError, "unavailable", 503),
    (BundleMismatchError, "unavailable", 503),
    (AuthenticationError, "unavailable", 503),
    (MissingExtraError, "internal", 501),
)
"""Error, code, status; the first that fits counts."""


def fault_of(error: TimbrelError) -> Fault:
    """The fault that stands for this error. Its message never holds a token: no TimbrelError's does."""
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, AuthenticationError):
        message = (
            f"the server does not accept the explorer's token ({message}): set TIMBREL_TOKEN, start anew"
        )
    for kind, code, status in _KINDS:
        if isinstance(error, kind):
            again = error.retry_after_seconds if isinstance(error, OverloadedError) else None
            return Fault(code, message, status, again)
    return Fault("internal", message, 502)
