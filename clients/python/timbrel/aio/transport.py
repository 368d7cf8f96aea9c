"""The gRPC side of the asynchronous client: as `timbrel.transport`, for one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any, Generic, Protocol, TypeVar, cast

import grpc

from timbrel.channels import open_async_channel
from timbrel.errors import CancelledError
from timbrel.grpc_faults import bearer_metadata, translate
from timbrel.security import Security
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

_Reply = TypeVar("_Reply")


class _Stream(Protocol):
    """What grpc.aio returns for a call with a stream of replies."""

    def __aiter__(self) -> AsyncIterator[Any]: ...

    def cancel(self) -> bool: ...


class AsyncStreamCall(Generic[_Reply]):
    """A call with streams both ways: `async for` gives its replies, and raises subclasses of TimbrelError."""

    def __init__(self, call: _Stream, address: str) -> None:
        """Use `AsyncTransport.play` or `AsyncTransport.generate_batch`."""
        self._call = call
        self._address = address

    async def __aiter__(self) -> AsyncIterator[_Reply]:
        with _translated(self._address):
            async for reply in self._call:
                yield reply

    def cancel(self) -> None:
        """Ends it, and every note on it, at once."""
        self._call.cancel()


AsyncPlayCall = AsyncStreamCall[pb.PlayResponse]
"""A Play stream."""

AsyncBatchCall = AsyncStreamCall[pb.GenerateBatchResponse]
"""A GenerateBatch stream."""


class AsyncTransport:
    """A connection to one server, to be made and used within one event loop. Tasks may share it.

    Every method takes the seconds allowed for the whole call, None for no bound, and raises the subclasses of
    TimbrelError that the server's status stands for; a task that is cancelled gets asyncio's CancelledError.
    """

    def __init__(self, address: str, token: str | None, security: Security | None = None) -> None:
        """
        Raises:
            InvalidRequestError: a file of `security` cannot be read, or the token would travel unencrypted.
        """
        self._address = address
        self._channel = open_async_channel(security or Security(), address, token)
        self._stub = pb_grpc.SynthesizerStub(self._channel)
        self._metadata = bearer_metadata(token)

    async def get_model(self, timeout: float | None) -> pb.GetModelResponse:
        reply = await self._unary(self._stub.GetModel, pb.GetModelRequest(), timeout)
        return cast(pb.GetModelResponse, reply)

    async def get_timbre_map(self, timeout: float | None) -> pb.TimbreMap:
        reply = await self._unary(self._stub.GetTimbreMap, pb.GetTimbreMapRequest(), timeout)
        return cast(pb.GetTimbreMapResponse, reply).timbre_map

    def generate(
        self, request: pb.GenerateRequest, timeout: float | None
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        """The replies of one note; closing the generator early (`aclosing`) cancels the call."""
        return self._stream(self._stub.Generate, request, timeout)

    def generate_batch(self, requests: AsyncIterator[pb.GenerateBatchRequest]) -> AsyncBatchCall:
        """Opens a stream, which lasts until `requests` ends and the last of them is answered."""
        return AsyncStreamCall(self._stub.GenerateBatch(requests, metadata=self._metadata), self._address)

    def play(self, requests: AsyncIterator[pb.PlayRequest]) -> AsyncPlayCall:
        """Opens a stream, which lasts for as long as it is wanted."""
        return AsyncStreamCall(self._stub.Play(requests, metadata=self._metadata), self._address)

    async def locate(self, request: pb.LocateRequest, timeout: float | None) -> pb.LocateResponse:
        return cast(pb.LocateResponse, await self._unary(self._stub.Locate, request, timeout))

    def get_file(
        self, name: str, offset: int, timeout: float | None
    ) -> AsyncGenerator[pb.GetFileResponse, None]:
        return self._stream(self._stub.GetFile, pb.GetFileRequest(name=name, offset=offset), timeout)

    async def close(self) -> None:
        await self._channel.close(None)

    async def _unary(self, method: Any, request: object, timeout: float | None) -> object:
        with _translated(self._address):
            return await method(request, timeout=timeout, metadata=self._metadata)

    async def _stream(self, method: Any, request: object, timeout: float | None) -> AsyncGenerator[Any, None]:
        """Yields the replies; a caller that leaves early cancels the call."""
        call: _Stream = method(request, timeout=timeout, metadata=self._metadata)
        try:
            with _translated(self._address):
                async for reply in call:
                    yield reply
        finally:
            call.cancel()


@contextlib.contextmanager
def _translated(address: str) -> Iterator[None]:
    """Lets no error of gRPC out."""
    try:
        yield
    except grpc.RpcError as error:
        raise translate(error, address) from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Not this task was cancelled, but the call, or the connection was closed: gRPC says it the same way.
        raise CancelledError("the call was cancelled, or its client closed") from None
