"""The codec, shared by the notes of an event loop."""

from __future__ import annotations

import asyncio

from timbrel.core.faults import codec_faults
from timbrel.core.reply import Audio
from timbrel_bundle.codec import CodecChunk, decode_each

LARGEST_RUN = 32
"""Notes that are decoded in one run at most: some 20 ms, which a new note waits for."""


class SharedDecoding:
    """Decodes chunks of many notes in a thread, a run at a time: what is asked for while one goes on is
    decoded together by the next. Most of a run of one frame goes by whatever the number of notes."""

    def __init__(self) -> None:
        self._waiting: list[tuple[CodecChunk, asyncio.Future[Audio]]] = []
        self._runs: asyncio.Task[None] | None = None

    async def decode(self, chunk: CodecChunk) -> Audio:
        """Returns what can be heard by the next frames of a note, maybe nothing; those before have to be
        decoded. Raises BundleMismatchError: the codec fails; ValueError: as `CodecStream.push`."""
        done: asyncio.Future[Audio] = asyncio.get_running_loop().create_future()
        self._waiting.append((chunk, done))
        if self._runs is None:
            self._runs = asyncio.create_task(self._run(), name="decoding")
        with codec_faults():
            return await done

    async def _run(self) -> None:
        """Decodes until nothing waits."""
        try:
            while self._waiting:
                now, self._waiting = self._waiting[:LARGEST_RUN], self._waiting[LARGEST_RUN:]
                try:
                    results = await asyncio.to_thread(decode_each, [chunk for chunk, _ in now])
                except Exception as error:  # the program is ending, say, and starts no thread any more
                    results = [error] * len(now)
                for (_, done), result in zip(now, results, strict=True):
                    if done.done():  # whoever waited was cancelled
                        continue
                    if isinstance(result, Exception):
                        done.set_exception(result)
                    else:
                        done.set_result(result)
                await asyncio.sleep(0)  # for their next frames to share the next run
        finally:
            self._runs = None
