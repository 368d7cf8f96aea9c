"""A note in one piece."""

from __future__ import annotations

from collections.abc import AsyncIterator

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.errors import InvalidRequestError

LARGEST_NOTE_BYTES = (4 << 20) - 1024
"""gRPC refuses messages above 4 MiB by default; the rest is for what surrounds the note."""


async def whole_note(replies: AsyncIterator[pb.GenerateResponse]) -> pb.GenerateResponse:
    """One reply that says what all of these say together.

    Raises:
        InvalidRequestError: it is too long for one message.
    """
    whole = pb.GenerateResponse()
    codes: list[bytes] = []
    audio: list[bytes] = []
    n_frames = 0
    async for reply in replies:
        codes.append(reply.codes.data)
        audio.append(reply.audio)
        n_frames += reply.codes.n_frames
        whole.MergeFrom(reply)
    whole.audio = b"".join(audio)
    if whole.HasField("codes"):
        whole.codes.data = b"".join(codes)
        whole.codes.n_frames = n_frames
    if (n_bytes := whole.ByteSize()) > LARGEST_NOTE_BYTES:
        hint = "ask for codes, for another format, or for this note by Generate"
        raise InvalidRequestError([("audio", f"{n_bytes} bytes are too many for one message; {hint}")])
    return whole
