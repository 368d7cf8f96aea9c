"""Which gRPC server the bridge talks to: one at a given address, or one of its own."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import Protocol

from timbrel.private_server import PrivateServer
from timbrel.settings import Security

PRIVATE = "private"
"""What a server of one's own is called, in place of its address."""


@dataclass(frozen=True)
class Endpoint:
    """How to reach a server."""

    address: str
    """HOST:PORT."""

    token: str | None = field(repr=False)
    security: Security


class Backend(Protocol):
    """A server to talk to."""

    @property
    def name(self) -> str:
        """HOST:PORT, or "private"."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it is now."""

    async def revive(self) -> bool:
        """Called while it does not answer; whether it is to be sought at another endpoint now."""

    def close(self) -> None:
        """Ends what belongs to the bridge."""


class GivenBackend:
    """A server that others started, and start anew."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.name = endpoint.address

    async def revive(self) -> bool:
        return False

    def close(self) -> None:
        """It goes on."""


class PrivateBackend:
    """A server of the bridge's own, which ends with it and is started again where it has died.

    Raises:
        MissingExtraError, UnavailableError, OSError: it does not start.
    """

    name = PRIVATE

    def __init__(self, bundle: str | os.PathLike[str] | None) -> None:
        self._bundle = bundle
        self._closed = False
        self._server = PrivateServer(bundle)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self._server.address, self._server.token, Security())

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._server.pid

    async def revive(self) -> bool:
        """
        Raises:
            MissingExtraError, UnavailableError, OSError: it does not start again.
        """
        await asyncio.to_thread(self._start_again)
        return True

    def close(self) -> None:
        self._closed = True
        self._server.close()

    def _start_again(self) -> None:
        self._server.close()
        server = PrivateServer(self._bundle)
        if self._closed:
            server.close()
        self._server = server
