"""The port that the explorer is asked on, and the certificate that it shows there."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from pathlib import Path

from timbrel.errors import FieldViolation, InvalidRequestError


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens from now on, so that nobody else takes the port; who connects early waits.

    Raises:
        InvalidRequestError: the port is in use or not ours to take, or the host is not this machine's.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise _refusal("host", f"{host!r} is no name or address of this machine") from None
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
    """
    Raises:
        InvalidRequestError: a file cannot be read, or the key is not the certificate's.
    """
    for name, path in (("certfile", certfile), ("keyfile", keyfile)):
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            raise _refusal(name, f"{path}: {error.strerror}") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certfile, keyfile)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise _refusal(
            "certfile", f"{certfile} and its key make no certificate ({reason}); PEM files are needed"
        ) from None


def _explain(error: OSError, host: str, port: int) -> InvalidRequestError:
    if error.errno == errno.EADDRINUSE:
        return _refusal("port", f"{port} is in use; choose another by --port, or any free one by --port 0")
    if error.errno in (errno.EACCES, errno.EPERM):
        return _refusal("port", f"{port} may not be taken by this user; 1024 and above may")
    if error.errno == errno.EADDRNOTAVAIL:
        return _refusal("host", f"{host} is no address of this machine")
    return _refusal("host", f"{host}:{port} cannot be listened on ({error.strerror})")


def _refusal(field: str, description: str) -> InvalidRequestError:
    return InvalidRequestError.of([FieldViolation(field, description)])
