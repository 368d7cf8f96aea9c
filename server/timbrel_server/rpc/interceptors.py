"""The gRPC interceptor that puts middleware around every method, once for each."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple, Protocol

import grpc
from google.protobuf.message import DecodeError

from timbrel_server.errors import InvalidRequestError
from timbrel_server.rpc.handlers import Answer, Behaviour, Context, Continuation, Handler, Interceptor

HEALTH_PREFIX = "/grpc.health.v1.Health/"

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class Method(NamedTuple):
    """The method that is called."""

    path: str
    """`/package.Service/Method`."""

    kind: str
    """One of KINDS."""

    @property
    def is_health_check(self) -> bool:
        """Whether it is one of grpc.health.v1."""
        return self.path.startswith(HEALTH_PREFIX)


class Middleware(Protocol):
    """Does something around every call."""

    def around(self, answer: Answer, method: Method) -> Answer:
        """Makes what answers calls of this method in place of `answer`. Asked for once, when it is first
        called."""


class MiddlewareInterceptor(Interceptor):
    """Puts middleware around every method, and lets undecoded bodies reach it.

    One interceptor for all, which builds what a method needs but once: gRPC asks interceptors at every call.
    """

    def __init__(self, middleware: Sequence[Middleware]) -> None:
        """
        Args:
            middleware: the outermost first.
        """
        self._middleware = tuple(middleware)
        self._wrapped: dict[str, Handler] = {}  # of methods that there are, so that it cannot grow

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        path = handler_call_details.method
        if (wrapped := self._wrapped.get(path)) is not None:
            return wrapped
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        wrapped = self._wrapped[path] = self._wrap(handler, path)
        return wrapped

    def _wrap(self, handler: Handler, path: str) -> Handler:
        kind = next(kind for kind in KINDS if getattr(handler, kind) is not None)
        answer = _as_answer(getattr(handler, kind), handler)
        for middleware in reversed(self._middleware):
            answer = middleware.around(answer, Method(path, kind))
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        made: Handler = make(answer, None, handler.response_serializer)
        return made


def _as_answer(behaviour: Behaviour, handler: Handler) -> Answer:
    """Runs a behaviour of any kind. Those of our own services take bodies as they are, and write replies.

    The health service and reflection come with a decoder: bytes that are no message are refused as any bad
    request is. Left to gRPC, they would end the call with UNKNOWN and an exception's text.
    """
    decode: Callable[[bytes], Any] | None = handler.request_deserializer
    if decode is None and inspect.iscoroutinefunction(behaviour):
        return behaviour

    async def answer(request: Any, context: Context) -> Any:
        if decode is not None:
            request = _each(request, decode) if handler.request_streaming else _decode(request, decode)
        replies = behaviour(request, context)
        if not inspect.isasyncgen(replies):
            return await replies
        async with contextlib.aclosing(replies):
            async for reply in replies:
                await context.write(reply)

    return answer


def _decode(body: bytes, decode: Callable[[bytes], Any]) -> Any:
    try:
        return decode(body)
    except DecodeError:
        raise InvalidRequestError([("request", f"these {len(body)} bytes are no such message")]) from None


async def _each(bodies: AsyncIterator[bytes], decode: Callable[[bytes], Any]) -> AsyncIterator[Any]:
    async for body in bodies:
        yield _decode(body, decode)
