"""How many frames go into one reply, and which replies go out together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from timbrel_server.engine.delivery import (
    LARGEST_CHUNK_FRAMES,
    LONGEST_HOLD_SECONDS,
    LONGEST_WAIT_AFTER_QUEUING_SECONDS,
    LONGEST_WAIT_SECONDS,
    Chunker,
    DeliveryCoalescer,
)
from timbrel_server.engine.request import Delivery, Finish, NoteRequest, RequestHandle


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def coalescer(clock: Clock) -> DeliveryCoalescer:
    return DeliveryCoalescer(clock)


def handle() -> RequestHandle:
    return RequestHandle(
        NoteRequest((0.0, 0.0), pitch=60, velocity=100, held_frames=5, seed=0), lambda _: None
    )


def test_what_can_wait_goes_out_with_what_cannot(coalescer: DeliveryCoalescer) -> None:
    patient, hasty = handle(), handle()
    coalescer.put(patient, Delivery([(1,)]), urgent=False)
    assert not coalescer.take(again_in_seconds=0.0)
    coalescer.put(hasty, Delivery([(2,)]), urgent=True)
    assert coalescer.take(again_in_seconds=0.0) == [(patient, Delivery([(1,)])), (hasty, Delivery([(2,)]))]
    coalescer.put(patient, Delivery([(3,)]), urgent=False)
    assert not coalescer.take(again_in_seconds=0.0)


def test_nothing_waits_longer_than_it_may(coalescer: DeliveryCoalescer, clock: Clock) -> None:
    first, second = handle(), handle()
    coalescer.put(first, Delivery([(1,)]), urgent=False)
    clock.now += 0.75 * LONGEST_HOLD_SECONDS
    coalescer.put(second, Delivery([(2,)]), urgent=False)
    assert not coalescer.take(again_in_seconds=0.0)
    clock.now += 0.5 * LONGEST_HOLD_SECONDS
    assert [of for of, _ in coalescer.take(again_in_seconds=0.0)] == [first, second]


def test_what_would_wait_too_long_goes_out_early(coalescer: DeliveryCoalescer) -> None:
    note = handle()
    coalescer.put(note, Delivery([(1,)]), urgent=False)
    assert not coalescer.take(again_in_seconds=0.9 * LONGEST_HOLD_SECONDS)
    assert coalescer.take(again_in_seconds=1.1 * LONGEST_HOLD_SECONDS) == [(note, Delivery([(1,)]))]


def test_nothing_waits_where_nothing_will_be_taken_soon(coalescer: DeliveryCoalescer) -> None:
    patient = handle()
    coalescer.put(patient, Delivery([(1,)]), urgent=False)
    assert coalescer.take() == [(patient, Delivery([(1,)]))]
    assert not coalescer.take()


def test_deliveries_of_one_note_become_one_in_their_order(coalescer: DeliveryCoalescer) -> None:
    note = handle()
    coalescer.put(note, Delivery([(1,), (2,)]), urgent=False)
    coalescer.put(note, Delivery([(3,)]), urgent=False)
    coalescer.put(note, Delivery(finish=Finish.EOS), urgent=False)
    assert coalescer.take() == [(note, Delivery([(1,), (2,), (3,)], Finish.EOS))]


def test_what_is_dropped_never_goes_out(coalescer: DeliveryCoalescer) -> None:
    gone, other = handle(), handle()
    for note in (gone, other):
        coalescer.put(note, Delivery([(1,)]), urgent=False)
    coalescer.drop(gone)
    coalescer.drop(gone)
    assert [of for of, _ in coalescer.take()] == [other]


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
