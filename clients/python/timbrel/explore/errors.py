"""An error as the page hears of it: a code, an HTTP status and one clear line of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ExceptionHandler

from timbrel import errors
from timbrel.errors import TimbrelError

GONE_STATUS = 499
"""Nobody reads it: the caller has left."""


class TooLargeError(TimbrelError):
    """The body of a request is larger than it may be."""


@dataclass(frozen=True)
class ErrorReply:
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

    def to_response(self, further: Mapping[str, str] | None = None) -> Response:
        """The HTTP response, with further headers."""
        headers = {"cache-control": "no-store", **(further or {})}
        if self.retry_after_seconds is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_after_seconds)))
        # In ASCII: a message may quote what UTF-8 cannot hold, such as half a surrogate pair.
        return Response(json.dumps(self.to_json()), self.status, headers, "application/json")


_KINDS: tuple[tuple[type[TimbrelError], str, int], ...] = (
    (TooLargeError, "invalid_request", 413),
    (errors.InvalidRequestError, "invalid_request", 400),
    (errors.NotFoundError, "not_found", 404),
    (errors.OverloadedError, "overloaded", 503),
    (errors.DeadlineExceededError, "deadline", 504),
    (errors.UnavailableError, "unavailable", 503),
    (errors.CancelledError, "unavailable", 503),
    (errors.BundleMismatchError, "unavailable", 503),
    (errors.AuthenticationError, "unavailable", 503),
    (errors.MissingExtraError, "internal", 501),
)
"""Error, code, status; the first that fits counts."""


def error_reply(error: TimbrelError) -> ErrorReply:
    """The reply that stands for this error. Its message never holds a token: no TimbrelError's does."""
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, errors.AuthenticationError):
        message = (
            f"the server does not accept the explorer's token ({message}): set TIMBREL_TOKEN, start anew"
        )
    for kind, code, status in _KINDS:
        if isinstance(error, kind):
            again = error.retry_after_seconds if isinstance(error, errors.OverloadedError) else None
            return ErrorReply(code, message, status, again)
    return ErrorReply("internal", message, 502)


def _answer_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, TimbrelError)
    return error_reply(error).to_response()


def _answer_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "not_found" if error.status_code == 404 else "invalid_request"
    return ErrorReply(code, error.detail, error.status_code).to_response(error.headers)


def _answer_nobody(_: Request, __: Exception) -> Response:
    return Response(status_code=GONE_STATUS)


def _answer_bug(_: Request, __: Exception) -> Response:
    """Nobody thought of this error: its traceback is in the log, not on the wire."""
    message = "the explorer failed; its output on the terminal says where"
    return ErrorReply("internal", message, 500).to_response()


EXCEPTION_HANDLERS: dict[type[Exception], ExceptionHandler] = {
    TimbrelError: _answer_error,
    HTTPException: _answer_http_error,
    ClientDisconnect: _answer_nobody,
    Exception: _answer_bug,
}
"""For Starlette: how each exception that leaves a handler of ours is answered."""
