"""inference.GRPCInferenceService over the bundles on the shelf."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import grpc

from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_server.access.caller import current_caller
from timbrel_server.api.batch import max_in_flight
from timbrel_server.api.convert import parse
from timbrel_server.api.item_stream import ItemStream
from timbrel_server.api.sending import Sender
from timbrel_server.engine.origin import Origin
from timbrel_server.errors import NotFoundError, shortened
from timbrel_server.inference.notes import INPUTS, Wanted, read_notes
from timbrel_server.inference.writing import FINAL, MODEL_VERSION, write_in_chunks, write_together
from timbrel_server.own_version import own_version
from timbrel_server.serving.served_bundle import ServedBundle
from timbrel_server.serving.shelf import Shelf
from timbrel_server.wire.failures import presentable
from timbrel_server.wire.grpc_types import Context, GenericHandler

INFERENCE_SERVICE_NAME: str = oip.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name

PLATFORM = "timbrel"


class InferenceService:
    """Its methods. They take undecoded bodies, so that bytes that are no message get a proper status."""

    def __init__(self, shelf: Shelf, max_batch: int, in_flight: int | None = None) -> None:
        """
        Args:
            max_batch: notes of one request.
            in_flight: as of `max_in_flight`.
        """
        self._shelf = shelf
        self._max_batch = max_batch
        self._in_flight = in_flight
        self._closing = asyncio.Event()

    def drain(self) -> None:
        """Has the streams end with what is being written on them."""
        self._closing.set()

    def handler(self) -> GenericHandler:
        """What to register with a gRPC server."""
        unary = grpc.unary_unary_rpc_method_handler
        methods = {
            "ServerLive": unary(
                self.server_live, response_serializer=oip.ServerLiveResponse.SerializeToString
            ),
            "ServerReady": unary(
                self.server_ready, response_serializer=oip.ServerReadyResponse.SerializeToString
            ),
            "ModelReady": unary(
                self.model_ready, response_serializer=oip.ModelReadyResponse.SerializeToString
            ),
            "ServerMetadata": unary(
                self.server_metadata, response_serializer=oip.ServerMetadataResponse.SerializeToString
            ),
            "ModelMetadata": unary(
                self.model_metadata, response_serializer=oip.ModelMetadataResponse.SerializeToString
            ),
            "ModelInfer": unary(
                self.model_infer, response_serializer=oip.ModelInferResponse.SerializeToString
            ),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(
                self.model_stream_infer, response_serializer=oip.ModelStreamInferResponse.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(INFERENCE_SERVICE_NAME, methods)

    async def server_live(self, body: bytes, context: Context) -> oip.ServerLiveResponse:
        """Whoever can answer is alive."""
        parse(oip.ServerLiveRequest, body)
        return oip.ServerLiveResponse(live=True)

    async def server_ready(self, body: bytes, context: Context) -> oip.ServerReadyResponse:
        """Whether every bundle takes requests."""
        parse(oip.ServerReadyRequest, body)
        return oip.ServerReadyResponse(ready=all(_is_ready(served) for served in self._shelf))

    async def model_ready(self, body: bytes, context: Context) -> oip.ModelReadyResponse:
        """Whether one bundle does."""
        message = parse(oip.ModelReadyRequest, body)
        try:
            served = self._find(message.name, message.version)
        except NotFoundError:
            return oip.ModelReadyResponse(ready=False)
        return oip.ModelReadyResponse(ready=_is_ready(served))

    async def server_metadata(self, body: bytes, context: Context) -> oip.ServerMetadataResponse:
        """What this is."""
        parse(oip.ServerMetadataRequest, body)
        return oip.ServerMetadataResponse(name=PLATFORM, version=own_version())

    async def model_metadata(self, body: bytes, context: Context) -> oip.ModelMetadataResponse:
        """The tensors that a bundle takes and gives."""
        message = parse(oip.ModelMetadataRequest, body)
        served = self._find(message.name, message.version)
        reply = oip.ModelMetadataResponse(name=served.name, versions=[MODEL_VERSION], platform=PLATFORM)
        for spec in INPUTS:
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
        wanted, notes = Wanted.by(message), read_notes(message, served.manifest, self._max_batch)
        origin = Origin(current_caller(), call=object())
        return await write_together(served, message, notes, wanted, origin, context.time_remaining())

    async def model_stream_infer(self, bodies: AsyncIterator[bytes], context: Context) -> None:
        """Writes notes and sends them as they come."""
        n_slots = self._shelf.find().require_engine().n_slots
        await context.send_initial_metadata(())
        origin = Origin(current_caller(), call=object(), patient=True)
        send = Sender(context)

        async def answer(message: oip.ModelInferRequest) -> None:
            try:
                async for response in self._answers(message, origin):
                    await send(oip.ModelStreamInferResponse(infer_response=response))
            except Exception as error:
                await send(_failure(message, error))

        def begin(body: bytes) -> Coroutine[Any, Any, None]:
            return answer(parse(oip.ModelInferRequest, body))

        await ItemStream(begin, max_in_flight(n_slots, self._in_flight)).run(bodies, self._closing)

    async def _answers(
        self, message: oip.ModelInferRequest, origin: Origin
    ) -> AsyncIterator[oip.ModelInferResponse]:
        """The responses to one request of a stream."""
        served = self._find(message.model_name, message.model_version)
        wanted, notes = Wanted.by(message), read_notes(message, served.manifest, self._max_batch)
        if len(notes) == 1:
            async for chunk in write_in_chunks(served, message, notes[0], wanted, origin):
                yield chunk
        else:
            response = await write_together(served, message, notes, wanted, origin)
            response.parameters[FINAL].bool_param = True
            yield response

    def _find(self, name: str, version: str) -> ServedBundle:
        served = self._shelf.find(name)
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
