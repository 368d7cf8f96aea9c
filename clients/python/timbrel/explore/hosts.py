"""Under which names the explorer may be asked: what keeps other web sites from reaching it through DNS."""

from __future__ import annotations

import ipaddress
import re
import socket

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]@]+)(?::(?P<port>\d{1,5}))?")


class AllowedHosts:
    """Names that a request's Host may have.

    Always those of the loopback, and the host that was asked for. Where that is every address of the machine,
    also plain addresses and the machine's own name: a foreign site cannot pose as an address, for its pages
    have its own name in their Host, whatever DNS resolves that to.
    """

    def __init__(self, host: str) -> None:
        """
        Args:
            host: what is listened on: a name, an address, or 0.0.0.0 or :: for all.
        """
        self._everywhere = is_wildcard(host)
        own = {host.lower()}
        if self._everywhere:
            name = socket.gethostname().lower()
            own |= {name, f"{name.partition('.')[0]}.local"}
        self._own = own

    def allows(self, header: str) -> bool:
        """Whether a Host header names us. The port is nobody's proof, and forwarded ports change it."""
        match = _HOST.fullmatch(header.strip())
        if match is None:
            return False
        name = match["name"].strip("[]").lower().rstrip(".")
        if name in self._own or is_loopback(name):
            return True
        return self._everywhere and _address(name) is not None


def is_loopback(name: str) -> bool:
    """Whether this name or address is this machine's own, and no other can reach it."""
    address = _address(name)
    if address is not None:
        return address.is_loopback
    return name == "localhost" or name.endswith(".localhost")


def is_wildcard(host: str) -> bool:
    """Whether it stands for every address of the machine."""
    address = _address(host)
    return address is not None and address.is_unspecified


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
