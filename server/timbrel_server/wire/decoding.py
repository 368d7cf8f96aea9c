"""Message bodies are decoded within the handler, whoever wrote it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from google.protobuf.message import DecodeError

from timbrel_server.errors import InvalidRequestError
from timbrel_server.wire.grpc_types import Answer, Context, Handler


def decoding(answer: Answer, handler: Handler) -> Answer:
    """Has bytes that are no message refused as any bad request is. Left to gRPC, they would end the call with
    UNKNOWN and an exception's text. For the health service and reflection, which come with a decoder; our own
    services take bodies as they are."""
    decode: Callable[[bytes], Any] | None = handler.request_deserializer
    if decode is None:
        return answer
    streams = bool(handler.request_streaming)

    async def decoded(request: Any, context: Context) -> Any:
        return await answer(_each(request, decode) if streams else _decode(request, decode), context)

    return decoded


def _decode(body: bytes, decode: Callable[[bytes], Any]) -> Any:
    try:
        return decode(body)
    except DecodeError:
        raise InvalidRequestError([("request", f"these {len(body)} bytes are no such message")]) from None


async def _each(bodies: AsyncIterator[bytes], decode: Callable[[bytes], Any]) -> AsyncIterator[Any]:
    async for body in bodies:
        yield _decode(body, decode)
