"""How much may wait, and who may still join."""

from __future__ import annotations

import pytest

from timbrel_server.engine.origin import Origin
from timbrel_server.engine.queue_limits import PATIENT_FACTOR, QueueFull, QueueLimits
from timbrel_server.engine.request import NoteRequest
from timbrel_server.engine.ticket import Ticket


def ticket(caller: str = "", frames: int = 1, *, patient: bool = False) -> Ticket:
    request = NoteRequest((0.0, 0.0), 60, 100, held_frames=frames, seed=0)
    return Ticket(request, lambda delivery: None, Origin(caller, patient=patient))


def fill(limits: QueueLimits, caller: str, frames: int = 1) -> int:
    """How many requests of one caller come in."""
    for n in range(10_000):
        try:
            limits.enter(ticket(caller, frames))
        except QueueFull:
            return n
    raise AssertionError("there is no bound")


def test_so_many_may_wait() -> None:
    limits = QueueLimits(capacity=8, n_frames=1000)
    assert fill(limits, "a") == 8
    limits.leave(ticket("a"))
    assert fill(limits, "a") == 1


def test_so_much_work_may_wait() -> None:
    limits = QueueLimits(capacity=100, n_frames=50)
    assert fill(limits, "a", frames=20) == 2
    assert fill(limits, "a", frames=10) == 1


def test_a_request_larger_than_the_bound_may_wait_alone() -> None:
    limits = QueueLimits(capacity=8, n_frames=5)
    assert fill(limits, "a", frames=9) == 1


def test_a_caller_who_fills_the_queue_keeps_nobody_else_out() -> None:
    limits = QueueLimits(capacity=16, n_frames=10_000)
    assert fill(limits, "greedy") == 16
    assert fill(limits, "greedy") == 0
    assert fill(limits, "modest") == 4, "a quarter more is for those who have less than their share"
    assert fill(limits, "third") == 0


def test_however_many_callers_there_are_the_queue_is_bounded() -> None:
    limits = QueueLimits(capacity=16, n_frames=10_000)
    assert sum(fill(limits, f"caller {number}") for number in range(200)) == 20


def test_those_who_wait_patiently_do_not_take_the_places_of_those_who_do_not() -> None:
    limits = QueueLimits(capacity=4, n_frames=100)
    for _ in range(PATIENT_FACTOR * 4):
        limits.enter(ticket("a", 50, patient=True))
    with pytest.raises(QueueFull):
        limits.enter(ticket("a", patient=True))
    assert fill(limits, "a") == 4
    limits.leave(ticket("a", 50, patient=True))
    limits.enter(ticket("a", patient=True))
