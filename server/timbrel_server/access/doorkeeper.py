"""Lets in who may come in."""

from __future__ import annotations

from typing import Any

from timbrel_server.access.caller import name_by_certificate, name_by_host, set_caller
from timbrel_server.access.tokens import DEFAULT_CALLER, Tokens, read_tokens
from timbrel_server.errors import UnauthenticatedError
from timbrel_server.settings.config import ServerConfig
from timbrel_server.wire.grpc_types import Answer, Context
from timbrel_server.wire.interceptors import Guard, Method

_SCHEME = b"bearer "


class Doorkeeper(Guard):
    """Lets in calls that bring `authorization: Bearer TOKEN`, and health checks; says who is calling.

    Without tokens everybody who could connect comes in.
    """

    def __init__(self, config: ServerConfig) -> None:
        """
        Raises:
            ConfigError: the token file makes no sense.
            OSError: it cannot be read.
        """
        self._config = config
        self._tokens = self._read()

    def reload(self) -> None:
        """Reads the token file anew; where that fails, as the constructor may, the old tokens stay."""
        self._tokens = self._read()

    def around(self, answer: Answer, method: Method) -> Answer:
        async def let_in(request: Any, context: Context) -> Any:
            if self._tokens is None or method.is_health_check:
                set_caller(self._name_by_connection(context))
            elif (name := self._tokens.find(_presented(context))) is not None:
                set_caller(f"token:{name}")
            else:
                set_caller(self._name_by_connection(context))
                raise UnauthenticatedError("this server asks for a token: authorization: Bearer TOKEN")
            return await answer(request, context)

        return let_in

    def _read(self) -> Tokens | None:
        if self._config.token_file is not None:
            return read_tokens(self._config.token_file)
        if self._config.token is not None:
            return Tokens({DEFAULT_CALLER: self._config.token})
        return None

    def _name_by_connection(self, context: Context) -> str:
        """To ask what a connection has brought costs, and only one that was asked has brought anything."""
        if self._config.client_authority is not None and (name := name_by_certificate(context)):
            return name
        return name_by_host(context)


def _presented(context: Context) -> bytes:
    """The token that a call brings; empty where it brings none."""
    metadata: Any = context.invocation_metadata()
    given = next((value for key, value in metadata or () if key == "authorization"), b"")
    header: bytes = given if isinstance(given, bytes) else given.encode(errors="replace")
    return header[len(_SCHEME) :] if header[: len(_SCHEME)].lower() == _SCHEME else b""
