"""What a client was told, by its arguments and by the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from timbrel.core.address import TOKEN_VARIABLE, Address, find_server, parse_address
from timbrel.errors import FieldViolation, InvalidRequestError
from timbrel.security import Security

DEFAULT_TIMEOUT_SECONDS = 120.0
"""A note takes a second or so; a busy server's queue and a slow processor are given time."""


@dataclass(frozen=True)
class ClientSettings:
    """Where the server is, and how to speak with it."""

    address: Address | None
    """None: a private server."""

    token: str | None = field(repr=False)
    """What the server asks its callers for."""

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
        """The arguments, and where they say nothing the environment.

        Raises:
            InvalidRequestError: one of them makes no sense, or two contradict one another.
        """
        if timeout is not None and not timeout > 0:
            raise _refusal("timeout", f"must be above 0 seconds, got {timeout}")
        if server is not None and bundle is not None:
            raise _refusal("bundle", f"the server {server} serves its own")
        return cls(
            None if bundle is not None else find_server(server, environment),
            token if token is not None else environment.get(TOKEN_VARIABLE),
            timeout,
            security if security is not None else Security.from_environment(environment),
            bundle,
        )

    def at(self, address: str, token: str) -> ClientSettings:
        """These, for a private server, which is on the loopback: nothing needs to be encrypted there."""
        return replace(self, address=parse_address(address), token=token, security=Security())


def _refusal(field: str, description: str) -> InvalidRequestError:
    return InvalidRequestError.of([FieldViolation(field, description)])
