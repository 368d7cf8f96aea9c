"""A timbrel server that answers as the test tells it to, on a real port: faults that are seldom seen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from timbrel_bundle.layout import FORMAT_VERSION
from timbrel_bundle.manifest import bundle_hash
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

N_CODEBOOKS = 3
CODEBOOK_SIZE = 16
CHUNK_BYTES = 1000

CODEC_FILES = {"codec_decoder.onnx": b"graph" * 700, "codec.safetensors": bytes(range(256)) * 12}

Handler = Callable[[Any, grpc.ServicerContext], Any]


def make_manifest(files: dict[str, bytes]) -> pb.Manifest:
    described = [
        pb.BundleFile(
            name=name, sha256=hashlib.sha256(data).hexdigest(), size=len(data), client_fetchable=True
        )
        for name, data in files.items()
    ]
    return pb.Manifest(
        format_version=FORMAT_VERSION,
        name="scripted",
        bundle_hash=bundle_hash(described),
        codec=pb.CodecSpec(
            id="timbrel-notes-2",
            sample_rate=8000,
            hop_length=100,
            n_codebooks=N_CODEBOOKS,
            codebook_size=CODEBOOK_SIZE,
            silence=[0] * N_CODEBOOKS,
        ),
        model=pb.ModelSpec(
            n_kv_heads=1,
            head_dim=8,
            n_decoder_layers=1,
            vocabulary_size=CODEBOOK_SIZE + 2,
            bos_id=CODEBOOK_SIZE,
            eos_id=CODEBOOK_SIZE + 1,
            max_frames=40,
            max_positions=44,
            n_parameters=1234,
        ),
        ranges=pb.RequestRanges(
            pitch_min=36, pitch_max=96, velocity_min=1, velocity_max=127, seconds_min=0.05, seconds_max=4.0
        ),
        files=described,
    )


def codes_message(codes: np.ndarray[Any, np.dtype[np.uint16]]) -> pb.Codes:
    """[frames, codebooks] as it travels."""
    return pb.Codes(data=codes.astype("<u2").tobytes(), n_frames=codes.shape[0], n_codebooks=codes.shape[1])


@dataclass
class ScriptedServer(pb_grpc.SynthesizerServicer):
    """Answers well unless `fault` is set, and remembers what it was asked."""

    files: dict[str, bytes] = field(default_factory=lambda: dict(CODEC_FILES))
    fault: Callable[[grpc.ServicerContext], None] | None = None
    """Called first in every Generate: aborts the call, or does not."""
    cut_file_after: int | None = None
    """The connection breaks after so many bytes of a file, once."""
    requests: list[pb.GenerateRequest] = field(default_factory=list)
    file_requests: list[pb.GetFileRequest] = field(default_factory=list)
    metadata: list[tuple[str, Any]] = field(default_factory=list)
    address: str = ""

    def __post_init__(self) -> None:
        self.manifest = make_manifest(self.files)

    def Generate(
        self, request: pb.GenerateRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.GenerateResponse]:
        self.requests.append(request)
        self.metadata.extend(context.invocation_metadata())
        if self.fault is not None:
            self.fault(context)
        codes = np.arange(7 * N_CODEBOOKS, dtype=np.uint16).reshape(7, N_CODEBOOKS) % CODEBOOK_SIZE
        seed = request.seed if request.HasField("seed") else 77
        header = pb.GenerateHeader(
            seed=seed, bundle_hash=self.manifest.bundle_hash, codec_id="timbrel-notes-2"
        )
        yield pb.GenerateResponse(header=header)
        yield pb.GenerateResponse(codes=codes_message(codes[:4]))
        yield pb.GenerateResponse(codes=codes_message(codes[4:]), finish_reason=pb.FINISH_REASON_EOS)

    def GetModel(self, request: pb.GetModelRequest, context: grpc.ServicerContext) -> pb.GetModelResponse:
        engine = pb.EngineInfo(provider="CPUExecutionProvider", precision="fp32", n_slots=4)
        return pb.GetModelResponse(manifest=self.manifest, engine=engine)

    def GetTimbreMap(
        self, request: pb.GetTimbreMapRequest, context: grpc.ServicerContext
    ) -> pb.GetTimbreMapResponse:
        points = [
            pb.TimbrePoint(instrument="Violin", family="Strings", x=0.5, y=-0.25, pitch_min=55, pitch_max=96),
            pb.TimbrePoint(instrument="Flute", family="Winds", x=-0.5, y=0.0, pitch_min=60, pitch_max=96),
        ]
        return pb.GetTimbreMapResponse(timbre_map=pb.TimbreMap(points=points))

    def GetFile(
        self, request: pb.GetFileRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.GetFileResponse]:
        self.file_requests.append(request)
        data = self.files[request.name]
        for start in range(request.offset, len(data), CHUNK_BYTES):
            if self.cut_file_after is not None and start >= self.cut_file_after:
                self.cut_file_after = None
                context.abort(grpc.StatusCode.UNAVAILABLE, "cable pulled")
            yield pb.GetFileResponse(data=data[start : start + CHUNK_BYTES], total_size=len(data))


@pytest.fixture
def manifest_of() -> Callable[[dict[str, bytes]], pb.Manifest]:
    """Makes a manifest that describes these files: name -> bytes."""
    return make_manifest


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    """A running scripted server."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    servicer = ScriptedServer()
    pb_grpc.add_SynthesizerServicer_to_server(servicer, server)
    servicer.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield servicer
    server.stop(None).wait()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, and no server or token from the environment."""
    for name in ("TIMBREL_SERVER", "TIMBREL_TOKEN", "TIMBREL_BUNDLE", "TIMBREL_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "cache"
    monkeypatch.setenv("TIMBREL_CACHE", str(folder))
    return folder
