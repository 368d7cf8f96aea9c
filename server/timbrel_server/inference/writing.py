"""Has notes written for a request, whole or chunk by chunk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import numpy as np

from timbrel_bundle.codec import Audio
from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.api.codec_decoding import CodecDecoding
from timbrel_server.api.note_replies import note_replies
from timbrel_server.api.note_stream import NoteStream
from timbrel_server.api.whole_note import whole_note
from timbrel_server.engine.chunker import LARGEST_CHUNK_FRAMES
from timbrel_server.engine.origin import Origin
from timbrel_server.engine.patience import patiently
from timbrel_server.engine.request import NoteRequest
from timbrel_server.errors import InvalidRequestError
from timbrel_server.inference.notes import Codes, Wanted, codes_array, write_notes
from timbrel_server.inference.tensors import add_output
from timbrel_server.serving.served_bundle import ServedBundle

MODEL_VERSION = "1"
FINAL = "triton_final_response"


async def write_together(
    served: ServedBundle,
    request: oip.ModelInferRequest,
    notes: Sequence[NoteRequest],
    wanted: Wanted,
    origin: Origin,
    seconds_left: float | None = None,
) -> oip.ModelInferResponse:
    """All notes of a request in one response.

    The first is refused where a single note would be; the others then wait for their places.

    Raises:
        OverloadedError: the queue is full.
        UnavailableError: the engine ends before the notes do.
    """
    patient = replace(origin, patient=True)
    tasks = [
        asyncio.create_task(_write(served, note, origin if i == 0 else patient, seconds_left, wanted.audio))
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
    write_notes(response, codes if wanted.codes else None, audio if wanted.audio else None, lengths)
    return response


async def write_in_chunks(
    served: ServedBundle,
    request: oip.ModelInferRequest,
    note: NoteRequest,
    wanted: Wanted,
    origin: Origin,
) -> AsyncIterator[oip.ModelInferResponse]:
    """One note as its frames complete. The last response says that it is the last.

    Raises:
        InvalidRequestError: codes and audio are wanted.
        UnavailableError: the engine ends before the note does.
    """
    if wanted.codes and wanted.audio:
        raise InvalidRequestError([("outputs", "one note is streamed as CODES or as AUDIO, not as both")])
    audio_format = pb.AUDIO_FORMAT_FLOAT32 if wanted.audio else pb.AUDIO_FORMAT_UNSPECIFIED
    engine = served.require_engine()
    with served.in_hand(), await patiently(lambda: NoteStream(engine, note, origin)) as stream:
        async for reply in note_replies(stream, audio_format, served.manifest, served.decoding, patient=True):
            response = _response(served, request)
            if wanted.audio:
                add_output(response, "AUDIO", "FP32", np.frombuffer(reply.audio, "<f4")[None])
            else:
                codes = codes_array(reply.codes, served.manifest.codec.n_codebooks)
                write_notes(response, [codes], None, [len(codes)])
            response.parameters[FINAL].bool_param = bool(reply.finish_reason)
            yield response


async def _write(
    served: ServedBundle,
    note: NoteRequest,
    origin: Origin,
    seconds_left: float | None,
    decoded: bool,
) -> tuple[Codes, Audio | None]:
    engine = served.require_engine()

    def begin() -> NoteStream:
        return NoteStream(engine, note, origin, seconds_left, whole=True)

    with await patiently(begin) if origin.patient else begin() as stream:
        whole = await whole_note(
            note_replies(stream, pb.AUDIO_FORMAT_UNSPECIFIED, served.manifest, served.decoding)
        )
    codes = codes_array(whole.codes, served.manifest.codec.n_codebooks)
    return codes, await _decode(served.decoding, codes) if decoded else None


async def _decode(decoding: CodecDecoding, codes: Codes) -> Audio:
    """[samples]; piece by piece, so that others who listen meanwhile do not wait for a whole note."""
    frames = [tuple(frame) for frame in codes.tolist()]
    pieces: list[Audio] = []
    with await patiently(decoding.stream) as stream:
        while True:
            chunk, frames = frames[:LARGEST_CHUNK_FRAMES], frames[LARGEST_CHUNK_FRAMES:]
            pieces.append(await stream.decode(chunk, not frames))
            if not frames:
                return np.concatenate(pieces)


def _response(served: ServedBundle, request: oip.ModelInferRequest) -> oip.ModelInferResponse:
    return oip.ModelInferResponse(model_name=served.name, model_version=MODEL_VERSION, id=request.id)
