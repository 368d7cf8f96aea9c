"""Opens connections, encrypted as a `Security` says."""

from __future__ import annotations

from pathlib import Path

import grpc
import grpc.aio

from timbrel.core.address import parse_address
from timbrel.errors import FieldViolation, InvalidRequestError
from timbrel.fork_guard import about_to_connect
from timbrel.security import CA_VARIABLE, INSECURE_VARIABLE, SYSTEM, Security

CHANNEL_OPTIONS = (("grpc.initial_reconnect_backoff_ms", 250), ("grpc.max_reconnect_backoff_ms", 2000))
"""A server that starts anew is found within seconds; gRPC's own pauses grow to two minutes."""


def open_channel(security: Security, address: str, token: str | None) -> grpc.Channel:
    """A connection to HOST:PORT.

    Raises:
        InvalidRequestError: a file cannot be read, or the token would travel unencrypted.
        RuntimeError: this process was forked from one that had called a server.
    """
    about_to_connect()
    if security.is_encrypted:
        return grpc.secure_channel(address, _credentials(security), CHANNEL_OPTIONS)
    _check_token(security, address, token)
    return grpc.insecure_channel(address, CHANNEL_OPTIONS)


def open_async_channel(security: Security, address: str, token: str | None) -> grpc.aio.Channel:
    """Likewise, for the running event loop."""
    about_to_connect()
    if security.is_encrypted:
        return grpc.aio.secure_channel(address, _credentials(security), CHANNEL_OPTIONS)
    _check_token(security, address, token)
    return grpc.aio.insecure_channel(address, CHANNEL_OPTIONS)


def _check_token(security: Security, address: str, token: str | None) -> None:
    """Raises InvalidRequestError where the token would travel unencrypted."""
    if token and not security.insecure and not parse_address(address).is_loopback:
        raise InvalidRequestError.of(
            [
                FieldViolation(
                    "token",
                    f"it would travel unencrypted to {address}: name the server's authority"
                    f" ({CA_VARIABLE}), or say that the network can be trusted ({INSECURE_VARIABLE}=1)",
                )
            ]
        )


def _credentials(security: Security) -> grpc.ChannelCredentials:
    roots = None if security.ca is None or security.ca == SYSTEM else _read("ca", security.ca)
    if security.certificate is None or security.key is None:
        return grpc.ssl_channel_credentials(roots)
    return grpc.ssl_channel_credentials(
        roots, _read("key", security.key), _read("certificate", security.certificate)
    )


def _read(field: str, file: str | Path) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidRequestError.of([FieldViolation(field, f"{file}: {error.strerror}")]) from None
