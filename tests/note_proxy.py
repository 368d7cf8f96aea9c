"""A gRPC proxy before a real server that writes down every note that is asked for, and can go away."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple

import grpc
from waiting import wait_for

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

SERVICE = "/timbrel.v1.Synthesizer/"
BATCH = "GenerateBatch"
KINDS = {
    "GetModel": "unary_unary",
    "GetTimbreMap": "unary_unary",
    "GetFile": "unary_stream",
    BATCH: "stream_stream",
}
"""Methods that a library needs, and how they are called."""


class AskedNote(NamedTuple):
    """What tells the notes of a job apart."""

    timbre: tuple[float, float]
    pitch: int
    velocity: int
    seed: int


class NoteProxy:
    """Passes everything on, as a context manager; `asked` and `answered` hold the notes in turn."""

    def __init__(self, upstream: str, port: int = 0) -> None:
        self.asked: list[AskedNote] = []
        self.answered: list[AskedNote] = []
        self.may_answer: Callable[[], bool] = lambda: True
        """Whether the next note is passed on to who asked for it: until then it waits."""
        self._lock = threading.Lock()
        self._n_forgotten = 0
        self._channel = grpc.insecure_channel(upstream)
        self._server = grpc.server(ThreadPoolExecutor(32))
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def forget(self) -> None:
        """Begins `asked` anew, without what the calls of now still ask for: one of a caller that was killed
        may have brought notes that have not been written down yet."""
        with self._lock:
            self.asked.clear()
            self._n_forgotten += 1

    def close(self) -> None:
        """Breaks off every call."""
        self.may_answer = lambda: True
        self._server.stop(None).wait()
        self._channel.close()

    def __enter__(self) -> NoteProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def handle(self, method: str, request: Any, context: grpc.ServicerContext) -> Any:
        """Calls the server in the caller's place; the call ends when the caller goes."""
        kind = KINDS[method]
        notes: dict[int, AskedNote] = {}
        sent = self._write_down(request, notes, self._n_forgotten) if method == BATCH else request
        metadata = tuple(context.invocation_metadata())
        try:
            if kind == "unary_unary":
                return getattr(self._channel, kind)(SERVICE + method)(sent, metadata=metadata)
            call = getattr(self._channel, kind)(SERVICE + method)(sent, metadata=metadata)
            context.add_callback(call.cancel)
            return self._replies(call, notes, context)
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())

    def _write_down(
        self, requests: Iterator[bytes], notes: dict[int, AskedNote], n_forgotten: int
    ) -> Iterator[bytes]:
        for message in _until_gone(requests):
            item = pb.GenerateBatchRequest.FromString(message)
            note = item.note
            asked = AskedNote((note.timbre.x, note.timbre.y), note.pitch, note.velocity, note.seed)
            with self._lock:
                notes[item.id] = asked
                if n_forgotten == self._n_forgotten:
                    self.asked.append(asked)
            yield message

    def _replies(
        self, call: Any, notes: dict[int, AskedNote], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        try:
            for message in call:
                if notes:
                    wait_for(self.may_answer, "leave to answer")
                    item = pb.GenerateBatchResponse.FromString(message)
                    with self._lock:
                        self.answered.append(notes[item.id])
                yield message
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())


def _until_gone(requests: Iterator[bytes]) -> Iterator[bytes]:
    with contextlib.suppress(grpc.RpcError):
        yield from requests


class _Handlers(grpc.GenericRpcHandler):
    """Messages stay bytes."""

    def __init__(self, proxy: NoteProxy) -> None:
        self._proxy = proxy

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        method = details.method.removeprefix(SERVICE)
        if method not in KINDS:
            return None
        make = getattr(grpc, f"{KINDS[method]}_rpc_method_handler")
        return make(lambda request, context: self._proxy.handle(method, request, context))
