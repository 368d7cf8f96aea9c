"""The methods of timbrel.v1.Synthesizer, over the registered bundles and their engines."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator

from timbrel_bundle.request_fields import DEFAULT_SAMPLING
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server import own_version
from timbrel_server.engine.request import ClientKey
from timbrel_server.errors import InvalidRequestError, NotFoundError, shortened
from timbrel_server.limits import Limits, Quota
from timbrel_server.rpc.call_context import current_account
from timbrel_server.rpc.handlers import LARGEST_REQUEST_BYTES, Context, Sender, parse
from timbrel_server.served_bundles.served_bundle import BundleRegistry, ServedBundle
from timbrel_server.synthesizer import convert
from timbrel_server.synthesizer.note_stream import NoteStream
from timbrel_server.synthesizer.play import MAX_LIVE_NOTES, PlaySession
from timbrel_server.synthesizer.streams import BatchItems, ItemStream, max_in_flight

FILE_CHUNK_BYTES = 64 << 10
"""The data of a GetFile reply, at most: what is kept for each caller who does not read."""


TURN_SECONDS = 0.005
"""A piece that its caller reads is on its way within this time."""


class SynthesizerService:
    """Answers every call of the service: `add_service` finds a method here for each method there.

    They take undecoded bodies, so that bytes that are no message get a proper status.
    """

    def __init__(self, registry: BundleRegistry, limits: Limits, in_flight: int | None = None) -> None:
        """
        Args:
            in_flight: as of `max_in_flight`.
        """
        self._registry = registry
        self._limits = limits
        self._in_flight = in_flight
        self._turns = Quota("pieces of files", 1, 1.0)
        self._closing = asyncio.Event()

    def drain(self) -> None:
        """Has the streams that could go on for ever end with what sounds on them."""
        self._closing.set()

    async def generate(self, body: bytes, context: Context) -> None:
        """Writes one note and sends its codes or its audio as frames complete."""
        message = parse(pb.GenerateRequest, body)
        served = self._registry.find(message.bundle, message.bundle_hash)
        request = convert.note_request_from_pb(message, served.manifest)
        client, seconds_left = ClientKey(current_account()), context.time_remaining()
        audio_bytes, audio_format = self._limits.audio_bytes, message.audio
        with NoteStream(
            served, request, client, audio_bytes, seconds_left, audio_format=audio_format
        ) as note:
            await context.send_initial_metadata(())  # tells the caller that the request is accepted
            await note.send(context.write)

    async def generate_batch(self, bodies: AsyncIterator[bytes], context: Context) -> None:
        """Writes many notes, and sends each as soon as it is finished."""
        self._registry.find().require_engine()
        await context.send_initial_metadata(())
        client = ClientKey(current_account(), call=object(), patient=True)
        items = BatchItems(functools.partial(self._render, client=client), Sender(context))
        in_flight = max_in_flight(self._registry, self._in_flight)
        await ItemStream(items.begin, in_flight, self._limits, client.caller).run(bodies, self._closing)

    @contextlib.asynccontextmanager
    async def _render(
        self, message: pb.GenerateRequest, whole: pb.GenerateResponse, client: ClientKey
    ) -> AsyncIterator[None]:
        """Writes a whole note of a batch."""
        served = self._registry.find(message.bundle, message.bundle_hash)
        request = convert.note_request_from_pb(message, served.manifest)
        audio_bytes, audio_format = self._limits.audio_bytes, message.audio
        with NoteStream(served, request, client, audio_bytes, audio_format=audio_format, whole=True) as note:
            await note.whole(whole)
            yield

    async def play(self, bodies: AsyncIterator[bytes], context: Context) -> None:
        """Plays many notes on one stream, whose keys go up while they sound."""
        self._registry.find().require_engine()
        await context.send_initial_metadata(())
        client = ClientKey(current_account(), call=object())
        session = PlaySession(lambda message: self._begin_live(message, client), Sender(context))
        await session.run(bodies, self._closing)

    def _begin_live(self, message: pb.NoteOn, client: ClientKey) -> NoteStream:
        served = self._registry.find(message.note.bundle, message.note.bundle_hash)
        request = convert.live_request_from_pb(message, served.manifest, served.max_seconds)
        return NoteStream(served, request, client, self._limits.audio_bytes, audio_format=message.note.audio)

    async def locate(self, body: bytes, context: Context) -> pb.LocateResponse:
        """Says where on the timbre map a recording lies, and what lies around."""
        message = parse(pb.LocateRequest, body, convert.MAX_AUDIO_BYTES + LARGEST_REQUEST_BYTES)
        served = self._registry.find(message.bundle, message.bundle_hash)
        audio = convert.recording_from_pb(message)
        served.require_engine()  # its start wants every core
        with served.in_hand():
            heard = await served.locator.locate(audio, message.sample_rate, current_account())
        reply = convert.location_to_pb(heard, served.bundle.timbre_map)
        reply.bundle_hash = served.manifest.bundle_hash
        return reply

    async def get_model(self, body: bytes, context: Context) -> pb.GetModelResponse:
        """Describes the bundle and the engine that runs it."""
        served = self._registry.find(parse(pb.GetModelRequest, body).bundle)
        return pb.GetModelResponse(manifest=served.manifest, engine=self._engine_info(served))

    def _engine_info(self, served: ServedBundle) -> pb.EngineInfo:
        sessions = served.sessions
        return pb.EngineInfo(
            provider=sessions.provider,
            precision=sessions.precision,
            n_slots=served.require_engine().n_slots,
            server_version=own_version(),
            default_sampling=DEFAULT_SAMPLING.to_pb(),
            decoder_graph=sessions.decoder_graph,
            max_live_notes=MAX_LIVE_NOTES,
            max_in_flight=max_in_flight(self._registry, self._in_flight),
        )

    async def get_timbre_map(self, body: bytes, context: Context) -> pb.GetTimbreMapResponse:
        """Returns the named points of the timbre map."""
        served = self._registry.find(parse(pb.GetTimbreMapRequest, body).bundle)
        return pb.GetTimbreMapResponse(timbre_map=served.bundle.timbre_map)

    async def get_file(self, body: bytes, context: Context) -> None:
        """Sends a client-fetchable file from an offset on."""
        message = parse(pb.GetFileRequest, body)
        served = self._registry.find(message.bundle)
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
        offset = message.offset
        with served.in_hand():
            while total_size is not None or offset < file.size:
                data = await served.files.read_soon(file.name, offset, FILE_CHUNK_BYTES)
                reply = pb.GetFileResponse(data=data, total_size=total_size)
                await self._write_in_turn(reply, context)
                if not data:
                    break  # it is at its end
                offset, total_size = offset + len(data), None

    async def _write_in_turn(self, reply: pb.GetFileResponse, context: Context) -> None:
        """Callers take turns, one piece at a time. Who does not read misses the rest of it: nobody waits."""
        with await self._turns.wait(current_account()):
            writing = asyncio.ensure_future(context.write(reply))
            try:
                await asyncio.wait((writing,), timeout=TURN_SECONDS)
            except asyncio.CancelledError:
                writing.cancel()
                raise
        await writing
