"""The methods of inference.GRPCInferenceService, over the registered bundles: each is a model."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from timbrel_bundle.codec import Audio
from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server import own_version
from timbrel_server.engine.request import ClientKey, NoteRequest
from timbrel_server.errors import InvalidRequestError, NotFoundError, presentable, shortened
from timbrel_server.limits import Limits, Quota
from timbrel_server.open_inference import tensors
from timbrel_server.rpc.call_context import current_account
from timbrel_server.rpc.handlers import LARGEST_REQUEST_BYTES, Context, Sender, parse
from timbrel_server.served_bundles.served_bundle import BundleRegistry, ServedBundle
from timbrel_server.synthesizer.note_stream import NoteStream, check_room, sound_size
from timbrel_server.synthesizer.streams import Item, ItemStream, max_in_flight

MODEL_VERSION = "1"
FINAL = "triton_final_response"
PLATFORM = "timbrel"

BYTES_PER_NOTE = 256
"""Of a request, at most: ten bytes for each number."""

LARGE_REPLY_BYTES = 256 << 10
"""To put more than this together takes longer than to wake a thread, which does it beside other calls."""


class InferenceService:
    """Answers every call of the service: `add_service` finds a method here for each method there.

    They take undecoded bodies, so that bytes that are no message get a proper status.
    """

    def __init__(
        self, registry: BundleRegistry, limits: Limits, max_batch: int, in_flight: int | None = None
    ) -> None:
        """
        Args:
            max_batch: notes of one request.
            in_flight: as of `max_in_flight`.
        """
        self._registry = registry
        self._limits = limits
        self._max_batch = max_batch
        self._most_bytes = LARGEST_REQUEST_BYTES + max_batch * BYTES_PER_NOTE
        self._in_flight = in_flight
        self._closing = asyncio.Event()

    def drain(self) -> None:
        """Has the streams end with what is being written on them."""
        self._closing.set()

    async def server_live(self, body: bytes, context: Context) -> oip.ServerLiveResponse:
        """Says that it is alive: whoever can answer is."""
        parse(oip.ServerLiveRequest, body)
        return oip.ServerLiveResponse(live=True)

    async def server_ready(self, body: bytes, context: Context) -> oip.ServerReadyResponse:
        """Says whether every bundle takes requests."""
        parse(oip.ServerReadyRequest, body)
        return oip.ServerReadyResponse(ready=all(_is_ready(served) for served in self._registry))

    async def model_ready(self, body: bytes, context: Context) -> oip.ModelReadyResponse:
        """Says whether one bundle does."""
        message = parse(oip.ModelReadyRequest, body)
        try:
            served = self._find(message.name, message.version)
        except NotFoundError:
            return oip.ModelReadyResponse(ready=False)
        return oip.ModelReadyResponse(ready=_is_ready(served))

    async def server_metadata(self, body: bytes, context: Context) -> oip.ServerMetadataResponse:
        """Says what this is."""
        parse(oip.ServerMetadataRequest, body)
        return oip.ServerMetadataResponse(name=PLATFORM, version=own_version())

    async def model_metadata(self, body: bytes, context: Context) -> oip.ModelMetadataResponse:
        """Describes the tensors that a bundle takes and gives."""
        message = parse(oip.ModelMetadataRequest, body)
        served = self._find(message.name, message.version)
        reply = oip.ModelMetadataResponse(name=served.name, versions=[MODEL_VERSION], platform=PLATFORM)
        for spec in tensors.INPUTS:
            reply.inputs.add(name=spec.name, datatype=spec.datatype, shape=spec.shape)
        for name, datatype, shape in tensors.output_specs(served.manifest):
            reply.outputs.add(name=name, datatype=datatype, shape=shape)
        return reply

    async def model_config(self, body: bytes, context: Context) -> oip.ModelConfigResponse:
        """Tells the same as Triton would of a model of its own."""
        message = parse(oip.ModelConfigRequest, body)
        served = self._find(message.name, message.version)
        config = oip.ModelConfig(name=served.name, platform=PLATFORM, max_batch_size=self._max_batch)
        for spec in tensors.INPUTS:
            kind = oip.DataType.Value(f"TYPE_{spec.datatype}")
            config.input.add(name=spec.name, data_type=kind, dims=spec.shape[1:], optional=spec.optional)
        for name, datatype, shape in tensors.output_specs(served.manifest):
            kind = oip.DataType.Value(f"TYPE_{datatype}")
            config.output.add(name=name, data_type=kind, dims=shape[1:])
        return oip.ModelConfigResponse(config=config)

    async def repository_index(self, body: bytes, context: Context) -> oip.RepositoryIndexResponse:
        """Lists the bundles."""
        message = parse(oip.RepositoryIndexRequest, body)
        reply = oip.RepositoryIndexResponse()
        for served in self._registry:
            if _is_ready(served) or not message.ready:
                state = "READY" if _is_ready(served) else "UNAVAILABLE"
                reply.models.add(name=served.name, version=MODEL_VERSION, state=state)
        return reply

    async def model_infer(self, body: bytes, context: Context) -> None:
        """Writes a batch of notes."""
        client = ClientKey(current_account(), call=object())
        inference = self._read(parse(oip.ModelInferRequest, body, self._most_bytes), client)
        with inference.served.in_hand(), await self._limits.notes.wait(client.caller, len(inference.notes)):
            await inference.write_together(context.write, context.time_remaining())

    async def model_stream_infer(self, bodies: AsyncIterator[bytes], context: Context) -> None:
        """Writes notes and sends them as they come."""
        self._registry.find().require_engine()
        await context.send_initial_metadata(())
        client = ClientKey(current_account(), call=object(), patient=True)
        send = Sender(context)

        async def write(response: oip.ModelInferResponse) -> None:
            await send(oip.ModelStreamInferResponse(infer_response=response))

        async def answer(message: oip.ModelInferRequest) -> None:
            try:
                inference = self._read(message, client)
                if len(inference.notes) == 1:
                    await inference.write_in_chunks(write)
                else:
                    await inference.write_together(write, is_final=True)
            except Exception as error:
                await send(_failure(message, error))

        def begin(body: bytes) -> Item:
            message = parse(oip.ModelInferRequest, body, self._most_bytes)
            return Item(tensors.count_notes(message, self._max_batch), functools.partial(answer, message))

        in_flight = max_in_flight(self._registry, self._in_flight)
        await ItemStream(begin, in_flight, self._limits, client.caller).run(bodies, self._closing)

    def _read(self, message: oip.ModelInferRequest, client: ClientKey) -> _Inference:
        served = self._find(message.model_name, message.model_version)
        wanted = tensors.WantedOutputs.by(message)
        notes = tensors.read_notes(message, served.manifest, self._max_batch)
        return _Inference(served, message.id, notes, wanted, client, self._limits.audio_bytes)

    def _find(self, name: str, version: str) -> ServedBundle:
        served = self._registry.find(name)
        if version not in ("", MODEL_VERSION):
            raise NotFoundError(
                f"there is no version {shortened(version)!r} of {served.name!r}; {MODEL_VERSION!r} is served"
            )
        return served


def _is_ready(served: ServedBundle) -> bool:
    return served.engine is not None and served.engine.is_accepting


def _failure(message: oip.ModelInferRequest, error: Exception) -> oip.ModelStreamInferResponse:
    status = presentable(error, "ModelStreamInfer").to_status()
    failed = oip.ModelInferResponse(
        model_name=shortened(message.model_name), model_version=MODEL_VERSION, id=message.id
    )
    failed.parameters[FINAL].bool_param = True
    return oip.ModelStreamInferResponse(error_message=status.message, infer_response=failed)


@dataclass(frozen=True)
class _Inference:
    """One request, read and checked: the notes that it asks for, and how they are wanted."""

    served: ServedBundle
    request_id: str
    notes: Sequence[NoteRequest]
    wanted: tensors.WantedOutputs
    client: ClientKey
    audio_bytes: Quota

    async def write_together(
        self,
        write: Callable[[oip.ModelInferResponse], Awaitable[None]],
        seconds_left: float | None = None,
        *,
        is_final: bool = False,
    ) -> None:
        """Writes all notes for one response.

        The first is refused where a single note would be; the others then wait for their places.

        Args:
            write: sends the response, and returns once it is on its way.
            is_final: whether the response is to say that it is the last.

        Raises:
            InvalidRequestError: keys are held on for longer than there is room for the notes in one piece.
            OverloadedError: the queue is full.
            UnavailableError: the engine ends before the notes do.
        """
        if any(note.held_on_frames for note in self.notes):
            check_room(self._size(), self.audio_bytes, "SECONDS")
        patient = replace(self.client, patient=True)
        tasks = [
            asyncio.create_task(self._write(note, self.client if i == 0 else patient, seconds_left))
            for i, note in enumerate(self.notes)
        ]
        with self.served.in_hand(), contextlib.ExitStack() as until_written:
            try:
                codes = await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
            lengths = [len(note_codes) for note_codes in codes]
            audio = None
            if self.wanted.audio:
                amount = len(codes) * sound_size(max(lengths), self.served.manifest)
                until_written.enter_context(await self.audio_bytes.wait(self.client.caller, amount))
                audio = await asyncio.gather(*map(self._decode, codes, self.notes))
            response = self._response()
            given = response, codes if self.wanted.codes else None, audio, lengths
            if len(codes) * max(notes.nbytes for notes in [*codes, *(audio or ())]) > LARGE_REPLY_BYTES:
                await asyncio.to_thread(tensors.write_notes, *given)
            else:
                tensors.write_notes(*given)
            if is_final:
                response.parameters[FINAL].bool_param = True
            await write(response)

    async def write_in_chunks(self, write: Callable[[oip.ModelInferResponse], Awaitable[None]]) -> None:
        """Writes the only note, for responses as its frames complete. The last one says that it is the last.

        Raises:
            InvalidRequestError: codes and audio are wanted.
            UnavailableError: the engine ends before the note does.
        """
        served, [note] = self.served, self.notes
        if self.wanted.codes and self.wanted.audio:
            raise InvalidRequestError([("outputs", "one note is streamed as CODES or as AUDIO, not as both")])
        audio_format = pb.AUDIO_FORMAT_FLOAT32 if self.wanted.audio else pb.AUDIO_FORMAT_UNSPECIFIED

        async def write_reply(reply: pb.GenerateResponse) -> None:
            response = self._response()
            if self.wanted.audio:
                tensors.add_output(response, "AUDIO", "FP32", np.frombuffer(reply.audio, "<f4")[None])
            else:
                codes = tensors.codes_array(reply.codes, served.manifest.codec.n_codebooks)
                tensors.write_notes(response, [codes], None, [len(codes)])
            response.parameters[FINAL].bool_param = bool(reply.finish_reason)
            await write(response)

        with NoteStream(served, note, self.client, self.audio_bytes, audio_format=audio_format) as stream:
            await stream.send(write_reply)

    async def _write(self, note: NoteRequest, client: ClientKey, seconds_left: float | None) -> tensors.Codes:
        whole = pb.GenerateResponse()
        with NoteStream(self.served, note, client, self.audio_bytes, seconds_left, whole=True) as stream:
            await stream.whole(whole)
        return tensors.codes_array(whole.codes, self.served.manifest.codec.n_codebooks)

    def _size(self) -> int:
        """Estimates the bytes of all notes, each as long as the longest."""
        manifest = self.served.manifest
        longest = max(note.held_frames + note.held_on_frames for note in self.notes)
        of_codes = 2 * manifest.codec.n_codebooks * (longest + manifest.model.max_frames)
        return len(self.notes) * (sound_size(longest, manifest) if self.wanted.audio else of_codes)

    async def _decode(self, codes: tensors.Codes, note: NoteRequest) -> Audio:
        """Returns [samples]."""
        with self.served.decoding.stream(self.client.caller, note.seed, note.cents) as stream:
            return await stream.decode(codes, True)

    def _response(self) -> oip.ModelInferResponse:
        return oip.ModelInferResponse(
            model_name=self.served.name, model_version=MODEL_VERSION, id=self.request_id
        )
