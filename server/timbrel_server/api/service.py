"""timbrel.v1.Synthesizer over the bundles on the shelf and their engines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.access.caller import current_caller
from timbrel_server.api.batch import Batch, max_in_flight
from timbrel_server.api.convert import (
    live_request_from_pb,
    locate_request_from_pb,
    location_to_pb,
    note_request_from_pb,
    parse,
    sampling_to_pb,
)
from timbrel_server.api.item_stream import ItemStream
from timbrel_server.api.note_replies import note_replies
from timbrel_server.api.note_stream import NoteStream
from timbrel_server.api.play import MAX_LIVE_NOTES, PlaySession, Replies
from timbrel_server.api.sending import Sender
from timbrel_server.api.whole_note import whole_note
from timbrel_server.engine.origin import Origin
from timbrel_server.engine.patience import patiently
from timbrel_server.engine.request import DEFAULT_SAMPLING
from timbrel_server.errors import InvalidRequestError, NotFoundError, shortened
from timbrel_server.own_version import own_version
from timbrel_server.serving.served_bundle import ServedBundle
from timbrel_server.serving.shelf import Shelf
from timbrel_server.wire.grpc_types import Context, GenericHandler

SERVICE_NAME: str = pb.DESCRIPTOR.services_by_name["Synthesizer"].full_name

FILE_CHUNK_BYTES = 1 << 20
"""Of a GetFile reply; gRPC refuses messages above 4 MiB by default."""


class SynthesizerService:
    """Its methods. They take undecoded bodies, so that bytes that are no message get a proper status."""

    def __init__(self, shelf: Shelf, in_flight: int | None = None) -> None:
        """
        Args:
            in_flight: as of `max_in_flight`.
        """
        self._shelf = shelf
        self._in_flight = in_flight
        self._closing = asyncio.Event()

    def drain(self) -> None:
        """Has the streams that could go on for ever end with what sounds on them."""
        self._closing.set()

    def handler(self) -> GenericHandler:
        """What to register with a gRPC server."""
        methods = {
            "Generate": grpc.unary_stream_rpc_method_handler(
                self.generate, response_serializer=pb.GenerateResponse.SerializeToString
            ),
            "GenerateBatch": grpc.stream_stream_rpc_method_handler(
                self.generate_batch, response_serializer=pb.GenerateBatchResponse.SerializeToString
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
        served = self._shelf.find(message.bundle, message.bundle_hash)
        request = note_request_from_pb(message, served.manifest)
        engine, origin = served.require_engine(), Origin(current_caller())
        with served.in_hand(), NoteStream(engine, request, origin, context.time_remaining()) as note:
            await context.send_initial_metadata(())  # tells the caller that the request is accepted
            async for reply in note_replies(note, message.audio, served.manifest, served.decoding):
                yield reply

    async def generate_batch(self, bodies: AsyncIterator[bytes], context: Context) -> None:
        """Writes many notes, and sends each as soon as it is finished."""
        self._shelf.find().require_engine()
        await context.send_initial_metadata(())
        origin = Origin(current_caller(), call=object(), patient=True)
        batch = Batch(lambda message: self._render(message, origin), Sender(context))
        await ItemStream(batch.begin, self._max_in_flight()).run(bodies, self._closing)

    async def _render(self, message: pb.GenerateRequest, origin: Origin) -> pb.GenerateResponse:
        """A whole note of a batch."""
        served = self._shelf.find(message.bundle, message.bundle_hash)
        request = note_request_from_pb(message, served.manifest)
        engine = served.require_engine()
        # Sound is decoded while the note goes on being written.
        whole = message.audio == pb.AUDIO_FORMAT_UNSPECIFIED

        def begin() -> NoteStream:
            return NoteStream(engine, request, origin, whole=whole)

        with served.in_hand(), await patiently(begin) as note:
            return await whole_note(
                note_replies(note, message.audio, served.manifest, served.decoding, patient=True)
            )

    def _max_in_flight(self) -> int:
        """One number for all bundles: items of one stream may name different ones."""
        engines = [served.engine for served in self._shelf if served.engine is not None]
        return max_in_flight(max(engine.n_slots for engine in engines), self._in_flight)

    async def play(self, bodies: AsyncIterator[bytes], context: Context) -> None:
        """Plays many notes on one stream, whose keys go up while they sound."""
        self._shelf.find().require_engine()
        await context.send_initial_metadata(())
        origin = Origin(current_caller(), call=object())
        session = PlaySession(lambda message: self._begin_live(message, origin), Sender(context))
        await session.run(bodies, self._closing)

    def _begin_live(self, message: pb.NoteOn, origin: Origin) -> tuple[NoteStream, Replies]:
        served = self._shelf.find(message.note.bundle, message.note.bundle_hash)
        request = live_request_from_pb(message, served.manifest)
        with contextlib.ExitStack() as until_closed:
            until_closed.enter_context(served.in_hand())
            note = NoteStream(served.require_engine(), request, origin)
            note.on_close = until_closed.pop_all().close
        return note, note_replies(note, message.note.audio, served.manifest, served.decoding)

    async def locate(self, body: bytes, context: Context) -> pb.LocateResponse:
        """Says where on the timbre map a recording lies, and what lies around."""
        message = parse(pb.LocateRequest, body)
        served = self._shelf.find(message.bundle, message.bundle_hash)
        request = locate_request_from_pb(message)
        served.require_engine()  # its start wants every core
        reply = location_to_pb(await served.locator.locate(request), served.bundle.timbre_map)
        reply.bundle_hash = served.manifest.bundle_hash
        return reply

    async def get_model(self, body: bytes, context: Context) -> pb.GetModelResponse:
        """Describes the bundle and the engine that runs it."""
        served = self._shelf.find(parse(pb.GetModelRequest, body).bundle)
        return pb.GetModelResponse(manifest=served.manifest, engine=self._engine_info(served))

    def _engine_info(self, served: ServedBundle) -> pb.EngineInfo:
        sessions = served.sessions
        return pb.EngineInfo(
            provider=sessions.provider,
            precision=sessions.precision,
            n_slots=served.require_engine().n_slots,
            server_version=own_version(),
            default_sampling=sampling_to_pb(DEFAULT_SAMPLING),
            decoder_graph=sessions.decoder_graph,
            max_live_notes=MAX_LIVE_NOTES,
            max_in_flight=self._max_in_flight(),
        )

    async def get_timbre_map(self, body: bytes, context: Context) -> pb.GetTimbreMapResponse:
        """Returns the named points of the timbre map."""
        served = self._shelf.find(parse(pb.GetTimbreMapRequest, body).bundle)
        return pb.GetTimbreMapResponse(timbre_map=served.bundle.timbre_map)

    async def get_file(self, body: bytes, context: Context) -> AsyncIterator[pb.GetFileResponse]:
        """Streams a client-fetchable file from an offset on."""
        message = parse(pb.GetFileRequest, body)
        served = self._shelf.find(message.bundle)
        files = {file.name: file for file in served.manifest.files if file.client_fetchable}
        file = files.get(message.name)
        if file is None:
            raise NotFoundError(
                f"there is no file {shortened(message.name)!r} to fetch;"
                f" there are: {', '.join(sorted(files))}"
            )
        if message.offset > file.size:
            raise InvalidRequestError(
                [("offset", f"{message.offset} is beyond the end: {file.name} has {file.size} bytes")]
            )
        total_size: int | None = file.size
        async for data in _read_chunks(served.bundle.path / file.name, message.offset):
            yield pb.GetFileResponse(data=data, total_size=total_size)
            total_size = None


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
