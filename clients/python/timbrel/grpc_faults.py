"""From gRPC's own errors to timbrel's: what both transports share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, cast

import grpc

from timbrel.core.faults import DETAILS_KEY, error_from_status
from timbrel.errors import TimbrelError, UnavailableError


class _FailedCall(Protocol):
    """What gRPC's errors, blocking and asynchronous, can tell."""

    def code(self) -> grpc.StatusCode: ...

    def details(self) -> str | None: ...

    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...


def bearer_metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    """What goes with every call of a caller who has this token."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def translate(error: grpc.RpcError, address: str) -> TimbrelError:
    """The error to raise for a call to `address` that failed with `error`."""
    failed = cast(_FailedCall, error)
    details = dict(failed.trailing_metadata() or ()).get(DETAILS_KEY, b"")
    code = cast("tuple[int, str]", failed.code().value)[0]
    translated = error_from_status(
        code, failed.details() or "", details if isinstance(details, bytes) else b""
    )
    if isinstance(translated, UnavailableError):
        return UnavailableError(f"the server at {address} is not available: {translated}")
    return translated
