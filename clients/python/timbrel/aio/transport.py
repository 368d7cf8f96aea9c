"""The gRPC side of the client: the one file that imports gRPC. It opens channels, makes calls and lets no
error of gRPC's out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar, cast

import grpc
import grpc.aio

from timbrel.aio import tls
from timbrel.core.faults import DETAILS_KEY, LOST_STATUS, error_from_status
from timbrel.core.model import check_model, check_timbre_map
from timbrel.errors import (
    AuthenticationError,
    CancelledError,
    DeadlineExceededError,
    ServerError,
    TimbrelError,
    UnavailableError,
    refusal,
    within_allowed,
)
from timbrel.forks import about_to_connect
from timbrel.settings import CA_VARIABLE, INSECURE_VARIABLE, TOKEN_VARIABLE, Security, parse_address
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

CHANNEL_OPTIONS = (
    # A server that starts anew is found within seconds; gRPC's own pauses grow to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # A connection that the network has forgotten is noticed; calls would wait in vain until TCP gives it up,
    # after a quarter of an hour. gRPC 1.85 ignores keepalive_timeout_ms.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Replies are never inflated: gRPC looks at a message's size only after that, so that some kilobytes could
    # fill the memory. The first ends calls that are compressed, too late for what comes in one packet.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.per_message_decompression", 0),
)

NO_PROXY = ("grpc.enable_http_proxy", 0)
"""Servers of this machine are asked by no proxy, whatever `http_proxy` says: a private one, for instance."""

UNDECODABLE = "the server sent a reply that cannot be decoded"

ASKING_SECONDS = 5.0
"""For so long the status that was lost is asked for."""

_Reply = TypeVar("_Reply")


class StreamCall(Generic[_Reply]):
    """A call with streams both ways: `async for` gives its replies, and raises subclasses of TimbrelError."""

    def __init__(
        self, transport: Transport, method: Callable[..., Any], requests: AsyncIterator[Any]
    ) -> None:
        """Use `Transport.play` or `Transport.generate_batch`."""
        self._transport = transport
        self._method = method
        self._call = method(requests)
        self._is_cancelled = False

    async def __aiter__(self) -> AsyncIterator[_Reply]:
        try:
            with self._transport.translated(lambda: self._is_cancelled):
                try:
                    async for reply in self._call:
                        yield _decoded(reply)
                except grpc.aio.AioRpcError as error:
                    if error.details() == LOST_STATUS:
                        await self._ask_again()
                    raise
        finally:
            self._call.cancel()

    async def _ask_again(self) -> None:
        """Opens the stream once more and writes nothing: who was refused it is refused again, and hears why.
        Raises gRPC's error."""
        call = self._method()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASKING_SECONDS):
                    with contextlib.suppress(grpc.aio.InternalError):  # it has ended already
                        await call.done_writing()
                    async for _ in call:
                        pass
        finally:
            call.cancel()

    def cancel(self) -> None:
        """Ends it, and every note on it, at once."""
        self._is_cancelled = True
        self._call.cancel()


