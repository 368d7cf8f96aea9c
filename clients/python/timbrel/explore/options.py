"""How the explorer is run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from timbrel.errors import FieldViolation, InvalidRequestError
from timbrel.explore.backend import Backend, Endpoint, GivenBackend, PrivateBackend
from timbrel.explore.hosts import is_loopback
from timbrel.explore.web_folder import find_web_folder
from timbrel.settings import TOKEN_VARIABLE, Security, find_server

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8377


@dataclass(frozen=True)
class ExploreOptions:
    """Checked when made."""

    host: str = DEFAULT_HOST
    """To listen on."""

    port: int = DEFAULT_PORT
    """To listen on; 0 takes any that is free."""

    certfile: Path | None = None
    """The certificate for HTTPS, PEM; without one the explorer speaks plain HTTP."""

    keyfile: Path | None = None
    """Its private key, PEM; None: it is in `certfile`."""

    open_browser: bool = True
    bundle: str | None = None
    """Start a private server with the bundle in this folder."""

    server: str | None = None
    """HOST:PORT; None: what TIMBREL_SERVER says, else a private server."""

    web: Path = field(default_factory=find_web_folder)
    """The page's folder."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise _refusal(
                "port", f"{self.port} is out of range; 0 to 65535 is allowed, 0 takes any free one"
            )
        if self.keyfile is not None and self.certfile is None:
            raise _refusal("keyfile", "goes with a certificate: give --certfile too")
        if self.server is not None and self.bundle is not None:
            raise _refusal("bundle", f"the server {self.server} serves its own")

    @property
    def scheme(self) -> str:
        return "http" if self.certfile is None else "https"

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host.lower())

    def open_backend(self, environment: Mapping[str, str] = os.environ) -> Backend:
        """The gRPC server to talk to, started where it is to be a private one.

        Raises:
            TimbrelError: its address makes no sense, or it does not start.
        """
        address = None if self.bundle is not None else find_server(self.server, environment)
        if address is None:
            return PrivateBackend(self.bundle)
        security = Security.from_environment(environment)
        token = environment.get(TOKEN_VARIABLE) or None
        return GivenBackend(Endpoint(str(address), token, security))


def _refusal(name: str, description: str) -> InvalidRequestError:
    return InvalidRequestError.of([FieldViolation(name, description)])
