"""Where the server is: an argument, the environment, or nowhere yet."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass

from timbrel.errors import FieldViolation, InvalidRequestError

SERVER_VARIABLE = "TIMBREL_SERVER"
"""Environment variable that names the server, HOST:PORT."""

TOKEN_VARIABLE = "TIMBREL_TOKEN"
"""Environment variable that holds the token the server asks for."""

DEFAULT_PORT = 50051

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+)(?::(?P<port>\d{1,5}))?")


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
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host == "localhost" or self.host.endswith(".localhost")


def parse_address(text: str) -> Address:
    """Reads "HOST:PORT" or "HOST", which means port 50051.

    Raises:
        InvalidRequestError: it is neither.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise _refusal(text, "expected HOST:PORT, for example localhost:50051")
    port = int(match["port"]) if match["port"] else DEFAULT_PORT
    if not 1 <= port <= 65535:
        raise _refusal(text, "the port must be 1..65535")
    return Address(match["host"], port)


def find_server(server: str | None, environment: Mapping[str, str]) -> Address | None:
    """The address asked for: the argument, else TIMBREL_SERVER, else None, which means a private server.

    Raises:
        InvalidRequestError: the address makes no sense.
    """
    text = server if server is not None else environment.get(SERVER_VARIABLE, "").strip() or None
    return None if text is None else parse_address(text)


def _refusal(text: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError.of([FieldViolation("server", f"{reason}, got {text!r}")])
