"""From a gRPC status to the error that the client raises. Statuses come as plain numbers and bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from timbrel import errors
from timbrel_bundle.errors import BundleError, printable

DETAILS_KEY = "grpc-status-details-bin"
"""The trailing metadata key under which a server sends a google.rpc.Status."""

ERROR_ID_KEY = "error_id"
"""The key of an ErrorInfo's metadata under which the server names a failure in its log."""

LOST_STATUS = "Internal error from Core"
"""A message of gRPC's asyncio side, under INTERNAL, where a stream ended, or its connection broke, while it
was being written to: the status that the server gave it is lost."""

CUT = ("RST_STREAM", LOST_STATUS)
"""Messages of gRPC's, under INTERNAL; the first where a proxy ends a call because the server behind it is
gone."""

REFUSED = "RST_STREAM with error code 7"
"""In a message of gRPC's, under UNAVAILABLE, where the connection has as many calls as the server takes."""

REFUSED_SECONDS = 0.5
"""When to try again then."""

NEW_CLIENT = "; a client keeps to the bundle that it met first, a new one takes what is served now"

OTHER_SERVER = "; what answers there is no timbrel server, or one of another version"

LONGEST_MESSAGE = 2000
"""Characters of a server's message that are taken."""

MOST_VIOLATIONS = 20

_Detail = TypeVar("_Detail", bound=Message)


def error_from_status(code: int, message: str, details: bytes = b"") -> errors.TimbrelError:
    """The error to raise for a call that ended with this status: the code's number (3 is INVALID_ARGUMENT),
    its message, and a serialized google.rpc.Status, as a server sends it in its trailing metadata."""
    message = _shown(message) or f"the server gave status {code} without a message"
    if code == 14 and REFUSED in message:
        return errors.OverloadedError("the server takes no more calls of this connection", REFUSED_SECONDS)
    if (kind := _KINDS.get(code)) is not None:
        return kind(message + NEW_CLIENT if kind is errors.BundleMismatchError else message)
    status = _parse(details)
    if code == 3:
        return _invalid_request(message, status)
    if code == 12:
        message += OTHER_SERVER
    return _overloaded(message, status) if code == 8 else _server_error(message, status)


def _shown(text: str) -> str:
    """A text of the server's as one line that can be shown."""
    return printable(" ".join(text[:LONGEST_MESSAGE].split()))


@contextlib.contextmanager
def codec_faults() -> Iterator[None]:
    """Raises BundleMismatchError where the codec, which came from the server, fails within the block."""
    try:
        yield
    except BundleError as error:
        raise errors.BundleMismatchError(str(error)) from error


def _parse(details: bytes) -> status_pb2.Status:
    status = status_pb2.Status()
    try:
        status.ParseFromString(details)
    except DecodeError:
        return status_pb2.Status()
    return status


def _find(status: status_pb2.Status, kind: type[_Detail]) -> _Detail | None:
    """The first detail of this kind, if there is one."""
    for packed in status.details:
        detail = kind()
        try:
            if packed.Unpack(detail):
                return detail
        except DecodeError:
            continue
    return None


def _invalid_request(message: str, status: status_pb2.Status) -> errors.TimbrelError:
    bad = _find(status, error_details_pb2.BadRequest)
    violations = bad.field_violations[:MOST_VIOLATIONS] if bad is not None else ()
    fields = [errors.FieldViolation(_shown(each.field), _shown(each.description)) for each in violations]
    return errors.InvalidRequestError.of(fields) if fields else errors.InvalidRequestError(message)


def _overloaded(message: str, status: status_pb2.Status) -> errors.TimbrelError:
    retry = _find(status, error_details_pb2.RetryInfo)
    delay = retry.retry_delay if retry is not None else None
    return errors.OverloadedError(message, None if delay is None else delay.seconds + delay.nanos * 1e-9)


def _server_error(message: str, status: status_pb2.Status) -> errors.TimbrelError:
    info = _find(status, error_details_pb2.ErrorInfo)
    if info is None and any(each in message for each in CUT):
        return errors.UnavailableError(f"the connection was cut while it answered: {message}")
    error_id = info.metadata.get(ERROR_ID_KEY) if info is not None else None
    return errors.ServerError(message, None if error_id is None else _shown(error_id))


_KINDS: dict[int, type[errors.TimbrelError]] = {
    1: errors.CancelledError,
    4: errors.DeadlineExceededError,
    5: errors.NotFoundError,
    9: errors.BundleMismatchError,
    14: errors.UnavailableError,
    16: errors.AuthenticationError,
}
"""Those that say no more than their message, by gRPC's status numbers."""
