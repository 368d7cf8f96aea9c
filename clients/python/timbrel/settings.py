"""Settings of a client, by its arguments and the environment: where the server is, how to speak with it."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path

from timbrel.errors import InvalidRequestError, refusal

SERVER_VARIABLE = "TIMBREL_SERVER"
"""Environment variable that names the server, HOST:PORT."""

TOKEN_VARIABLE = "TIMBREL_TOKEN"
"""Environment variable that holds the token the server asks for."""

DEFAULT_PORT = 50051

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:/,\[\]]+)(?::(?P<port>\d{1,5}))?")

CA_VARIABLE = "TIMBREL_CA"
"""Environment variable: file of the authorities that servers are trusted by; `system`: by this system's."""

CERTIFICATE_VARIABLE = "TIMBREL_CERT"
"""Environment variable: file of the certificate that shows who is calling, PEM."""

KEY_VARIABLE = "TIMBREL_KEY"
"""Environment variable: file of its private key, PEM."""

INSECURE_VARIABLE = "TIMBREL_INSECURE"
"""Environment variable: 1 lets a token travel unencrypted."""

SYSTEM = "system"

DEFAULT_TIMEOUT_SECONDS = 120.0
"""A note takes a second or so; a busy server's queue and a slow processor are given time."""


LONGEST_TIMEOUT_SECONDS = 1e9
"""More than that stands for no bound; as a deadline it would overflow."""


@dataclass(frozen=True)
class Address:
    """A server's host and TCP port."""

    host: str
    """Name or number; an IPv6 address stands in brackets."""

    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine's own, as far as its name tells."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Tells whether this name or address is this machine's own, and no other can reach it."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")


def parse_address(text: str) -> Address:
    """Reads "HOST:PORT" or "HOST", which means port 50051. Raises InvalidRequestError: it is neither."""
    match = _ADDRESS.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        several = " (several are for `timbrel library`)" if "," in str(text) else ""
        raise _bad_address(text, f"expected HOST:PORT, for example localhost:50051 or [::1]:50051{several}")
    port = int(match["port"]) if match["port"] else DEFAULT_PORT
    if not 1 <= port <= 65535:
        raise _bad_address(text, "the port must be 1..65535")
    return Address(match["host"], port)


def _bad_address(text: str, reason: str) -> InvalidRequestError:
    return refusal("server", f"{reason}, got {text!r}")


@dataclass(frozen=True)
class Security:
    """The encryption of a connection; without `ca` and `certificate` there is none.

    >>> timbrel.Client("synth.example:443", token="s3cret", security=timbrel.Security(ca="system"))
    <timbrel.client.Client object at 0x...>

    Args:
        ca: file of the authorities that servers are trusted by, PEM; "system" for those that this system
            trusts.
        certificate: file of the certificate that shows who is calling, PEM: for servers that ask for one
            (mutual TLS).
        key: file of its private key, PEM.
        insecure: let a token travel unencrypted, though not on the loopback: where the network itself can be
            trusted.
    """

    ca: str | Path | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            both = f"{CERTIFICATE_VARIABLE} and {KEY_VARIABLE}, or Security's"
            raise refusal("certificate", f"goes with a key: give both or none ({both})")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Security:
        """Reads TIMBREL_CA, TIMBREL_CERT, TIMBREL_KEY and TIMBREL_INSECURE."""
        return cls(
            environment.get(CA_VARIABLE) or None,
            environment.get(CERTIFICATE_VARIABLE) or None,
            environment.get(KEY_VARIABLE) or None,
            environment.get(INSECURE_VARIABLE, "").lower() in ("1", "true", "yes"),
        )

    @property
    def is_encrypted(self) -> bool:
        """Whether connections are."""
        return self.ca is not None or self.certificate is not None


@dataclass(frozen=True)
class ClientSettings:
    """Where the server is, and how to speak with it."""

    address: Address | None
    """None: a private server."""

    token: str | None = field(repr=False)
    """Sent to a server that asks its callers for one."""

    timeout: float | None
    """Seconds allowed for one call, its retries included; None for no bound."""

    security: Security

    bundle: str | os.PathLike[str] | None
    """Folder of the bundle that a private server is to serve."""

    @classmethod
    def resolve(
        cls,
        server: str | None,
        token: str | None,
        timeout: float | None,
        bundle: str | os.PathLike[str] | None,
        security: Security | None,
        environment: Mapping[str, str],
    ) -> ClientSettings:
        """The arguments, and where they say nothing the environment. Raises InvalidRequestError: one of them
        makes no sense, or two contradict one another."""
        if timeout is not None and (not isinstance(timeout, Real) or not timeout > 0):
            raise refusal("timeout", f"must be above 0 seconds, got {timeout!r}")
        if timeout is not None and timeout > LONGEST_TIMEOUT_SECONDS:
            timeout = None
        if server is not None and bundle is not None:
            raise refusal("bundle", f"the server {server} serves its own")
        if server is None and bundle is None:
            server = environment.get(SERVER_VARIABLE, "").strip() or None
        return cls(
            None if server is None else parse_address(server),
            _checked_token(token if token is not None else environment.get(TOKEN_VARIABLE)),
            timeout,
            security if security is not None else Security.from_environment(environment),
            bundle,
        )

    def at(self, address: str, token: str | None, security: Security) -> ClientSettings:
        """The same for a server at another address."""
        return replace(self, address=parse_address(address), token=_checked_token(token), security=security)


def _checked_token(token: str | None) -> str | None:
    """The token without the line end that a file or a copy may bring. Raises InvalidRequestError: gRPC cannot
    send it; the message does not say it."""
    stripped = token.strip() if token is not None else None
    if stripped and not re.fullmatch("[ -~]+", stripped):
        raise refusal("token", f"may hold ASCII letters, digits and signs only; see {TOKEN_VARIABLE}")
    return stripped
