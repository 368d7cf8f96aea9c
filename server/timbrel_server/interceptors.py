"""Around every call: no error leaves without its proper status, no call enters without the token."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import grpc
from grpc_status import rpc_status

from timbrel_server.errors import InternalError, ServiceError, UnauthenticatedError
from timbrel_server.grpc_types import Behaviour, Context, Continuation, Handler, Interceptor

_log = logging.getLogger(__name__)

HEALTH_PREFIX = "/grpc.health.v1.Health/"

_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class CallsInProgress:
    """Counts calls, so that a server can wait for the last to end."""

    def __init__(self) -> None:
        self._n = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Counts a call for as long as the block runs."""
        self._n += 1
        self._none.clear()
        try:
            yield
        finally:
            self._n -= 1
            if self._n == 0:
                self._none.set()

    async def wait_for_none(self) -> None:
        """Returns once no call is in progress."""
        await self._none.wait()


class ErrorInterceptor(Interceptor):
    """Turns what a handler raises into a status.

    What nobody foresaw goes to the log in full; the caller gets an id that is in the log.
    """

    def __init__(self, calls: CallsInProgress) -> None:
        """
        Args:
            calls: counts every call but health checks, whose watchers stay for good.
        """
        self._calls = calls

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        method = handler_call_details.method
        counts = not method.startswith(HEALTH_PREFIX)

        async def guarded(behaviour: Behaviour, request: Any, context: Context) -> Any:
            with self._calls.one() if counts else contextlib.nullcontext():
                try:
                    return await _call(behaviour, request, context)
                except (grpc.aio.AbortError, asyncio.CancelledError):
                    raise
                except Exception as error:
                    await _abort(context, presentable(error, method))

        return _wrap(await continuation(handler_call_details), guarded)


def presentable(error: Exception, method: str) -> ServiceError:
    """The error that a caller may see. One that nobody foresaw goes to the log in full, under an id."""
    if isinstance(error, ServiceError):
        return error
    hidden = InternalError(secrets.token_hex(6))
    _log.error("internal error %s in %s", hidden.error_id, method, exc_info=error)
    return hidden


class TokenInterceptor(Interceptor):
    """Lets in only calls that bring `authorization: Bearer TOKEN`, and health checks."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        handler = await continuation(handler_call_details)
        if handler_call_details.method.startswith(HEALTH_PREFIX) or self._accepts(handler_call_details):
            return handler
        return _wrap(handler, self._refuse)

    def _accepts(self, call: grpc.HandlerCallDetails) -> bool:
        metadata: Any = call.invocation_metadata
        given = next((value for key, value in metadata or () if key == "authorization"), "")
        presented = given if isinstance(given, bytes) else given.encode(errors="replace")
        return hmac.compare_digest(presented, self._expected)

    async def _refuse(self, behaviour: Behaviour, request: Any, context: Context) -> None:
        raise UnauthenticatedError("this server asks for a token: authorization: Bearer TOKEN")


def _wrap(handler: Handler, around: Callable[[Behaviour, Any, Context], Awaitable[Any]]) -> Handler:
    """The handler with `around` called in place of its behaviour; None, for an unknown method, stays None."""
    if handler is None:
        return handler
    kind = next(kind for kind in _KINDS if getattr(handler, kind) is not None)
    inner: Behaviour = getattr(handler, kind)

    async def behaviour(request: Any, context: Context) -> Any:
        return await around(inner, request, context)

    make = getattr(grpc, f"{kind}_rpc_method_handler")
    wrapped: Handler = make(behaviour, handler.request_deserializer, handler.response_serializer)
    return wrapped


async def _call(behaviour: Behaviour, request: Any, context: Context) -> Any:
    """Runs a behaviour of either kind: one that returns or writes its replies, or one that yields them."""
    replies = behaviour(request, context)
    if not inspect.isasyncgen(replies):
        return await replies
    async with contextlib.aclosing(replies):
        async for reply in replies:
            await context.write(reply)


async def _abort(context: Context, error: ServiceError) -> None:
    status: Any = rpc_status.to_status(error.to_status())
    await context.abort(status.code, status.details, status.trailing_metadata)
