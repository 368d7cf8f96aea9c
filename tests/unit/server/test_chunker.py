"""How many frames go into one reply."""

from __future__ import annotations

from timbrel_server.chunker import LARGEST_CHUNK_FRAMES, Chunker


def test_the_first_frame_goes_out_alone_and_chunks_grow() -> None:
    chunker = Chunker()
    chunks = [chunk for t in range(200) if (chunk := chunker.add((t,)))]
    assert [len(chunk) for chunk in chunks[:6]] == [1, 2, 4, 8, 8, 8]
    assert max(len(chunk) for chunk in chunks) == LARGEST_CHUNK_FRAMES


def test_no_chunk_is_larger_than_allowed() -> None:
    chunker = Chunker(largest=1)
    assert [list(chunker.add((t,))) for t in range(5)] == [[(t,)] for t in range(5)]


def test_no_frame_is_lost_or_out_of_order() -> None:
    chunker = Chunker()
    frames = [frame for t in range(77) for frame in chunker.add((t,))] + list(chunker.flush())
    assert frames == [(t,) for t in range(77)]
    assert chunker.flush() == []
