"""Says how the explorer is run: its options, the port that it listens on, and its certificate."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import re
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from timbrel.errors import InvalidRequestError, refusal

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8377

INDEX = "index.html"

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.ASCII | re.IGNORECASE)


def find_web_folder() -> Path:
    """Finds the page's folder: in the installed package, or beside it in the repository."""
    here = Path(__file__).resolve()
    packed = here.parent / "web"
    return packed if (packed / INDEX).is_file() else here.parents[3] / "web"


@dataclass(frozen=True)
class ExploreOptions:
    """Holds what the command line says; checked when made."""

    host: str = DEFAULT_HOST
    """To listen on. An address is kept as browsers write it, however short or long it was given."""

    port: int = DEFAULT_PORT
    """To listen on; 0 takes any that is free."""

    certfile: Path | None = None
    """The certificate for HTTPS, PEM; without one the explorer speaks plain HTTP."""

    keyfile: Path | None = None
    """Its private key, PEM; None: it is in `certfile`."""

    allowed_hosts: tuple[str, ...] = ()
    """Further names that browsers may call it by, such as that of a reverse proxy before it."""

    open_browser: bool = True
    bundle: str | None = None
    """Start a private server with the bundle in this folder."""

    server: str | None = None
    """HOST:PORT; None: what TIMBREL_SERVER says, else a private server."""

    web: Path = field(default_factory=find_web_folder)
    """The page's folder."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", plain_host(self.host))
        if not 0 <= self.port <= 65535:
            raise refusal("port", f"{self.port} is out of range; 0 to 65535 is allowed, 0 takes any free one")
        if self.keyfile is not None and self.certfile is None:
            raise refusal("keyfile", "goes with a certificate: give --certfile too")
        for name in self.allowed_hosts:
            if not _NAME.fullmatch(name):
                raise refusal("allow-host", f"{name!r} is no host's name alone, such as music.example")


def plain_host(host: str) -> str:
    """Writes an address as browsers do: 127.1 is 127.0.0.1, 0 is 0.0.0.0. Names stay as they are."""
    with contextlib.suppress(OSError, ValueError):
        host = socket.inet_ntoa(socket.inet_aton(host))
    with contextlib.suppress(ValueError):
        host = str(ipaddress.ip_address(host))
    return host


def listen(host: str, port: int) -> socket.socket:
    """Opens a socket that listens from now on, so that nobody else takes the port; who connects early waits.
    Raises InvalidRequestError: the port is in use or not ours to take, or the host is not this machine's."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise refusal("host", f"{host!r} is no name or address of this machine") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise _explain(error, host, port) from None
    return listener


def check_certificate(certfile: Path, keyfile: Path | None) -> None:
    """Checks that both can be read and belong together; raises InvalidRequestError where not."""
    for name, path in (("certfile", certfile), ("keyfile", keyfile)):
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            raise refusal(name, f"{path}: {error.strerror}") from None
    try:
        # A key under a passphrase would ask for it on the terminal, here and again where it is served.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certfile, keyfile, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise refusal(
            "certfile",
            f"{certfile} and its key make no certificate ({reason});"
            " PEM files are needed, the key without a passphrase",
        ) from None


def _explain(error: OSError, host: str, port: int) -> InvalidRequestError:
    another = "choose another by --port, or any free one by --port 0"
    if error.errno == errno.EADDRINUSE:
        return refusal("port", f"{port} is in use; {another}")
    if error.errno in (errno.EACCES, errno.EPERM):  # Windows has ranges of ports that nobody may take
        allowed = "1024 and above may" if port < 1024 else another
        return refusal("port", f"{port} may not be taken by this user; {allowed}")
    if error.errno == errno.EADDRNOTAVAIL:
        return refusal("host", f"{host} is no address of this machine")
    return refusal("host", f"{host}:{port} cannot be listened on ({error.strerror})")
