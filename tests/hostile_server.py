"""A server of whatever bytes a test wants, on a real port: what it is not told to spoil it answers well."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.request_fields import DEFAULT_SAMPLING
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

SERVICE = "/timbrel.v1.Synthesizer/"
N_FRAMES = 12

Answer = Callable[[Iterator[bytes]], Iterable[bytes]]
"""The caller's messages -> the server's, either as bytes."""


class HostileServer(grpc.GenericRpcHandler):
    """Answers by `answers`, method by method, from the messages that its other fields hold."""

    def __init__(self, bundle: Path) -> None:
        self.bundle = Bundle.open(bundle)
        engine = pb.EngineInfo(
            provider="CPUExecutionProvider",
            precision="fp32",
            n_slots=4,
            max_live_notes=8,
            default_sampling=DEFAULT_SAMPLING.to_pb(),
        )
        self.model = pb.GetModelResponse(manifest=self.bundle.manifest, engine=engine)
        self.map = pb.GetTimbreMapResponse(timbre_map=self.bundle.timbre_map)
        self.located = pb.LocateResponse(
            timbre=pb.Timbre(x=0.1, y=0.2), bundle_hash=self.bundle.manifest.bundle_hash
        )
        self.located.neighbours.add(point=self.map.timbre_map.points[0], distance=0.5)
        self.answers: dict[str, Answer] = {
            "GetModel": lambda _: [self.model.SerializeToString()],
            "GetTimbreMap": lambda _: [self.map.SerializeToString()],
            "Locate": lambda _: [self.located.SerializeToString()],
            "GetFile": self._file,
            "Generate": lambda _: [each.SerializeToString() for each in self.note()],
            "GenerateBatch": self._batch,
            "Play": self._play,
        }
        self.address = ""

    def note(self) -> list[pb.GenerateResponse]:
        """A note in two replies."""
        manifest = self.model.manifest
        header = pb.GenerateHeader(seed=1, bundle_hash=manifest.bundle_hash, codec_id=manifest.codec.id)
        codes = np.tile(np.array(manifest.codec.silence, dtype="<u2"), (N_FRAMES, 1))
        sent = pb.Codes(data=codes.tobytes(), n_frames=N_FRAMES, n_codebooks=codes.shape[1])
        return [
            pb.GenerateResponse(header=header),
            pb.GenerateResponse(codes=sent, finish_reason=pb.FINISH_REASON_EOS),
        ]

    def whole_note(self) -> pb.GenerateResponse:
        """The same note in one."""
        first, last = self.note()
        first.MergeFrom(last)
        return first

    def service(self, details: Any) -> grpc.RpcMethodHandler | None:
        # On the wire every kind of call is a stream of messages each way.
        name = details.method.removeprefix(SERVICE)
        return grpc.stream_stream_rpc_method_handler(lambda requests, _: iter(self.answers[name](requests)))

    def _file(self, requests: Iterator[bytes]) -> Iterator[bytes]:
        request = pb.GetFileRequest.FromString(next(requests))
        data = self.bundle.file(request.name).read_bytes()
        for start in range(request.offset, len(data), 1 << 20):
            yield pb.GetFileResponse(
                data=data[start : start + (1 << 20)], total_size=len(data)
            ).SerializeToString()

    def _batch(self, requests: Iterator[bytes]) -> Iterator[bytes]:
        for request in requests:
            number = pb.GenerateBatchRequest.FromString(request).id
            yield pb.GenerateBatchResponse(id=number, note=self.whole_note()).SerializeToString()

    def _play(self, requests: Iterator[bytes]) -> Iterator[bytes]:
        for each in map(pb.PlayRequest.FromString, requests):
            if each.HasField("note_on"):
                yield pb.PlayResponse(id=each.id, reply=self.whole_note()).SerializeToString()


@contextlib.contextmanager
def serving(bundle: Path, compression: grpc.Compression | None = None) -> Iterator[HostileServer]:
    """Has one answer calls while the block runs."""
    hostile = HostileServer(bundle)
    server = grpc.server(
        futures.ThreadPoolExecutor(8),
        [hostile],
        options=[("grpc.max_send_message_length", -1)],
        compression=compression,
    )
    hostile.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield hostile
    finally:
        server.stop(None).wait()
