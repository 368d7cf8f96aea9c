"""Whose turn it is among those who wait, how much may wait, and who takes it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from timbrel_server.engine import request_queue
from timbrel_server.engine.request import ClientKey, NoteRequest, RequestHandle
from timbrel_server.engine.request_queue import COMPANY_SECONDS, QueueFull, RequestQueue


@pytest.fixture(autouse=True)
def standing_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's company is over because the test was held up."""
    monkeypatch.setattr(request_queue, "time", SimpleNamespace(monotonic=lambda: 0.0))


def handle(
    caller: str = "", call: object = None, seed: int = 0, frames: int = 10, *, patient: bool = False
) -> RequestHandle:
    request = NoteRequest((0.0, 0.0), 60, 100, held_frames=frames, seed=seed)
    client = ClientKey(caller, object() if call is None else str(call), patient)
    return RequestHandle(request, lambda delivery: None, client)


def endless() -> RequestQueue:
    return RequestQueue(capacity=1_000_000, n_frames=1_000_000_000)


def order(queue: RequestQueue) -> list[tuple[str, int]]:
    return [(each.client.caller, each.request.seed) for each in queue.drain()]


def test_one_caller_is_served_first_come_first_served() -> None:
    queue = endless()
    for seed in range(5):
        queue.put(handle("a", seed=seed))
    assert order(queue) == [("a", seed) for seed in range(5)]


def test_callers_take_turns() -> None:
    queue = endless()
    for seed in range(4):
        queue.put(handle("greedy", seed=seed))
    queue.put(handle("modest", seed=9))
    queue.put(handle("third", seed=7))
    assert order(queue)[:4] == [("greedy", 0), ("modest", 9), ("third", 7), ("greedy", 1)]


def test_the_calls_of_one_caller_take_turns() -> None:
    queue = endless()
    for seed in range(3):
        queue.put(handle("a", "batch", seed))
    queue.put(handle("a", "other", 9))
    assert [seed for _, seed in order(queue)] == [0, 9, 1, 2]


def test_many_calls_of_one_caller_gain_it_nothing() -> None:
    queue = endless()
    for seed in range(50):
        queue.put(handle("greedy", call=seed, seed=seed))
    for seed in range(3):
        queue.put(handle("modest", seed=seed))
    assert [caller for caller, _ in order(queue)[:6]] == ["greedy", "modest"] * 3


def test_a_newcomer_waits_for_one_turn_of_the_others_only() -> None:
    queue = endless()
    for seed in range(10):
        queue.put(handle("greedy", seed=seed, frames=30))
    assert queue.frames_ahead("newcomer") == pytest.approx(30)
    assert queue.frames_ahead("greedy") == pytest.approx(300)


def test_whatever_happens_nothing_is_lost_or_served_twice() -> None:
    random.seed(1)
    queue = endless()
    waiting: set[RequestHandle] = set()
    for step in range(3000):
        match random.choice("aapr"):
            case "a":
                made = handle(random.choice("abcde"), random.randrange(3), step)
                queue.put(made)
                waiting.add(made)
            case "p" if waiting:
                waiting.remove(queue.take())
            case "r" if waiting:
                chosen = random.choice(sorted(waiting, key=lambda each: each.request.seed))
                queue.remove(chosen)
                waiting.remove(chosen)
                assert chosen not in queue
        assert len(queue) == len(waiting)
    assert all(each in queue for each in waiting)
    assert set(queue.drain()) == waiting and len(queue) == 0


def fill(queue: RequestQueue, caller: str, frames: int = 1) -> int:
    """How many requests of one caller come in."""
    for n in range(10_000):
        try:
            queue.put(handle(caller, frames=frames))
        except QueueFull:
            return n
    raise AssertionError("there is no bound")


def has_room(queue: RequestQueue, caller: str) -> bool:
    try:
        queue.check_room(caller)
    except QueueFull:
        return False
    return True


def test_who_would_be_refused_whatever_it_asks_for_can_be_told() -> None:
    rng = random.Random(2)
    queue = RequestQueue(capacity=6, n_frames=60)
    seen: Counter[tuple[bool, bool]] = Counter()
    for _ in range(2000):
        caller, frames = rng.choice("aaaabc"), rng.choice([1, 1, 5, 20])
        expected = has_room(queue, caller)
        try:
            queue.put(handle(caller, frames=frames))
            assert expected
        except QueueFull:
            assert not expected or frames > 1
            seen[expected, frames > 1] += 1
        if len(queue) and rng.random() < 0.4:
            queue.take()
    assert set(seen) == {(False, False), (False, True), (True, True)}


