"""The far ends of connections, as gRPC names them."""

from __future__ import annotations

import errno
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from timbrel_server.rpc import listener
from timbrel_server.rpc.connections import Address, address_of


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.1:5", Address("10.0.0.1", 5)),
        ("ipv6:%5B::1%5D:5", Address("::1", 5)),
        ("ipv6:%5B::ffff:10.0.0.1%5D:5", Address("10.0.0.1", 5)),  # IPv4 on a socket of both
        ("unix:", None),
        ("", None),
    ],
)
def test_peers_are_read_as_the_addresses_that_their_sockets_have(peer: str, address: Address | None) -> None:
    assert address_of(peer) == address


def test_a_port_is_tried_as_windows_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """There SO_REUSEADDR would let two servers have one port."""
    asked: list[int] = []

    class Socket(socket.socket):
        def setsockopt(self, level: int, option: int, value: Any) -> None:  # type: ignore[override]
            asked.append(option)
            super().setsockopt(level, option, value)

    monkeypatch.setattr(listener, "os", SimpleNamespace(name="nt"))
    monkeypatch.setattr(socket, "socket", Socket)
    listener.probe("127.0.0.1", 0, "--port")
    assert socket.SO_REUSEADDR not in asked
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(listener.ListenError, match="in use"):
        listener.probe("127.0.0.1", taken.getsockname()[1], "--port")


def test_where_the_system_keeps_a_port_another_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those below 1024; on Windows with Hyper-V often the one that is the default."""

    class Socket(socket.socket):
        def bind(self, address: Any) -> None:
            raise PermissionError(errno.EACCES, "forbidden by its access permissions")

    monkeypatch.setattr(socket, "socket", Socket)
    with pytest.raises(listener.ListenError, match=r"port 50051 on .* choose another with --port"):
        listener.probe("127.0.0.1", 50051, "--port")
