"""What steps have to deliver, until it is handed out."""

from __future__ import annotations

import pytest

from timbrel_server.engine.outbox import LONGEST_HOLD_SECONDS, Outbox
from timbrel_server.engine.request import NoteRequest
from timbrel_server.engine.ticket import Delivery, Finish, Ticket


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
def outbox(clock: Clock) -> Outbox:
    return Outbox(clock)


def ticket() -> Ticket:
    return Ticket(NoteRequest((0.0, 0.0), pitch=60, velocity=100, held_frames=5, seed=0), lambda _: None)


def test_what_can_wait_goes_out_with_what_cannot(outbox: Outbox) -> None:
    patient, hasty = ticket(), ticket()
    outbox.put(patient, Delivery([(1,)]), urgent=False)
    assert not outbox.take(again_in_seconds=0.0)
    outbox.put(hasty, Delivery([(2,)]), urgent=True)
    assert outbox.take(again_in_seconds=0.0) == [(patient, Delivery([(1,)])), (hasty, Delivery([(2,)]))]
    outbox.put(patient, Delivery([(3,)]), urgent=False)
    assert not outbox.take(again_in_seconds=0.0)


def test_nothing_waits_longer_than_it_may(outbox: Outbox, clock: Clock) -> None:
    first, second = ticket(), ticket()
    outbox.put(first, Delivery([(1,)]), urgent=False)
    clock.now += 0.75 * LONGEST_HOLD_SECONDS
    outbox.put(second, Delivery([(2,)]), urgent=False)
    assert not outbox.take(again_in_seconds=0.0)
    clock.now += 0.5 * LONGEST_HOLD_SECONDS
    assert [of for of, _ in outbox.take(again_in_seconds=0.0)] == [first, second]


def test_what_would_wait_too_long_goes_out_early(outbox: Outbox) -> None:
    note = ticket()
    outbox.put(note, Delivery([(1,)]), urgent=False)
    assert not outbox.take(again_in_seconds=0.9 * LONGEST_HOLD_SECONDS)
    assert outbox.take(again_in_seconds=1.1 * LONGEST_HOLD_SECONDS) == [(note, Delivery([(1,)]))]


def test_nothing_waits_where_nothing_will_be_taken_soon(outbox: Outbox) -> None:
    patient = ticket()
    outbox.put(patient, Delivery([(1,)]), urgent=False)
    assert outbox.take() == [(patient, Delivery([(1,)]))]
    assert not outbox.take()


def test_deliveries_of_one_note_become_one_in_their_order(outbox: Outbox) -> None:
    note = ticket()
    outbox.put(note, Delivery([(1,), (2,)]), urgent=False)
    outbox.put(note, Delivery([(3,)]), urgent=False)
    outbox.put(note, Delivery(finish=Finish.EOS), urgent=False)
    assert outbox.take() == [(note, Delivery([(1,), (2,), (3,)], Finish.EOS))]


def test_what_is_dropped_never_goes_out(outbox: Outbox) -> None:
    gone, other = ticket(), ticket()
    for note in (gone, other):
        outbox.put(note, Delivery([(1,)]), urgent=False)
    outbox.drop(gone)
    outbox.drop(gone)
    assert [of for of, _ in outbox.take()] == [other]
