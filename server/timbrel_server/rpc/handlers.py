"""Handlers of calls: their types, how a service's are made, how they read bodies and send replies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from timbrel_server.errors import InvalidRequestError

if TYPE_CHECKING:  # gRPC's types are generic to the type checker, and plain classes when run
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    GenericHandler: TypeAlias = grpc.GenericRpcHandler[Any, Any]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
    Interceptor: TypeAlias = grpc.aio.ServerInterceptor[Any, Any]
else:
    Context = grpc.aio.ServicerContext
    GenericHandler = grpc.GenericRpcHandler
    Handler = grpc.RpcMethodHandler
    Interceptor = grpc.aio.ServerInterceptor

Continuation: TypeAlias = Callable[[grpc.HandlerCallDetails], Awaitable[Handler]]
Behaviour: TypeAlias = Callable[[Any, Context], Any]
Answer: TypeAlias = Callable[[Any, Context], Awaitable[Any]]
"""Answers a call: takes the request, or the requests as they come, and returns the reply, or writes them."""

_M = TypeVar("_M", bound=Message)


def service_handler(service: ServiceDescriptor, servicer: object) -> GenericHandler:
    """Makes the handler to register with a gRPC server: the servicer's method `get_model` answers GetModel.

    Methods take undecoded bodies, so that bytes that are no message get a proper status.
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
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def parse(kind: type[_M], body: bytes) -> _M:
    """Decodes a message's body. Raises InvalidRequestError."""
    message = kind()
    try:
        message.ParseFromString(body)
    except DecodeError:
        name = message.DESCRIPTOR.full_name
        raise InvalidRequestError([("request", f"these {len(body)} bytes are no {name}")]) from None
    return message


class Sender:
    """Sends the messages of one call, one at a time, from however many tasks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._turn = asyncio.Lock()

    async def __call__(self, message: Any) -> None:
        """Returns once the message is on its way.

        Raises:
            asyncio.CancelledError: the caller has gone. gRPC cancels the call's handler only a little later.
        """
        async with self._turn:
            try:
                await self._context.write(message)
            except (grpc.aio.InternalError, grpc.aio.UsageError):
                raise asyncio.CancelledError from None
