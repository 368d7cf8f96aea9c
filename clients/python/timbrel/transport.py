"""The gRPC side of the blocking client: a channel, one method per RPC, and no gRPC error let out."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Generic, Protocol, TypeVar, cast

import grpc

from timbrel.channels import open_channel
from timbrel.grpc_faults import bearer_metadata, translate
from timbrel.security import Security
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

_Reply = TypeVar("_Reply")


class _Stream(Protocol):
    """What grpc returns for a call with a stream of replies."""

    def __iter__(self) -> Iterator[Any]: ...

    def cancel(self) -> bool: ...


class StreamCall(Generic[_Reply]):
    """A call with streams both ways: iterating gives its replies, and raises subclasses of TimbrelError."""

    def __init__(self, call: _Stream, address: str) -> None:
        """Use `Transport.play` or `Transport.generate_batch`."""
        self._call = call
        self._address = address

    def __iter__(self) -> Iterator[_Reply]:
        try:
            yield from self._call
        except grpc.RpcError as error:
            raise translate(error, self._address) from None

    def cancel(self) -> None:
        """Ends it, and every note on it, at once. From any thread."""
        self._call.cancel()


PlayCall = StreamCall[pb.PlayResponse]
"""A Play stream."""

BatchCall = StreamCall[pb.GenerateBatchResponse]
"""A GenerateBatch stream."""


class Transport:
    """A connection to one server. Threads may share it.

    Every method takes the seconds allowed for the whole call, None for no bound, and raises the subclasses of
    TimbrelError that the server's status stands for.
    """

    def __init__(self, address: str, token: str | None, security: Security | None = None) -> None:
        """
        Raises:
            InvalidRequestError: a file of `security` cannot be read, or the token would travel unencrypted.
        """
        self._address = address
        self._channel = open_channel(security or Security(), address, token)
        self._stub = pb_grpc.SynthesizerStub(self._channel)
        self._metadata = bearer_metadata(token)

    def get_model(self, timeout: float | None) -> pb.GetModelResponse:
        return cast(pb.GetModelResponse, self._unary(self._stub.GetModel, pb.GetModelRequest(), timeout))

    def get_timbre_map(self, timeout: float | None) -> pb.TimbreMap:
        reply = self._unary(self._stub.GetTimbreMap, pb.GetTimbreMapRequest(), timeout)
        return cast(pb.GetTimbreMapResponse, reply).timbre_map

    def generate(
        self, request: pb.GenerateRequest, timeout: float | None
    ) -> Generator[pb.GenerateResponse, None, None]:
        return self._stream(self._stub.Generate, request, timeout)

    def generate_batch(self, requests: Iterator[pb.GenerateBatchRequest]) -> BatchCall:
        """Opens a stream, which lasts until `requests` ends and the last of them is answered.

        A thread of gRPC's own reads `requests`.
        """
        return StreamCall(self._stub.GenerateBatch(requests, metadata=self._metadata), self._address)

    def play(self, requests: Iterator[pb.PlayRequest]) -> PlayCall:
        """Opens a stream, which lasts for as long as it is wanted."""
        return StreamCall(self._stub.Play(requests, metadata=self._metadata), self._address)

    def locate(self, request: pb.LocateRequest, timeout: float | None) -> pb.LocateResponse:
        return cast(pb.LocateResponse, self._unary(self._stub.Locate, request, timeout))

    def get_file(self, name: str, offset: int, timeout: float | None) -> Iterator[pb.GetFileResponse]:
        return self._stream(self._stub.GetFile, pb.GetFileRequest(name=name, offset=offset), timeout)

    def close(self) -> None:
        self._channel.close()

    def _unary(self, method: Any, request: object, timeout: float | None) -> object:
        try:
            return method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise translate(error, self._address) from None

    def _stream(self, method: Any, request: object, timeout: float | None) -> Generator[Any, None, None]:
        """Yields the replies; a caller that leaves early cancels the call."""
        call: _Stream = method(request, timeout=timeout, metadata=self._metadata)
        try:
            yield from call
        except grpc.RpcError as error:
            raise translate(error, self._address) from None
        finally:
            call.cancel()
