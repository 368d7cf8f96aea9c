"""gRPC's types as its stubs annotate them: generic to the type checker, plain classes when run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

if TYPE_CHECKING:
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
