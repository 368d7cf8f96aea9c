"""Lets in who may come in."""

from __future__ import annotations

from typing import Any

import grpc

from timbrel_server.access.caller import name_by_connection, set_caller
from timbrel_server.access.tokens import DEFAULT_CALLER, Tokens, read_tokens
from timbrel_server.errors import UnauthenticatedError
from timbrel_server.settings.config import ServerConfig
from timbrel_server.wire.grpc_types import Behaviour, Context, Continuation, Handler, Interceptor
from timbrel_server.wire.handlers import call, is_health_check, wrap

_SCHEME = b"bearer "


class Doorkeeper(Interceptor):
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

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        handler = await continuation(handler_call_details)
        if self._tokens is None or is_health_check(handler_call_details.method):
            return wrap(handler, self._let_in_by_connection)
        name = self._tokens.find(_presented(handler_call_details))
        if name is None:
            return wrap(handler, self._refuse)

        async def let_in(behaviour: Behaviour, request: Any, context: Context) -> Any:
            set_caller(f"token:{name}")
            return await call(behaviour, request, context)

        return wrap(handler, let_in)

    def _read(self) -> Tokens | None:
        if self._config.token_file is not None:
            return read_tokens(self._config.token_file)
        if self._config.token is not None:
            return Tokens({DEFAULT_CALLER: self._config.token})
        return None

    async def _let_in_by_connection(self, behaviour: Behaviour, request: Any, context: Context) -> Any:
        set_caller(name_by_connection(context))
        return await call(behaviour, request, context)

    async def _refuse(self, behaviour: Behaviour, request: Any, context: Context) -> None:
        set_caller(name_by_connection(context))
        raise UnauthenticatedError("this server asks for a token: authorization: Bearer TOKEN")


def _presented(details: grpc.HandlerCallDetails) -> bytes:
    """The token that a call brings; empty where it brings none."""
    metadata: Any = details.invocation_metadata
    given = next((value for key, value in metadata or () if key == "authorization"), b"")
    header: bytes = given if isinstance(given, bytes) else given.encode(errors="replace")
    return header[len(_SCHEME) :] if header[: len(_SCHEME)].lower() == _SCHEME else b""
