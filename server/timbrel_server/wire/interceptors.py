"""What stands around every call, put there once for each method."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import grpc

from timbrel_server.wire.decoding import decoding
from timbrel_server.wire.grpc_types import Answer, Behaviour, Context, Continuation, Handler, Interceptor

HEALTH_PREFIX = "/grpc.health.v1.Health/"

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class Method(NamedTuple):
    """What is called."""

    path: str
    """`/package.Service/Method`."""

    kind: str
    """One of KINDS."""

    @property
    def is_health_check(self) -> bool:
        """Whether it is one of grpc.health.v1."""
        return self.path.startswith(HEALTH_PREFIX)


class Guard(Protocol):
    """Does something around every call."""

    def around(self, answer: Answer, method: Method) -> Answer:
        """What answers calls of this method in place of `answer`. Asked for once, when it is first called."""


class GuardInterceptor(Interceptor):
    """Has the guards stand around every method, and undecoded bodies reach them.

    One interceptor for all, which builds what a method needs but once: gRPC asks interceptors at every call.
    """

    def __init__(self, guards: Sequence[Guard]) -> None:
        """
        Args:
            guards: the outermost first.
        """
        self._guards = tuple(guards)
        self._guarded: dict[str, Handler] = {}  # of methods that there are, so that it cannot grow

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        path = handler_call_details.method
        if (guarded := self._guarded.get(path)) is not None:
            return guarded
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        guarded = self._guarded[path] = self._guard(handler, path)
        return guarded

    def _guard(self, handler: Handler, path: str) -> Handler:
        kind = next(kind for kind in KINDS if getattr(handler, kind) is not None)
        behaviour: Behaviour = getattr(handler, kind)

        async def answer(request: Any, context: Context) -> Any:
            return await _call(behaviour, request, context)

        guarded: Answer = decoding(answer, handler)
        for guard in reversed(self._guards):
            guarded = guard.around(guarded, Method(path, kind))
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        made: Handler = make(guarded, None, handler.response_serializer)
        return made


async def _call(behaviour: Behaviour, request: Any, context: Context) -> Any:
    """Runs a behaviour of either kind: one that returns or writes its replies, or one that yields them."""
    replies = behaviour(request, context)
    if not inspect.isasyncgen(replies):
        return await replies
    async with contextlib.aclosing(replies):
        async for reply in replies:
            await context.write(reply)
