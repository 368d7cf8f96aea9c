"""gRPC's method handlers, with something put around what they do."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from timbrel_server.wire.grpc_types import Behaviour, Context, Handler

HEALTH_PREFIX = "/grpc.health.v1.Health/"

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def is_health_check(method: str) -> bool:
    """Whether a method, `/package.Service/Method`, is one of grpc.health.v1."""
    return method.startswith(HEALTH_PREFIX)


def kind_of(handler: Handler) -> str:
    """One of KINDS."""
    return next(kind for kind in KINDS if getattr(handler, kind) is not None)


def wrap(handler: Handler, around: Callable[[Behaviour, Any, Context], Awaitable[Any]]) -> Handler:
    """The handler with `around` called in place of its behaviour; None, for an unknown method, stays None."""
    if handler is None:
        return handler
    kind = kind_of(handler)
    inner: Behaviour = getattr(handler, kind)

    async def behaviour(request: Any, context: Context) -> Any:
        return await around(inner, request, context)

    make = getattr(grpc, f"{kind}_rpc_method_handler")
    wrapped: Handler = make(behaviour, handler.request_deserializer, handler.response_serializer)
    return wrapped


async def call(behaviour: Behaviour, request: Any, context: Context) -> Any:
    """Runs a behaviour of either kind: one that returns or writes its replies, or one that yields them."""
    replies = behaviour(request, context)
    if not inspect.isasyncgen(replies):
        return await replies
    async with contextlib.aclosing(replies):
        async for reply in replies:
            await context.write(reply)
