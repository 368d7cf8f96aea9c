"""How many frames go into one reply."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from timbrel_server.engine.chunker import (
    LARGEST_CHUNK_FRAMES,
    LONGEST_WAIT_AFTER_QUEUING_SECONDS,
    LONGEST_WAIT_SECONDS,
    Chunker,
)


def still() -> float:
    """A clock that stands: frames come as fast as can be."""
    return 0.0


def ticking(seconds: float) -> Callable[[], float]:
    """A clock that gains so many seconds each time it is read: a frame takes that long."""
    now = iter(range(1_000_000))
    return lambda: next(now) * seconds


def test_the_first_frame_goes_out_alone_and_chunks_grow() -> None:
    chunker = Chunker(clock=still)
    chunks = [chunk for t in range(200) if (chunk := chunker.add((t,)))]
    assert [len(chunk) for chunk in chunks] == [1, 3, 9, 27, 32, 32, 32, 32, 32]
    assert max(len(chunk) for chunk in chunks) == LARGEST_CHUNK_FRAMES


@pytest.mark.parametrize("frame_rate", [37.5, 50.0, 200.0])
def test_no_frame_waits_for_long(frame_rate: float) -> None:
    chunker = Chunker(clock=ticking(1 / frame_rate))
    sizes = [len(chunk) for t in range(200) if (chunk := chunker.add((t,)))]
    assert sizes[0] == 1
    assert max(sizes) <= LONGEST_WAIT_SECONDS * frame_rate + 2
    assert max(sizes) >= LONGEST_WAIT_SECONDS * frame_rate


def test_no_chunk_is_larger_than_allowed() -> None:
    chunker = Chunker(largest=1, clock=still)
    assert [list(chunker.add((t,))) for t in range(5)] == [[(t,)] for t in range(5)]


@pytest.mark.parametrize("clock", [still, ticking(0.06)])
def test_no_frame_is_lost_or_out_of_order(clock: Callable[[], float]) -> None:
    chunker = Chunker(clock=clock)
    frames = [frame for t in range(77) for frame in chunker.add((t,))] + list(chunker.flush())
    assert frames == [(t,) for t in range(77)]
    assert chunker.flush() == []


def test_a_note_that_is_wanted_whole_comes_whole() -> None:
    chunker = Chunker.of_whole_notes()
    assert all(not chunker.add((t,)) for t in range(1000))
    assert chunker.flush() == [(t,) for t in range(1000)]


@pytest.mark.parametrize("came_late", [False, True])
def test_a_live_note_comes_frame_by_frame_and_at_once(came_late: bool) -> None:
    chunker = Chunker.of_live_notes()
    if came_late:
        chunker.note_came_late()
    for t in range(50):
        assert chunker.is_urgent
        assert chunker.add((t,)) == [(t,)]


def test_only_the_first_chunk_of_another_is_urgent() -> None:
    chunker = Chunker(clock=still)
    assert chunker.is_urgent
    chunker.add((0,))
    assert not chunker.is_urgent


def test_a_note_that_came_late_comes_in_fewer_pieces_and_its_first_frame_alone() -> None:
    frame_rate = 37.5
    chunker = Chunker(clock=ticking(1 / frame_rate))
    chunker.note_came_late()
    sizes = [len(chunk) for t in range(200) if (chunk := chunker.add((t,)))]
    assert sizes[0] == 1
    longest = LONGEST_WAIT_AFTER_QUEUING_SECONDS * frame_rate
    assert longest <= min(sizes[1:]) <= max(sizes) <= longest + 2
