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


def sizes(chunker: Chunker, n_frames: int, clock: Callable[[], float] = still) -> list[int]:
    """Frames of each chunk, the chunker being asked with each frame."""
    found = [chunker.take(n, clock()) for n in range(1, n_frames + 1)]
    return [size for size in found if size]


def test_the_first_frame_goes_out_alone_and_chunks_grow() -> None:
    assert sizes(Chunker(), 200) == [1, 3, 9, 27, 32, 32, 32, 32, 32]
    assert sizes(Chunker(lead_frames=4), 200) == [5, 3, 9, 27, 32, 32, 32, 32]
    assert sizes(Chunker(is_live=True, lead_frames=4), 8) == [5, 1, 1, 1]
    assert LARGEST_CHUNK_FRAMES == 32


def test_frames_without_sound_wait_for_the_first_that_has_some_however_slow_steps_are() -> None:
    chunker = Chunker(lead_frames=4)
    assert chunker.next_look[0] == 5
    assert sizes(chunker, 9, ticking(2 * LONGEST_WAIT_SECONDS)) == [5, 2, 2]


@pytest.mark.parametrize("frame_rate", [37.5, 50.0, 200.0])
def test_no_frame_waits_for_long(frame_rate: float) -> None:
    found = sizes(Chunker(), 200, ticking(1 / frame_rate))
    assert found[0] == 1
    assert max(found) <= LONGEST_WAIT_SECONDS * frame_rate + 2
    assert max(found) >= LONGEST_WAIT_SECONDS * frame_rate


@pytest.mark.parametrize("clock", [still, ticking(0.06)])
def test_no_frame_is_lost(clock: Callable[[], float]) -> None:
    chunker = Chunker()
    assert sum(sizes(chunker, 77, clock)) == chunker.n_sent < 77
    assert chunker.take(77, 0.0, ends=True) > 0
    assert chunker.n_sent == 77
    assert chunker.take(77, 0.0, ends=True) == 0


def test_a_note_that_is_wanted_whole_comes_whole() -> None:
    chunker = Chunker(whole=True)
    assert sizes(chunker, 1000, ticking(1.0)) == []
    assert chunker.take(1000, 2000.0, ends=True) == 1000


@pytest.mark.parametrize("came_late", [False, True])
def test_a_live_note_comes_frame_by_frame_and_at_once(came_late: bool) -> None:
    chunker = Chunker(is_live=True, came_late=came_late)
    for n in range(1, 50):
        assert chunker.is_urgent
        assert chunker.take(n, 0.0) == 1


def test_only_the_first_chunk_of_another_is_urgent() -> None:
    chunker = Chunker()
    assert chunker.is_urgent
    chunker.take(1, 0.0)
    assert not chunker.is_urgent


def test_a_note_that_came_late_comes_in_fewer_pieces_and_its_first_frame_alone() -> None:
    frame_rate = 37.5
    chunker = Chunker(came_late=True)
    found = sizes(chunker, 200, ticking(1 / frame_rate))
    assert found[0] == 1
    longest = LONGEST_WAIT_AFTER_QUEUING_SECONDS * frame_rate
    assert longest <= min(found[1:]) <= max(found) <= longest + 2


@pytest.mark.parametrize("kind", [{}, {"whole": True}, {"is_live": True}])
@pytest.mark.parametrize("frame_rate", [37.5, 1e9])
def test_to_be_asked_only_when_it_says_makes_no_difference(kind: dict[str, bool], frame_rate: float) -> None:
    often, seldom = Chunker(**kind), Chunker(**kind)
    found: list[tuple[int, int]] = []
    for n in range(1, 300):
        now = n / frame_rate
        n_frames, seconds = seldom.next_look
        asked = seldom.take(n, now) if n >= n_frames or now >= seconds else 0
        found.append((often.take(n, now), asked))
    assert [size for size, _ in found] == [size for _, size in found]