class Transport:
    """A channel to one server, to be opened and used within one event loop. Tasks may share it.

    Every method takes the seconds allowed for the whole call, None for no bound, and raises the subclasses of
    TimbrelError that the server's status stands for; a task that is cancelled gets asyncio's CancelledError.
    """

    def __init__(
        self,
        address: str,
        token: str | None,
        security: Security | None = None,
        fate: Callable[[], str | None] | None = None,
    ) -> None:
        """
        Args:
            address: HOST:PORT.
            fate: says why the server will not be there again, once it will not.

        Raises:
            InvalidRequestError: a file of `security` is of no use, or the token would travel unencrypted.
            RuntimeError: this process was forked from one that had called a server.
        """
        self._address = address
        self._fate = fate
        self._is_closed = False
        self._security = security or Security()
        self._channel = _open_channel(self._security, address, token)
        self._stub = pb_grpc.SynthesizerStub(self._channel)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def get_model(self, timeout: float | None) -> pb.GetModelResponse:
        reply = await self._unary("GetModel", pb.GetModelRequest(), timeout)
        check_model(model := cast(pb.GetModelResponse, reply))
        return model

    async def get_timbre_map(self, timeout: float | None) -> pb.TimbreMap:
        reply = await self._unary("GetTimbreMap", pb.GetTimbreMapRequest(), timeout)
        check_timbre_map(timbre_map := cast(pb.GetTimbreMapResponse, reply).timbre_map)
        return timbre_map

    async def locate(self, request: pb.LocateRequest, timeout: float | None) -> pb.LocateResponse:
        return cast(pb.LocateResponse, await self._unary("Locate", request, timeout))

    def generate(
        self, request: pb.GenerateRequest, timeout: float | None
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        """The replies of one note; closing the generator early (`aclosing`) cancels the call."""
        return self._stream("Generate", request, timeout)

    def get_file(
        self, name: str, offset: int, timeout: float | None
    ) -> AsyncGenerator[pb.GetFileResponse, None]:
        """A file of the bundle from a byte on; closing the generator early cancels the call."""
        return self._stream("GetFile", pb.GetFileRequest(name=name, offset=offset), timeout)

    def generate_batch(
        self, requests: AsyncIterator[pb.GenerateBatchRequest]
    ) -> StreamCall[pb.GenerateBatchResponse]:
        """Opens a stream, which lasts until `requests` ends and the last of them is answered."""
        return StreamCall(self, partial(self._stub.GenerateBatch, metadata=self._metadata), requests)

    def play(self, requests: AsyncIterator[pb.PlayRequest]) -> StreamCall[pb.PlayResponse]:
        """Opens a stream, which lasts for as long as it is wanted."""
        return StreamCall(self, partial(self._stub.Play, metadata=self._metadata), requests)

    async def why_unavailable(self) -> str | None:
        """Why no connection could be made, where it is TLS that does not fit; else None."""
        return await tls.why_unavailable(self._security, self._address)

    async def close(self) -> None:
        """Ends every call and closes the channel."""
        self._is_closed = True
        await self._channel.close(None)

    @contextlib.contextmanager
    def translated(
        self,
        is_cancelled: Callable[[], bool] = lambda: False,
        name: str = "the call",
        timeout: float | None = None,
    ) -> Iterator[None]:
        """Lets no error of gRPC out.

        Args:
            name, timeout: of the call; the seconds that it was allowed.
            is_cancelled: tells whether the call was cancelled here. One that was not was cut by a server that
                was about to end: gRPC gives such calls up as CANCELLED.
        """
        try:
            yield
        except grpc.RpcError as error:
            translated = self._translate(error, name, timeout)
            if not isinstance(translated, CancelledError):
                raise translated from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Not this task was cancelled, but the call, or the connection was closed: gRPC says it alike.
            translated = CancelledError("the call was cancelled, or its client closed")
        else:
            return
        if self._is_closed or is_cancelled():
            raise translated from None
        raise self._unavailable("it cut the call") from None

    async def _unary(self, name: str, request: object, timeout: float | None) -> object:
        call = getattr(self._stub, name)(request, timeout=timeout, metadata=self._metadata)
        try:
            with self.translated(name=name, timeout=timeout):
                # gRPC would give a cancelled task another CancelledError, which anyio's scopes do not know.
                return _decoded(await asyncio.shield(asyncio.ensure_future(call)))
        finally:
            call.cancel()

    async def _stream(self, name: str, request: object, timeout: float | None) -> AsyncGenerator[Any, None]:
        """Yields the replies; a caller that leaves early cancels the call."""
        call = getattr(self._stub, name)(request, timeout=timeout, metadata=self._metadata)
        try:
            with self.translated(name=name, timeout=timeout):
                async for reply in call:
                    yield _decoded(reply)
        finally:
            call.cancel()

    def _translate(self, error: grpc.RpcError, name: str, timeout: float | None) -> TimbrelError:
        """The error to raise for a call that failed with `error`."""
        failed: Any = error  # a failed call too, which gRPC's annotations do not say
        details = dict(failed.trailing_metadata() or ()).get(DETAILS_KEY, b"")
        code, _ = failed.code().value
        details = details if isinstance(details, bytes) else b""
        translated = error_from_status(code, failed.details() or "", details)
        if isinstance(translated, UnavailableError):
            return self._unavailable(str(translated))
        if isinstance(translated, DeadlineExceededError):
            return DeadlineExceededError(f"{name} was not answered{within_allowed(timeout)}: {translated}")
        if isinstance(translated, AuthenticationError):
            refused = "does not know the token that was sent" if self._metadata else "asks for a token"
            return AuthenticationError(
                f"the server at {self._address} {refused}: set {TOKEN_VARIABLE} (it said: {translated})"
            )
        return translated

    def _unavailable(self, reason: str) -> UnavailableError:
        ended = self._fate() if self._fate is not None else None
        return UnavailableError(ended or f"the server at {self._address} is not available: {reason}")


def _decoded(reply: _Reply | None) -> _Reply:
    """The reply itself. gRPC gives None for one that is no such message; raises ServerError there."""
    if reply is None:
        raise ServerError(UNDECODABLE)
    return reply


def _open_channel(security: Security, address: str, token: str | None) -> grpc.aio.Channel:
    """Opens a channel for the running event loop, encrypted as `security` says."""
    about_to_connect()
    is_loopback = parse_address(address).is_loopback
    options = (*CHANNEL_OPTIONS, NO_PROXY) if is_loopback else CHANNEL_OPTIONS
    if security.is_encrypted:
        credentials = grpc.ssl_channel_credentials(*tls.read_pem(security))
        return grpc.aio.secure_channel(address, credentials, options)
    if token and not security.insecure and not is_loopback:
        raise refusal(
            "token",
            f"it would travel unencrypted to {address}: name the server's authority"
            f" ({CA_VARIABLE}), or say that the network can be trusted ({INSECURE_VARIABLE}=1)",
        )
    return grpc.aio.insecure_channel(address, options)
