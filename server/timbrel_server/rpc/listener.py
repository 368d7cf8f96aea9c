"""Listening: a gRPC server is bound to its address, with limits, and errors that say what is wrong."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence

import grpc

from timbrel_server.config import ServerConfig

MOST_PENDING_CALLS = 4096
"""Of each method that is registered, and of all others together. They take some 8 KiB each, and come in at
some thousands a second."""

MOST_LINGERING_CALLS = 128
"""Of one connection: gRPC counts calls that have just ended beside those that took their place, and ends what
goes beyond the limit with UNAVAILABLE. So that is to be no caller who keeps to a share of the calls."""


SETTINGS_MILLIS = 10_000
"""A connection that has not acknowledged these limits by then is closed."""


class ListenError(OSError):
    """The server cannot listen there."""


def server_options(config: ServerConfig, n_connections: int) -> Sequence[tuple[str, int]]:
    """Returns the limits that gRPC itself holds callers to; how many connections there may be is one."""
    share = int(config.n_calls * config.caller_share)
    return (
        # Unless asked for, two servers are not to share a port, and each get some of the calls.
        ("grpc.so_reuseport", int(config.reuse_port)),
        ("grpc.max_receive_message_length", config.max_message_bytes),
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.max_concurrent_streams", config.max_streams or share + MOST_LINGERING_CALLS),
        ("grpc.max_allowed_incoming_connections", n_connections),
        # Of calls that nobody has looked at yet gRPC gives up some at random, whoever's they are, and of more
        # than 1000 unless told otherwise.
        ("grpc.server.max_pending_requests", MOST_PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", 2 * MOST_PENDING_CALLS),
        # A caller whose machine vanished is noticed, its slot freed. gRPC 1.85 ignores keepalive_timeout_ms.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.http2.ping_timeout_ms", 20_000),
        # Messages may not come compressed: gRPC looks at their size only once they are inflated.
        # The first ends calls that are compressed, too late for what comes in one packet.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        ("grpc.per_message_decompression", 0),
        # Pings are answered, however many: what gRPC does about too many of them keeps memory for each.
        ("grpc.http2.max_ping_strikes", 0),
        # A connection that sends without pause is read in small pieces, some of which are always in hand.
        ("grpc.experimental.tcp_max_read_chunk_size", 64 << 10),
        # What a call may send before anybody reads it stays 64 KiB, however fast its connection is.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.keepalive_permit_without_calls", 1),
        # A connection that never says hello, or that has had nothing to say for long, is closed.
        ("grpc.server_handshake_timeout_ms", 10_000),
        # Until a connection has acknowledged these limits gRPC takes 16 MiB of a call's headers.
        ("grpc.http2.settings_timeout", SETTINGS_MILLIS),
        ("grpc.max_connection_idle_ms", 3_600_000),
    )


def listen(
    server: grpc.aio.Server,
    host: str,
    port: int,
    credentials: grpc.ServerCredentials | None = None,
    *,
    shared: bool = False,
) -> int:
    """Binds the server; returns the port, which the system chooses where 0 is given.

    Args:
        credentials: of TLS; None leaves connections unencrypted.
        shared: whether others may listen there too.

    Raises:
        ListenError: the port is taken, or the host is none of this machine's.
    """
    probe(host, port, "--port", shared=shared)
    address = join_address(host, port)
    try:
        if credentials is not None:
            return server.add_secure_port(address, credentials)
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise ListenError(f"cannot listen on {address}: {error}") from None


def join_address(host: str, port: int) -> str:
    """Writes HOST:PORT, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def reserve_port(host: str, port: int) -> socket.socket:
    """Returns a socket that keeps a port, 0 for a free one, for servers that share it: it does not listen, so
    that it gets no connections. Raises ListenError."""
    probe(host, port, "--port")
    return _bound(host, port, "--port", shared=True)


def probe(host: str, port: int, flag: str, *, shared: bool = False) -> None:
    """Binds a plain socket first: it says why it cannot, where gRPC does not.

    Args:
        flag: what chooses the port.
        shared: whether others may listen there too.

    Raises:
        ListenError: it cannot.
    """
    _bound(host, port, flag, shared=shared).close()


def _bound(host: str, port: int, flag: str, *, shared: bool) -> socket.socket:
    plain = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        plain = socket.socket(family, kind, protocol)
        if shared:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        elif os.name == "posix":  # elsewhere it lets two servers have one port
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        plain.bind(address)
        return plain
    except OSError as error:
        if plain is not None:
            plain.close()
        if error.errno == errno.EADDRINUSE:
            reason = f"port {port} on {host} is in use: choose another with {flag}, or 0 for a free one"
        elif error.errno == errno.EACCES:  # below 1024; those that Hyper-V takes, often 50000-50059
            reason = f"port {port} on {host} is kept by the system: choose another with {flag}, or 0"
        else:
            reason = f"cannot listen on {join_address(host, port)}: {error.strerror or error}"
        raise ListenError(reason) from None