def test_so_many_may_wait() -> None:
    queue = RequestQueue(capacity=8, n_frames=1000)
    assert fill(queue, "a") == 8
    queue.take()
    assert fill(queue, "a") == 1


def test_so_much_work_may_wait() -> None:
    queue = RequestQueue(capacity=100, n_frames=50)
    assert fill(queue, "a", frames=20) == 2
    assert fill(queue, "a", frames=10) == 1


def test_a_request_larger_than_the_bound_may_wait_alone() -> None:
    queue = RequestQueue(capacity=8, n_frames=5)
    assert fill(queue, "a", frames=9) == 1


def test_a_caller_who_fills_the_queue_keeps_nobody_else_out() -> None:
    queue = RequestQueue(capacity=16, n_frames=10_000)
    assert fill(queue, "greedy") == 16
    assert fill(queue, "greedy") == 0
    assert fill(queue, "modest") == 4, "a quarter more is for those who have less than their share"
    assert fill(queue, "third") == 0


def test_however_many_callers_there_are_the_queue_is_bounded() -> None:
    queue = RequestQueue(capacity=16, n_frames=10_000)
    assert sum(fill(queue, f"caller {number}") for number in range(200)) == 20


def test_those_who_wait_patiently_do_not_take_the_places_of_those_who_do_not() -> None:
    queue = RequestQueue(capacity=4, n_frames=100)
    for _ in range(100):
        queue.put(handle("a", frames=50, patient=True))
    assert fill(queue, "a") == 4


class Slots:
    """So many free ones."""

    n_dying = 0

    def __init__(self, n_free: int) -> None:
        self.n_free = n_free


def test_a_request_that_finds_a_free_slot_does_not_count() -> None:
    queue = RequestQueue(capacity=2, n_frames=1000)
    queue.join(Slots(3))
    assert fill(queue, "a") == 5
    assert len(queue) == 5
    assert queue.n_free == -2


def shared_by(*callers: tuple[str, int], share: int = 4) -> Counter[str]:
    """Who has how many of 16 slots, after each caller has asked for so much."""
    queue = RequestQueue(capacity=1000, n_frames=1_000_000, share=share)
    slots = Slots(16)
    queue.join(slots)
    taken: Counter[str] = Counter()
    for caller, n_requests in callers:
        for _ in range(n_requests):
            queue.put(handle(caller))
        while slots.n_free and queue.has_for(slots):
            taken[queue.take().client.caller] += 1
            slots.n_free -= 1
    return taken


def test_one_caller_alone_has_all_slots() -> None:
    assert shared_by(("greedy", 40)) == {"greedy": 16}


def test_in_light_company_a_caller_has_its_share() -> None:
    assert shared_by(("modest", 1), ("greedy", 40)) == {"modest": 1, "greedy": 4}


