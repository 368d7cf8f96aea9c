"""timbrel.v1.Synthesizer over one bundle and its engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import grpc

from timbrel_bundle.bundle import Bundle
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.codec_decoding import CodecDecoding
from timbrel_server.convert import (
    live_request_from_pb,
    locate_request_from_pb,
    location_to_pb,
    note_request_from_pb,
    parse,
    sampling_to_pb,
)
from timbrel_server.engine_pool import EnginePool
from timbrel_server.errors import BundleMismatchError, InvalidRequestError, NotFoundError, UnavailableError
from timbrel_server.grpc_types import Context, GenericHandler
from timbrel_server.locator import Locator
from timbrel_server.note_replies import note_replies
from timbrel_server.note_stream import NoteStream
from timbrel_server.play import MAX_LIVE_NOTES, PlaySession
from timbrel_server.request import DEFAULT_SAMPLING
from timbrel_server.sessions import DecoderSessions

SERVICE_NAME: str = pb.DESCRIPTOR.services_by_name["Synthesizer"].full_name

FILE_CHUNK_BYTES = 1 << 20
"""Of a GetFile reply; gRPC refuses messages above 4 MiB by default."""


class SynthesizerService:
    """Its methods. They take undecoded bodies, so that bytes that are no message get a proper status."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._manifest = bundle.manifest
        self._files = {file.name: file for file in bundle.manifest.files if file.client_fetchable}
        self._locator = Locator(bundle)
        self._decoding = CodecDecoding(bundle)
        self._closing = asyncio.Event()
        self._engine: EnginePool | None = None
        self._engine_info = pb.EngineInfo()

    def attach(self, engine: EnginePool, sessions: DecoderSessions) -> None:
        """Gives the service its engine. Calls that need one are refused until then."""
        self._engine_info = pb.EngineInfo(
            provider=sessions.provider,
            precision=sessions.precision,
            n_slots=engine.n_slots,
            server_version=_own_version(),
            default_sampling=sampling_to_pb(DEFAULT_SAMPLING),
            decoder_graph=sessions.decoder_graph,
            max_live_notes=MAX_LIVE_NOTES,
        )
        self._engine = engine

    def drain(self) -> None:
        """Has the streams that could go on for ever end with what sounds on them."""
        self._closing.set()

    async def close(self) -> None:
        """Ends what runs beside the engine."""
        await asyncio.to_thread(self._locator.close)
        await asyncio.to_thread(self._decoding.close)

    def handler(self) -> GenericHandler:
        """What to register with a gRPC server."""
        methods = {
            "Generate": grpc.unary_stream_rpc_method_handler(
                self.generate, response_serializer=pb.GenerateResponse.SerializeToString
            ),
            "Play": grpc.stream_stream_rpc_method_handler(
                self.play, response_serializer=pb.PlayResponse.SerializeToString
            ),
            "Locate": grpc.unary_unary_rpc_method_handler(
                self.locate, response_serializer=pb.LocateResponse.SerializeToString
            ),
            "GetModel": grpc.unary_unary_rpc_method_handler(
                self.get_model, response_serializer=pb.GetModelResponse.SerializeToString
            ),
            "GetTimbreMap": grpc.unary_unary_rpc_method_handler(
                self.get_timbre_map, response_serializer=pb.GetTimbreMapResponse.SerializeToString
            ),
            "GetFile": grpc.unary_stream_rpc_method_handler(
                self.get_file, response_serializer=pb.GetFileResponse.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE_NAME, methods)

    async def generate(self, body: bytes, context: Context) -> AsyncIterator[pb.GenerateResponse]:
        """Writes one note and streams its codes or its audio as frames complete."""
        message = parse(pb.GenerateRequest, body)
        self._check_bundle(message.bundle, message.bundle_hash)
        request = note_request_from_pb(message, self._manifest)
        with NoteStream(self._require_engine(), request) as note:
            await context.send_initial_metadata(())  # tells the caller that the request is accepted
            async for reply in self._replies(note, message):
                yield reply

    async def play(self, bodies: AsyncIterator[bytes], context: Context) -> None:
        """Plays many notes on one stream, whose keys go up while they sound."""
        self._require_engine()
        await context.send_initial_metadata(())
        await PlaySession(self._begin_live, self._replies, context.write).run(bodies, self._closing)

    def _begin_live(self, message: pb.NoteOn) -> NoteStream:
        self._check_bundle(message.note.bundle, message.note.bundle_hash)
        return NoteStream(self._require_engine(), live_request_from_pb(message, self._manifest))

    def _replies(self, note: NoteStream, message: pb.GenerateRequest) -> AsyncIterator[pb.GenerateResponse]:
        return note_replies(note, message.audio, self._manifest, self._decoding)

    async def locate(self, body: bytes, context: Context) -> pb.LocateResponse:
        """Says where on the timbre map a recording lies, and what lies around."""
        message = parse(pb.LocateRequest, body)
        self._check_bundle(message.bundle, message.bundle_hash)
        request = locate_request_from_pb(message)
        self._require_engine()  # its start wants every core
        reply = location_to_pb(await self._locator.locate(request), self._bundle.timbre_map)
        reply.bundle_hash = self._manifest.bundle_hash
        return reply

    async def get_model(self, body: bytes, context: Context) -> pb.GetModelResponse:
        """Describes the bundle and the engine that runs it."""
        self._check_bundle(parse(pb.GetModelRequest, body).bundle)
        self._require_engine()
        return pb.GetModelResponse(manifest=self._manifest, engine=self._engine_info)

    async def get_timbre_map(self, body: bytes, context: Context) -> pb.GetTimbreMapResponse:
        """Returns the named points of the timbre map."""
        self._check_bundle(parse(pb.GetTimbreMapRequest, body).bundle)
        return pb.GetTimbreMapResponse(timbre_map=self._bundle.timbre_map)

    async def get_file(self, body: bytes, context: Context) -> AsyncIterator[pb.GetFileResponse]:
        """Streams a client-fetchable file from an offset on."""
        message = parse(pb.GetFileRequest, body)
        self._check_bundle(message.bundle)
        file = self._files.get(message.name)
        if file is None:
            raise NotFoundError(
                f"there is no file {message.name!r} to fetch; there are: {', '.join(sorted(self._files))}"
            )
        if message.offset > file.size:
            raise InvalidRequestError(
                [("offset", f"{message.offset} is beyond the end: {file.name} has {file.size} bytes")]
            )
        total_size: int | None = file.size
        async for data in _read_chunks(self._bundle.path / file.name, message.offset):
            yield pb.GetFileResponse(data=data, total_size=total_size)
            total_size = None

    def _check_bundle(self, name: str, bundle_hash: str = "") -> None:
        served = self._manifest
        if name not in ("", served.name):
            raise NotFoundError(f"there is no bundle {name!r}; {served.name!r} is being served")
        if bundle_hash not in ("", served.bundle_hash):
            raise BundleMismatchError(expected=bundle_hash, served=served.bundle_hash)

    def _require_engine(self) -> EnginePool:
        if self._engine is None:
            raise UnavailableError("the server is starting")
        return self._engine


async def _read_chunks(path: Path, offset: int) -> AsyncIterator[bytes]:
    """A file's bytes from the offset on: at least one chunk, which is empty at the file's end."""
    with await asyncio.to_thread(path.open, "rb") as file:
        file.seek(offset)
        data = await asyncio.to_thread(file.read, FILE_CHUNK_BYTES)
        yield data
        while len(data) == FILE_CHUNK_BYTES and (
            data := await asyncio.to_thread(file.read, FILE_CHUNK_BYTES)
        ):
            yield data


def _own_version() -> str:
    try:
        return version("timbrel")
    except PackageNotFoundError:
        return "unknown"
