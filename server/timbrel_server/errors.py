"""The errors that a call can fail with, and the gRPC status that says so.

ServiceError
├── InvalidRequestError    INVALID_ARGUMENT     BadRequest naming each field
├── NotFoundError          NOT_FOUND            unknown bundle or file
├── BundleMismatchError    FAILED_PRECONDITION  ErrorInfo with both hashes
├── OverloadedError        RESOURCE_EXHAUSTED   RetryInfo
├── UnavailableError       UNAVAILABLE          starting, shutting down, engine dead
├── NoteCancelledError     CANCELLED            a note of a Play stream, at its caller's wish
├── UnauthenticatedError   UNAUTHENTICATED      no token, or a wrong one
└── InternalError          INTERNAL             ErrorInfo with an id that is in the log
"""

from __future__ import annotations

import itertools
import logging
import secrets
import string
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

_log = logging.getLogger(__name__)

ERROR_DOMAIN = "timbrel"
"""The domain of every ErrorInfo."""

LONGEST_MESSAGE = 1000
"""Bytes of a status message as a header. A status travels as headers, of which peers take 8 KiB only: gRPC's
clients make RESOURCE_EXHAUSTED of one that has more."""

LONGEST_DESCRIPTION = 250
"""Characters that say what is wrong with one field."""

_PLAIN = string.ascii_letters + string.digits + string.punctuation.replace("%", "") + " "
"""What is written in a header as it is; of all else each byte is written as %XX."""

MOST_VIOLATIONS = 16
"""Fields that one BadRequest names; a single note has fewer."""

MOST_VIOLATION_BYTES = 3500
"""Of all of them; the message is among the details once more, and as a header they take four thirds of it."""


class ServiceError(Exception):
    """The base of all. Its message goes to the caller."""

    code: grpc.StatusCode

    def details(self) -> Sequence[Message]:
        """Returns messages of google.rpc that go along."""
        return ()

    def to_status(self) -> status_pb2.Status:
        """Returns the whole as google.rpc.Status."""
        number = self.code.value[0]
        status = status_pb2.Status(code=number, message=_as_header(str(self)))
        for detail in self.details():
            status.details.add().Pack(detail)
        return status


def shortened(text: str, n_characters: int = 80) -> str:
    """Cuts what a caller said, as it may be said back: no longer than this."""
    return text if len(text) <= n_characters else f"{text[: n_characters - 3]}..."


def _as_header(message: str) -> str:
    """Cuts a status message to what it may take as a header."""
    if len(message) <= LONGEST_MESSAGE and len(quote(message, safe=_PLAIN)) <= LONGEST_MESSAGE:
        return message  # as nearly all are, those of floods of refusals, too
    sizes = itertools.accumulate(len(quote(each, safe=_PLAIN)) for each in message)
    return shortened(message, sum(1 for _ in itertools.takewhile(LONGEST_MESSAGE.__ge__, sizes)))


class InvalidRequestError(ServiceError):
    """Fields are missing, make no sense, or are out of range: (field, what is wrong with it)."""

    code = grpc.StatusCode.INVALID_ARGUMENT

    def __init__(self, violations: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {description}" for field, description in violations))
        self.violations = tuple(violations)

    def details(self) -> Sequence[Message]:
        detail = error_details_pb2.BadRequest()
        for field, text in self.violations[:MOST_VIOLATIONS]:
            detail.field_violations.add(
                field=shortened(field), description=shortened(text, LONGEST_DESCRIPTION)
            )
            if detail.ByteSize() > MOST_VIOLATION_BYTES:
                detail.field_violations.pop()
                break
        return (detail,)


class NotFoundError(ServiceError):
    """There is no such bundle, or no such file to be had."""

    code = grpc.StatusCode.NOT_FOUND


class BundleMismatchError(ServiceError):
    """The caller expects a bundle of this name with other contents."""

    code = grpc.StatusCode.FAILED_PRECONDITION

    def __init__(self, expected: str, served: str) -> None:
        expected = shortened(expected)
        super().__init__(f"bundle_hash {expected!r} was expected, {served!r} is being served")
        self._metadata = {"expected": expected, "served": served}

    def details(self) -> Sequence[Message]:
        return (_error_info("BUNDLE_MISMATCH", self._metadata),)


class OverloadedError(ServiceError):
    """The queue is full; a place should be free in `retry_seconds`."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED

    def __init__(self, message: str, retry_seconds: float) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds

    def details(self) -> Sequence[Message]:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(int(self.retry_seconds * 1e9))
        return (retry,)


class UnavailableError(ServiceError):
    """Nothing is written here now."""

    code = grpc.StatusCode.UNAVAILABLE


class NoteCancelledError(ServiceError):
    """The caller has cancelled this note."""

    code = grpc.StatusCode.CANCELLED


class UnauthenticatedError(ServiceError):
    """The call brings no token, or a wrong one."""

    code = grpc.StatusCode.UNAUTHENTICATED


class InternalError(ServiceError):
    """The server is at fault. What happened is in the log, under the id."""

    code = grpc.StatusCode.INTERNAL

    def __init__(self, error_id: str) -> None:
        super().__init__(f"internal error {error_id}")
        self.error_id = error_id

    def details(self) -> Sequence[Message]:
        return (_error_info("INTERNAL", {"error_id": self.error_id}),)


def _error_info(reason: str, metadata: Mapping[str, str]) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=reason, domain=ERROR_DOMAIN, metadata=metadata)


def presentable(error: Exception, method: str) -> ServiceError:
    """Returns the error that a caller may see. One that nobody foresaw goes to the log, under an id."""
    if isinstance(error, ServiceError):
        return error
    hidden = InternalError(secrets.token_hex(6))
    _log.error("internal error %s in %s", hidden.error_id, method, exc_info=error)
    return hidden
