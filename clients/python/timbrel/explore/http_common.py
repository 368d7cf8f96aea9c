"""Answers errors, reads bodies within bounds, and gives work up that nobody waits for.

An error becomes a code, an HTTP status and one clear line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ExceptionHandler

from timbrel import errors

GONE_STATUS = 499
"""Nobody reads it: the caller has left."""

READ_ON_FACTOR = 4
"""So many times the limit is read and thrown away, so that a browser still sending hears what was wrong."""

BODY_SECONDS = 10.0
"""The time that a small body has to arrive."""

FRESH = {"cache-control": "no-store"}
"""The header of what may not be kept."""

_Result = TypeVar("_Result")


class TooLargeError(errors.TimbrelError):
    """Is raised where the body of a request is larger than it may be."""


@dataclass(frozen=True)
class ErrorReply:
    """Describes an error for the page."""

    code: str
    """invalid_request, unavailable, overloaded, not_found, deadline or internal."""

    message: str
    """One line, for people."""

    status: int
    """HTTP's."""

    retry_after_seconds: float | None = None
    """When to try again, where that is known."""

    def to_response(self, further: Mapping[str, str] | None = None) -> Response:
        """Makes the HTTP response, with further headers."""
        headers = {**FRESH, **(further or {})}
        if self.retry_after_seconds is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_after_seconds)))
        # In ASCII: a message may quote what UTF-8 cannot hold, such as half a surrogate pair.
        content = json.dumps({"error": {"code": self.code, "message": self.message}})
        return Response(content, self.status, headers, "application/json")


_KINDS: tuple[tuple[type[errors.TimbrelError], str, int], ...] = (
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


def error_reply(error: errors.TimbrelError) -> ErrorReply:
    """Makes the reply for an error. Its message never holds a token: no TimbrelError's does."""
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
    assert isinstance(error, errors.TimbrelError)
    return error_reply(error).to_response()


def _answer_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "not_found" if error.status_code == 404 else "invalid_request"
    return ErrorReply(code, error.detail, error.status_code).to_response(error.headers)


def _answer_bug(_: Request, __: Exception) -> Response:
    """Nobody thought of this error: its traceback is in the log, not on the wire."""
    message = "the explorer failed; its output on the terminal says where"
    return ErrorReply("internal", message, 500).to_response()


ERROR_HANDLERS: dict[type[Exception], ExceptionHandler] = {
    errors.TimbrelError: _answer_error,
    HTTPException: _answer_http_error,
    ClientDisconnect: lambda *_: Response(status_code=GONE_STATUS),
    Exception: _answer_bug,
}
"""How Starlette answers each exception that leaves a handler of ours."""


class Uploads:
    """Reads large bodies, so many at once. Where one more comes, the slowest gives way."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._unfinished: list[_Upload] = []

    async def read(self, request: Request, max_bytes: int, what: str, seconds: float) -> bytes:
        """Does what `read_body` does."""
        upload = _Upload(asyncio.get_running_loop().time())
        self._unfinished.append(upload)
        try:
            if len(self._unfinished) > self._most:
                self._unfinished.remove(slowest := min(self._unfinished[:-1], key=_Upload.speed))
                slowest.give_way()
            return await read_body(request, max_bytes, what, seconds, upload)
        finally:
            with contextlib.suppress(ValueError):
                self._unfinished.remove(upload)


@dataclass(eq=False)
class _Upload:
    began: float
    n_bytes: int = 0
    time: asyncio.Timeout | None = None

    def speed(self) -> float:
        """Returns bytes per second so far."""
        return self.n_bytes / max(asyncio.get_running_loop().time() - self.began, 1e-3)

    def give_way(self) -> None:
        if self.time is not None and not self.time.expired():
            self.time.reschedule(asyncio.get_running_loop().time())


async def read_body(
    request: Request, max_bytes: int, what: str, seconds: float = BODY_SECONDS, upload: _Upload | None = None
) -> bytes:
    """Reads the body of a request, no further than it is wanted; a message calls it `what`. Raises
    TooLargeError: it is longer than `max_bytes`, of which no more are held; DeadlineExceededError: it did not
    arrive within so many seconds, or as fast as others; ClientDisconnect: the caller has left."""
    upload = upload or _Upload(0.0)
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(seconds) as upload.time:
            async for part in request.stream():
                upload.n_bytes += len(part)
                if upload.n_bytes <= max_bytes:
                    parts.append(part)
                else:
                    parts.clear()
                if upload.n_bytes > READ_ON_FACTOR * max_bytes:
                    break
    except TimeoutError:
        reason = f"{what} did not arrive within {seconds:g} seconds, or slower than others"
        raise errors.DeadlineExceededError(reason) from None
    if upload.n_bytes > max_bytes:
        size = f"{max_bytes >> 20} MiB" if max_bytes >= 2**20 else f"{max_bytes >> 10} KiB"
        raise TooLargeError(f"{what} is too large; {size} at most are taken")
    return b"".join(parts)


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Runs the work and returns its result; cancels it, and raises ClientDisconnect, where the caller leaves.

    The body must have been read.
    """
    task, gone = asyncio.create_task(work), asyncio.create_task(_until_disconnected(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _until_disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
