"""The methods of inference.GRPCInferenceService, over the registered bundles: each is a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from timbrel_bundle.codec import Audio
from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server import own_version
from timbrel_server.engine.delivery import LARGEST_CHUNK_FRAMES
from timbrel_server.engine.request import ClientKey, NoteRequest
from timbrel_server.errors import InvalidRequestError, NotFoundError, presentable, shortened
from timbrel_server.open_inference import tensors
from timbrel_server.rpc.call_context import current_caller
from timbrel_server.rpc.handlers import Context, Sender, parse
from timbrel_server.served_bundles.codec_decoding import CodecDecoding
from timbrel_server.served_bundles.served_bundle import BundleRegistry, ServedBundle
from timbrel_server.synthesizer.note_stream import NoteStream, retry_while_overloaded
from timbrel_server.synthesizer.streams import ItemStream, max_in_flight

MODEL_VERSION = "1"
FINAL = "triton_final_response"
PLATFORM = "timbrel"


class InferenceService:
    """Answers every call of the service: `service_handler` finds a method here for each method there.

    They take undecoded bodies, so that bytes that are no message get a proper status.
    """

    def __init__(self, registry: BundleRegistry, max_batch: int, in_flight: int | None = None) -> None:
        """
        Args:
            max_batch: notes of one request.
            in_flight: as of `max_in_flight`.
        """
        self._registry = registry
        self._max_batch = max_batch
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
        n_codebooks = served.manifest.codec.n_codebooks
        reply.outputs.add(name="CODES", datatype="UINT16", shape=(-1, -1, n_codebooks))
        reply.outputs.add(name="LENGTHS", datatype="INT32", shape=(-1,))
        reply.outputs.add(name="AUDIO", datatype="FP32", shape=(-1, -1))
        return reply

    async def model_infer(self, body: bytes, context: Context) -> oip.ModelInferResponse:
        """Writes a batch of notes."""
        message = parse(oip.ModelInferRequest, body)
        served = self._find(message.model_name, message.model_version)
        wanted, notes = (
            tensors.WantedOutputs.by(message),
            tensors.read_notes(message, served.manifest, self._max_batch),
        )
        client = ClientKey(current_caller(), call=object())
        return await _write_together(served, message, notes, wanted, client, context.time_remaining())

    async def model_stream_infer(self, bodies: AsyncIterator[bytes], context: Context) -> None:
        """Writes notes and sends them as they come."""
        n_slots = self._registry.find().require_engine().n_slots
        await context.send_initial_metadata(())
        client = ClientKey(current_caller(), call=object(), patient=True)
        send = Sender(context)

        async def answer(message: oip.ModelInferRequest) -> None:
            try:
                async for response in self._answers(message, client):
                    await send(oip.ModelStreamInferResponse(infer_response=response))
            except Exception as error:
                await send(_failure(message, error))

        def begin(body: bytes) -> Coroutine[Any, Any, None]:
            return answer(parse(oip.ModelInferRequest, body))

        await ItemStream(begin, max_in_flight(n_slots, self._in_flight)).run(bodies, self._closing)

    async def _answers(
        self, message: oip.ModelInferRequest, client: ClientKey
    ) -> AsyncIterator[oip.ModelInferResponse]:
        """Yields the responses to one request of a stream."""
        served = self._find(message.model_name, message.model_version)
        wanted, notes = (
            tensors.WantedOutputs.by(message),
            tensors.read_notes(message, served.manifest, self._max_batch),
        )
        if len(notes) == 1:
            async for chunk in _write_in_chunks(served, message, notes[0], wanted, client):
                yield chunk
        else:
            response = await _write_together(served, message, notes, wanted, client)
            response.parameters[FINAL].bool_param = True
            yield response

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


async def _write_together(
    served: ServedBundle,
    request: oip.ModelInferRequest,
    notes: Sequence[NoteRequest],
    wanted: tensors.WantedOutputs,
    client: ClientKey,
    seconds_left: float | None = None,
) -> oip.ModelInferResponse:
    """Writes all notes of a request, for one response.

    The first is refused where a single note would be; the others then wait for their places.

    Raises:
        OverloadedError: the queue is full.
        UnavailableError: the engine ends before the notes do.
    """
    patient = replace(client, patient=True)
    tasks = [
        asyncio.create_task(_write(served, note, client if i == 0 else patient, seconds_left, wanted.audio))
        for i, note in enumerate(notes)
    ]
    try:
        with served.in_hand():
            written = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    codes = [note_codes for note_codes, _ in written]
    audio = [sound for _, sound in written if sound is not None]
    response = _response(served, request)
    lengths = [len(note_codes) for note_codes in codes]
    tensors.write_notes(response, codes if wanted.codes else None, audio if wanted.audio else None, lengths)
    return response


async def _write_in_chunks(
    served: ServedBundle,
    request: oip.ModelInferRequest,
    note: NoteRequest,
    wanted: tensors.WantedOutputs,
    client: ClientKey,
) -> AsyncIterator[oip.ModelInferResponse]:
    """Writes one note, for responses as its frames complete. The last response says that it is the last.

    Raises:
        InvalidRequestError: codes and audio are wanted.
        UnavailableError: the engine ends before the note does.
    """
    if wanted.codes and wanted.audio:
        raise InvalidRequestError([("outputs", "one note is streamed as CODES or as AUDIO, not as both")])
    audio_format = pb.AUDIO_FORMAT_FLOAT32 if wanted.audio else pb.AUDIO_FORMAT_UNSPECIFIED

    def begin() -> NoteStream:
        return NoteStream(served, note, client, audio_format=audio_format)

    with served.in_hand(), await retry_while_overloaded(begin) as stream:
        async for reply in stream.replies(patient=True):
            response = _response(served, request)
            if wanted.audio:
                tensors.add_output(response, "AUDIO", "FP32", np.frombuffer(reply.audio, "<f4")[None])
            else:
                codes = tensors.codes_array(reply.codes, served.manifest.codec.n_codebooks)
                tensors.write_notes(response, [codes], None, [len(codes)])
            response.parameters[FINAL].bool_param = bool(reply.finish_reason)
            yield response


async def _write(
    served: ServedBundle, note: NoteRequest, client: ClientKey, seconds_left: float | None, decoded: bool
) -> tuple[tensors.Codes, Audio | None]:
    def begin() -> NoteStream:
        return NoteStream(served, note, client, seconds_left, whole=True)

    with await retry_while_overloaded(begin) if client.patient else begin() as stream:
        whole = await stream.whole()
    codes = tensors.codes_array(whole.codes, served.manifest.codec.n_codebooks)
    return codes, await _decode(served.decoding, codes) if decoded else None


async def _decode(decoding: CodecDecoding, codes: tensors.Codes) -> Audio:
    """Returns [samples]; piece by piece, so that others who listen meanwhile do not wait for a whole note."""
    frames = [tuple(frame) for frame in codes.tolist()]
    pieces: list[Audio] = []
    with await retry_while_overloaded(decoding.stream) as stream:
        while True:
            chunk, frames = frames[:LARGEST_CHUNK_FRAMES], frames[LARGEST_CHUNK_FRAMES:]
            pieces.append(await stream.decode(chunk, not frames))
            if not frames:
                return np.concatenate(pieces)


def _response(served: ServedBundle, request: oip.ModelInferRequest) -> oip.ModelInferResponse:
    return oip.ModelInferResponse(model_name=served.name, model_version=MODEL_VERSION, id=request.id)
