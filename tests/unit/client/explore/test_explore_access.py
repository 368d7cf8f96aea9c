"""Which names the explorer answers to."""

from __future__ import annotations

import socket

import pytest

from timbrel.explore.access import AllowedHosts, is_wildcard
from timbrel.settings import is_loopback


@pytest.mark.parametrize(
    "header",
    ["localhost", "localhost:8377", "LOCALHOST.", "a.localhost", "127.0.0.1:1", "127.9.9.9", "[::1]:80"],
)
def test_the_loopback_is_always_ours(header: str) -> None:
    assert AllowedHosts("127.0.0.1").allows(header)
    assert AllowedHosts("studio.example").allows(header)


@pytest.mark.parametrize(
    "header",
    [
        *(
            "",
            " ",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
        ),
        *("[::1].evil.example", "evil.example#localhost", "localhost:", "localhost:x", "10.0.0.1", "0.0.0.0"),
        *("[::ffff:10.0.0.1]", "local\u017fhost"),
    ],
)
def test_other_names_are_not(header: str) -> None:
    assert not AllowedHosts("127.0.0.1").allows(header)


def test_the_host_that_was_asked_for_is_ours() -> None:
    hosts = AllowedHosts("Studio.example")
    assert hosts.allows("studio.EXAMPLE:8377")
    assert not hosts.allows("other.example")


def test_on_all_addresses_plain_ones_are_ours_and_names_are_not() -> None:
    hosts = AllowedHosts("0.0.0.0")
    assert hosts.allows("192.168.1.20:8377") and hosts.allows("[fe80::1]")
    assert hosts.allows(f"{socket.gethostname()}:8377")
    assert not hosts.allows("evil.example")


def test_loopback_and_wildcard() -> None:
    assert is_loopback("localhost") and is_loopback("::1") and not is_loopback("10.0.0.1")
    assert is_wildcard("0.0.0.0") and is_wildcard("::") and not is_wildcard("127.0.0.1")
