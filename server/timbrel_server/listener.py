"""Binding a gRPC server to its address, with errors that say what is wrong."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

import grpc

SERVER_OPTIONS: Sequence[tuple[str, int]] = (
    # Otherwise two servers share a port without a word, and each gets some of the calls.
    ("grpc.so_reuseport", 0),
    # A recording to be located is the largest request, up to 3 MiB; replies are bounded by ourselves.
    ("grpc.max_receive_message_length", 4 << 20),
    # A caller whose machine vanished is noticed, and its slot freed.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


class ListenError(OSError):
    """The server cannot listen there."""


def listen(server: grpc.aio.Server, host: str, port: int) -> int:
    """Binds the server; returns the port, which the system chooses where 0 is given.

    Raises:
        ListenError: the port is taken, or the host is none of this machine's.
    """
    _probe(host, port)
    try:
        return server.add_insecure_port(join_address(host, port))
    except RuntimeError as error:
        raise ListenError(f"cannot listen on {join_address(host, port)}: {error}") from None


def join_address(host: str, port: int) -> str:
    """HOST:PORT, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _probe(host: str, port: int) -> None:
    """Binds a plain socket first: it says why it cannot, where gRPC does not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            reason = f"port {port} on {host} is in use: choose another with --port, or 0 for a free one"
        else:
            reason = f"cannot listen on {join_address(host, port)}: {error.strerror or error}"
        raise ListenError(reason) from None
