"""Handlers of calls: how they are made, wrapped in middleware, read bodies and send replies."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from timbrel_server.errors import InvalidRequestError

if TYPE_CHECKING:  # gRPC's types are generic to the type checker, and plain classes when run
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
    Interceptor: TypeAlias = grpc.aio.ServerInterceptor[Any, Any]
else:
    Context = grpc.aio.ServicerContext
    Handler = grpc.RpcMethodHandler
    Interceptor = grpc.aio.ServerInterceptor

Continuation: TypeAlias = Callable[[grpc.HandlerCallDetails], Awaitable[Handler]]
Behaviour: TypeAlias = Callable[[Any, Context], Any]
Answer: TypeAlias = Callable[[Any, Context], Awaitable[Any]]
"""Answers a call: takes the request, or the requests as they come, and returns the reply, or writes it, or
them."""

HEALTH_PREFIX = "/grpc.health.v1.Health/"
REFLECTION_PREFIX = "/grpc.reflection."

LARGEST_REQUEST_BYTES = 80 << 10
"""Of all but recordings: requests are kept while they wait, and empty parts are forty times as large once
they are decoded. The longest bend takes 64 KiB of it."""

UNKNOWN_PATH = "/unknown/unknown"
"""Stands for whatever method there is not: its own path is the caller's word."""

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


_M = TypeVar("_M", bound=Message)


def add_service(
    server: grpc.aio.Server, service: ServiceDescriptor, servicer: object, urgent: Collection[str] = ()
) -> None:
    """Has a gRPC server answer a service: the servicer's method `get_model` answers GetModel.

    Methods take undecoded bodies, so that bytes that are no message get a proper status.

    Args:
        urgent: methods whose calls do not stand in line with those of all others until they are looked at:
            gRPC keeps a line of its own for each method that is registered.
    """
    handlers = {}
    for method in service.methods:
        asked, answered = (
            "stream" if s else "unary" for s in (method.client_streaming, method.server_streaming)
        )
        make = getattr(grpc, f"{asked}_{answered}_rpc_method_handler")
        answer = getattr(servicer, re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower())
        reply = GetMessageClass(method.output_type)
        handlers[method.name] = make(answer, response_serializer=reply.SerializeToString)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service.full_name, handlers)])
    registered: Any = server  # grpc-stubs does not know it
    registered.add_registered_method_handlers(service.full_name, {name: handlers[name] for name in urgent})


def parse(kind: type[_M], body: bytes, most_bytes: int = LARGEST_REQUEST_BYTES) -> _M:
    """Decodes a message's body. Raises InvalidRequestError where it is none, or larger than allowed."""
    message: _M = _decode(body, kind.FromString, kind.DESCRIPTOR.full_name, most_bytes)
    return message


async def receive(context: Context) -> bytes:
    """Receives the body of a call's only request. Raises InvalidRequestError where there is none."""
    body: Any = await context.read()
    if body is grpc.aio.EOF:  # type: ignore[attr-defined]  # grpc-stubs does not know it
        raise InvalidRequestError([("request", "is missing")])
    return bytes(body)


class Sender:
    """Sends the messages of one call, one at a time, from however many tasks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._turn = asyncio.Lock()

    async def __call__(self, message: Any) -> None:
        """Returns once the message is on its way.

        Raises:
            asyncio.CancelledError: the caller has gone, or the server has stopped. gRPC cancels the call's
                handler only a little later.
        """
        async with self._turn:
            try:
                await self._context.write(message)
            except grpc.aio.BaseError:
                raise asyncio.CancelledError from None


class Method(NamedTuple):
    """The method that is called."""

    path: str
    """`/package.Service/Method`."""

    kind: str
    """One of KINDS."""

    @property
    def takes_one_request(self) -> bool:
        """Whether a call brings a single request: its answer is given the body, else all bodies."""
        return self.kind.startswith("unary")

    @property
    def is_health_check(self) -> bool:
        """Whether it is one of grpc.health.v1."""
        return self.path.startswith(HEALTH_PREFIX)

    @property
    def is_reflection(self) -> bool:
        """Whether it is that of a version of grpc.reflection."""
        return self.path.startswith(REFLECTION_PREFIX)


class Middleware(Protocol):
    """Does something around every call. The innermost is to `receive` the body where there is but one, and to
    write the reply that is returned."""

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
        self._unknown = self._wrap(grpc.stream_stream_rpc_method_handler(_answer_unknown), UNKNOWN_PATH)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        path = handler_call_details.method
        if (wrapped := self._wrapped.get(path)) is not None:
            return wrapped
        handler = await continuation(handler_call_details)
        if handler is None:
            return self._unknown
        wrapped = self._wrapped[path] = self._wrap(handler, path)
        return wrapped

    def _wrap(self, handler: Handler, path: str) -> Handler:
        kind = next(kind for kind in KINDS if getattr(handler, kind) is not None)
        answer = _as_answer(getattr(handler, kind), handler)
        for middleware in reversed(self._middleware):
            answer = middleware.around(answer, Method(path, kind))
        # On the wire a single message is a stream of one. Only a stream's handler is asked before the request
        # is there: whoever may not call is sent away, and nothing of what it sends is kept. And only a
        # stream's goes on until its reply is on its way: what a caller does not read counts as its own.
        made: Handler = grpc.stream_stream_rpc_method_handler(answer, None, handler.response_serializer)
        return made


async def _answer_unknown(_: Any, context: Context) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "there is no such method")


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


def _decode(
    body: bytes,
    decode: Callable[[bytes], Any],
    name: str = "such message",
    most_bytes: int = LARGEST_REQUEST_BYTES,
) -> Any:
    if len(body) > most_bytes:
        raise InvalidRequestError(
            [("request", f"{len(body)} bytes are too many; up to {most_bytes} are taken")]
        )
    try:
        return decode(body)
    except DecodeError:
        raise InvalidRequestError([("request", f"these {len(body)} bytes are no {name}")]) from None


async def _each(bodies: AsyncIterator[bytes], decode: Callable[[bytes], Any]) -> AsyncIterator[Any]:
    async for body in bodies:
        yield _decode(body, decode)