def test_nobody_is_light_company_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chord of as many notes as a share moves as others do, though somebody else was there long ago."""
    now = [0.0]
    monkeypatch.setattr(request_queue, "time", SimpleNamespace(monotonic=lambda: now[0]))
    queue = RequestQueue(capacity=1000, n_frames=1_000_000, share=4)
    queue.join(Slots(16))
    queue.check_room("other")
    now[0] = 2 * COMPANY_SECONDS
    for _ in range(8):
        assert queue.finds_slot(handle("player"))
        queue.put(handle("player"))
    queue.check_room("other")
    assert not queue.finds_slot(handle("player"))


def test_a_chord_that_is_all_of_a_share_moves_in_light_company() -> None:
    """A header at a time, in a slot that is free."""
    queue = RequestQueue(capacity=1000, n_frames=1_000_000, share=4)
    queue.join(Slots(16))
    for caller in ("modest", *4 * ("player",)):
        queue.put(handle(caller))
    headers = [
        RequestHandle(replace(handle().request, is_header=True), lambda delivery: None, ClientKey("player"))
        for _ in range(2)
    ]
    assert not queue.finds_slot(handle("player"))
    assert queue.finds_slot(headers[0])
    queue.put(headers[0])
    assert not queue.finds_slot(headers[1])
    queue.remove(headers[0])
    assert queue.finds_slot(headers[1])


def test_a_header_that_waits_has_the_next_slot_though_its_caller_has_its_share() -> None:
    queue = RequestQueue(capacity=1000, n_frames=1_000_000, share=2)
    slots = Slots(3)
    queue.join(slots)
    for caller in ("modest", "player", "player"):
        queue.put(handle(caller))
        queue.take()
        slots.n_free -= 1
    header = RequestHandle(
        replace(handle().request, is_header=True), lambda delivery: None, ClientKey("player")
    )
    queue.put(header)
    queue.put(handle("player"))
    assert not queue.finds_room and queue.n_wanted == 0
    slots.n_free += 2
    assert queue.has_for(slots) and queue.take() is header
    assert not queue.has_for(slots)


@pytest.mark.parametrize("at_once", [False, True])
def test_live_notes_go_beyond_a_share_as_long_as_one_stays_free(at_once: bool) -> None:
    queue = RequestQueue(capacity=1000, n_frames=1_000_000, share=4, most_live=15)
    slots = Slots(16)
    queue.join(slots)
    taken: Counter[str] = Counter()

    def ask(caller: str, n: int, frames_ahead: int | None = None) -> None:
        for _ in range(n):
            request = replace(handle().request, frames_ahead=frames_ahead)
            queue.put(RequestHandle(request, lambda delivery: None, ClientKey(caller, caller)))
            while at_once and slots.n_free and queue.has_for(slots):
                take()

    def take() -> None:
        taken[queue.take().client.caller] += 1
        slots.n_free -= 1

    ask("modest", 1)
    ask("player", 20, frames_ahead=9)
    while slots.n_free and queue.has_for(slots):
        take()
    assert taken == {"modest": 1, "player": 11}
    ask("modest", 3)
    while slots.n_free and queue.has_for(slots):
        take()
    assert taken == {"modest": 4, "player": 11}


def test_where_all_ask_for_much_all_slots_are_used() -> None:
    assert shared_by(("other", 10), ("greedy", 40)) == {"other": 10, "greedy": 6}


def test_company_that_is_over_between_two_looks_at_the_clock_promises_nobody_a_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = [0.0]
    clock = SimpleNamespace(monotonic=lambda: looks.pop(0) if len(looks) > 1 else looks[0])
    monkeypatch.setattr(request_queue, "time", clock)
    queue = RequestQueue(capacity=1000, n_frames=1_000_000, share=1, most_live=2)
    slots = Slots(4)
    queue.join(slots)
    request = NoteRequest((0.0, 0.0), 60, 100, held_frames=10, seed=0, frames_ahead=9)
    for _ in range(3):
        queue.put(RequestHandle(request, lambda delivery: None, ClientKey("greedy")))
    for _ in range(2):
        queue.take()
        slots.n_free -= 1
    queue.check_room("modest")
    looks[:] = [0.999 * COMPANY_SECONDS, 1.001 * COMPANY_SECONDS]
    assert not queue.has_for(slots), "two live notes are the most"
    assert not queue.has_for(slots) and len(queue) == 1


def test_a_slot_that_is_left_counts_no_more() -> None:
    queue = RequestQueue(capacity=1000, n_frames=1_000_000, share=2)
    slots = Slots(16)
    queue.join(slots)
    queue.put(handle("modest"))
    queue.take()
    for _ in range(9):
        queue.put(handle("greedy"))
    held = [queue.take() for _ in range(2)]
    assert not queue.has_for(slots)
    queue.leave_slot(held.pop())
    assert queue.has_for(slots) and queue.take().client.caller == "greedy"
    assert not queue.has_for(slots)
    assert len(queue.drain()) == 6 and len(queue) == 0


def test_a_key_that_is_up_before_its_slot_is_taken_is_little_work_ahead() -> None:
    queue = endless()
    queue.join(Slots(1))
    early = handle(frames=100)
    queue.put(early)
    early.release(0)
    assert queue.frames_ahead("") == 1


def test_those_with_more_free_slots_come_first() -> None:
    queue = endless()
    few, many = Slots(1), Slots(3)
    queue.join(few)
    queue.join(many)
    for n_waiting in range(1, 5):
        queue.put(handle())
        assert queue.has_for(many)
        assert queue.has_for(few) == (n_waiting > 2)
    while len(queue):
        queue.take()
    assert not queue.has_for(few) and not queue.has_for(many)


def test_who_has_left_takes_nothing_more() -> None:
    queue = endless()
    one, other = Slots(1), Slots(5)
    queue.join(one)
    queue.join(other)
    queue.leave(other)
    queue.leave(other)
    queue.put(handle())
    assert queue.has_for(one) and not queue.has_for(other)
