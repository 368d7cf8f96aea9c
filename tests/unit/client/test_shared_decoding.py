"""Notes of one event loop share the codec's runs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import wait_for_async

import timbrel
from timbrel.aio import decoding
from timbrel.aio.decoding import SharedDecoding
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecChunk, CodecDecoder

N_NOTES = 5


@pytest.fixture
def codec(tiny_bundle: Path) -> CodecDecoder:
    return CodecDecoder(Bundle.open(tiny_bundle), n_threads=1)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Holds up each run until `go_on` is set; `sizes` has how many notes each was of."""
    decode_each = decoding.decode_each

    class Runs:
        go_on, sizes = threading.Event(), list[int]()

        def run(self, chunks: list[CodecChunk]) -> Any:
            self.sizes.append(len(chunks))
            assert self.go_on.wait(60.0)
            return decode_each(chunks)

    held_up = Runs()
    monkeypatch.setattr(decoding, "decode_each", held_up.run)
    return held_up


def frames(codec: CodecDecoder, count: int) -> Any:
    return np.zeros((count, codec.spec.n_codebooks), np.uint16)


async def all_asked(shared: SharedDecoding, chunks: list[CodecChunk], sizes: list[int]) -> list[Any]:
    """Asks for all of them, all but the first while that one's run goes on."""
    tasks = [asyncio.create_task(shared.decode(chunks[0]))]
    await wait_for_async(lambda: sizes, "the first run")
    tasks += [asyncio.create_task(shared.decode(chunk)) for chunk in chunks[1:]]
    await wait_for_async(lambda: len(shared._waiting) == len(chunks) - 1, "the other notes to wait")
    return tasks


def test_notes_that_wait_for_a_run_share_the_next_one(codec: CodecDecoder, runs: Any) -> None:
    async def main() -> list[Any]:
        chunks = [CodecChunk(codec.stream(), frames(codec, 9)) for _ in range(N_NOTES)]
        tasks = await all_asked(SharedDecoding(), chunks, runs.sizes)
        runs.go_on.set()
        return await asyncio.gather(*tasks)

    heard = asyncio.run(main())
    assert runs.sizes == [1, N_NOTES - 1]
    for audio in heard:
        np.testing.assert_allclose(audio, codec.stream().push(frames(codec, 9)), atol=1e-4)


def test_a_note_that_is_given_up_holds_up_no_other(codec: CodecDecoder, runs: Any) -> None:
    async def main() -> list[Any]:
        shared = SharedDecoding()
        chunks = [CodecChunk(codec.stream(), frames(codec, 9)) for _ in range(N_NOTES)]
        tasks = await all_asked(shared, chunks, runs.sizes)
        tasks[0].cancel()
        tasks[2].cancel()
        runs.go_on.set()
        heard = await asyncio.gather(*tasks, return_exceptions=True)
        return [*heard, await shared.decode(CodecChunk(codec.stream(), frames(codec, 9)))]

    *heard, later = asyncio.run(main())
    assert [isinstance(each, asyncio.CancelledError) for each in heard] == [True, False, True, False, False]
    assert len(later) == len(heard[1])


def test_where_the_codec_fails_each_note_hears_of_it(
    codec: CodecDecoder, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "_outputs", ["nothing"])

    async def main() -> list[Any]:
        chunks = [CodecChunk(codec.stream(), frames(codec, 9)) for _ in range(3)]
        tasks = await all_asked(SharedDecoding(), chunks, runs.sizes)
        runs.go_on.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(each) for each in asyncio.run(main())] == [timbrel.BundleMismatchError] * 3
