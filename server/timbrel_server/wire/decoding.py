"""Message bodies are decoded within the handler, whoever wrote it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from timbrel_server.errors import InvalidRequestError
from timbrel_server.wire.grpc_types import Behaviour, Context, Continuation, Handler, Interceptor
from timbrel_server.wire.handlers import call, kind_of, wrap

Decode = Callable[[bytes], Any]


class DecodingInterceptor(Interceptor):
    """Has bytes that are no message refused as any bad request is. Left to gRPC, they would end the call with
    UNKNOWN and an exception's text. The innermost: for the health service and reflection, which come with a
    decoder; our own services take bodies as they are."""

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_deserializer is None:
            return handler
        decode: Decode = _refusing(handler.request_deserializer)
        streams = bool(handler.request_streaming)

        async def decoded(behaviour: Behaviour, request: Any, context: Context) -> Any:
            return await call(behaviour, _each(request, decode) if streams else decode(request), context)

        wrapped = wrap(handler, decoded)
        make = getattr(grpc, f"{kind_of(wrapped)}_rpc_method_handler")
        bare: Handler = make(getattr(wrapped, kind_of(wrapped)), None, wrapped.response_serializer)
        return bare


def _refusing(decode: Decode) -> Decode:
    def refusing(body: bytes) -> Any:
        try:
            return decode(body)
        except DecodeError:
            raise InvalidRequestError([("request", f"these {len(body)} bytes are no such message")]) from None

    return refusing


async def _each(bodies: AsyncIterator[bytes], decode: Decode) -> AsyncIterator[Any]:
    async for body in bodies:
        yield decode(body)
