"""What goes back to the caller of one note."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.api.audio_packing import AudioPacker, make_packer
from timbrel_server.api.codec_decoding import AudioStream, CodecDecoding
from timbrel_server.api.convert import codes_to_pb, finish_to_pb, held_seconds
from timbrel_server.api.note_stream import NoteStream
from timbrel_server.engine.patience import patiently
from timbrel_server.engine.ticket import Delivery

AUDIO_CHUNK_BYTES = 1 << 20
"""Of a reply; gRPC refuses messages above 4 MiB by default."""


async def note_replies(
    note: NoteStream,
    audio_format: pb.AudioFormat,
    manifest: pb.Manifest,
    decoding: CodecDecoding,
    *,
    patient: bool = False,
) -> AsyncIterator[pb.GenerateResponse]:
    """The replies of a note as it comes, with the header in the first and the finish reason in the last.

    Args:
        patient: whether to wait for a place to decode it, rather than fail.

    Raises:
        OverloadedError: there is no place to decode it.
        UnavailableError: the engine ends before the note does.
    """
    header: pb.GenerateHeader | None = _header(note, manifest)
    if audio_format == pb.AUDIO_FORMAT_UNSPECIFIED:
        replies = _codes_replies(note, manifest)
    else:
        packer = make_packer(audio_format, manifest.codec.sample_rate)
        replies = _audio_replies(note, packer, decoding, patient)
    async for reply in replies:
        if header is not None:
            reply.header.CopyFrom(header)
            header = None
        if reply.finish_reason:
            reply.held_seconds = held_seconds(note.held_frames, manifest)
        yield reply


async def _codes_replies(note: NoteStream, manifest: pb.Manifest) -> AsyncIterator[pb.GenerateResponse]:
    async for delivery in note:
        reply = pb.GenerateResponse(finish_reason=_finish_reason(delivery))
        if delivery.frames:
            reply.codes.CopyFrom(codes_to_pb(delivery.frames, manifest.codec.n_codebooks))
        yield reply


async def _audio_replies(
    note: NoteStream, packer: AudioPacker, decoding: CodecDecoding, patient: bool
) -> AsyncIterator[pb.GenerateResponse]:
    with await patiently(decoding.stream) if patient else decoding.stream() as stream:
        async for delivery in note:
            data = await _audio_bytes(delivery, stream, packer)
            for piece in _pieces(data):
                yield pb.GenerateResponse(audio=piece)
            if delivery.finish is not None:
                yield pb.GenerateResponse(finish_reason=_finish_reason(delivery))


async def _audio_bytes(delivery: Delivery, stream: AudioStream, packer: AudioPacker) -> bytes:
    last = delivery.finish is not None
    audio = await stream.decode(delivery.frames, last)
    # A file of some seconds takes its time, a few samples do not.
    return await asyncio.to_thread(packer.add, audio, last) if last else packer.add(audio, last)


def _pieces(data: bytes) -> Sequence[bytes]:
    return [data[start : start + AUDIO_CHUNK_BYTES] for start in range(0, len(data), AUDIO_CHUNK_BYTES)]


def _finish_reason(delivery: Delivery) -> pb.FinishReason:
    return pb.FINISH_REASON_UNSPECIFIED if delivery.finish is None else finish_to_pb(delivery.finish)


def _header(note: NoteStream, manifest: pb.Manifest) -> pb.GenerateHeader:
    return pb.GenerateHeader(
        seed=note.request.seed,
        bundle_hash=manifest.bundle_hash,
        codec_id=manifest.codec.id,
        sample_rate=manifest.codec.sample_rate,
    )
