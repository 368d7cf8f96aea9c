"""The far ends of connections, as gRPC names them."""

from __future__ import annotations

import pytest

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
