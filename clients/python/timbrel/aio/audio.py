"""A note's sound, as it comes; the codec runs in a thread, so that the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable

from timbrel.audio.stream import Audio
from timbrel.core.reply import NoteAssembler
from timbrel_bundle.codec import CodecStream
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


async def decode_as_it_comes(
    replies: AsyncIterable[pb.GenerateResponse], assembler: NoteAssembler, stream: CodecStream
) -> AsyncGenerator[Audio, None]:
    """Yields the audio of each reply, none of it empty. Joined, it is the whole note's.

    Raises:
        ServerError, BundleMismatchError: as `NoteAssembler`.
    """
    async for reply in replies:
        codes = assembler.feed(reply)
        if len(codes) and len(audio := await asyncio.to_thread(stream.push, codes)):
            yield audio
    assembler.finish()
    if len(rest := await asyncio.to_thread(stream.finish)):
        yield rest
