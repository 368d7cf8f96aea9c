"""Whose turn it is among those who wait."""

from __future__ import annotations

import random

import pytest

from timbrel_server.engine.fair_queue import FairQueue
from timbrel_server.engine.origin import Origin
from timbrel_server.engine.request import NoteRequest
from timbrel_server.engine.ticket import Ticket


def ticket(caller: str = "", call: object = None, seed: int = 0, frames: int = 10) -> Ticket:
    request = NoteRequest((0.0, 0.0), 60, 100, held_frames=frames, seed=seed)
    origin = Origin(caller) if call is None else Origin(caller, str(call))
    return Ticket(request, lambda delivery: None, origin)


def order(queue: FairQueue) -> list[tuple[str, int]]:
    return [(each.origin.caller, each.request.seed) for each in queue.drain()]


def test_one_caller_is_served_first_come_first_served() -> None:
    queue = FairQueue()
    for seed in range(5):
        queue.append(ticket("a", seed=seed))
    assert order(queue) == [("a", seed) for seed in range(5)]


def test_callers_take_turns() -> None:
    queue = FairQueue()
    for seed in range(4):
        queue.append(ticket("greedy", seed=seed))
    queue.append(ticket("modest", seed=9))
    queue.append(ticket("third", seed=7))
    assert order(queue)[:4] == [("greedy", 0), ("modest", 9), ("third", 7), ("greedy", 1)]


def test_the_calls_of_one_caller_take_turns() -> None:
    queue = FairQueue()
    for seed in range(3):
        queue.append(ticket("a", "batch", seed))
    queue.append(ticket("a", "other", 9))
    assert [seed for _, seed in order(queue)] == [0, 9, 1, 2]


def test_many_calls_of_one_caller_gain_it_nothing() -> None:
    queue = FairQueue()
    for seed in range(50):
        queue.append(ticket("greedy", call=seed, seed=seed))
    for seed in range(3):
        queue.append(ticket("modest", seed=seed))
    assert [caller for caller, _ in order(queue)[:6]] == ["greedy", "modest"] * 3


def test_what_is_put_back_is_next() -> None:
    queue = FairQueue()
    for caller in "abc":
        queue.append(ticket(caller, seed=1))
        queue.append(ticket(caller, seed=2))
    queue.popleft()
    second = queue.popleft()
    queue.appendleft(second)
    assert queue.popleft() is second


def test_frames_of_work_are_counted() -> None:
    queue = FairQueue()
    tickets = [ticket("a", seed=seed, frames=10 * (seed + 1)) for seed in range(3)]
    for each in tickets:
        queue.append(each)
    assert queue.n_frames == 60
    queue.remove(tickets[1])
    assert queue.n_frames == 40
    queue.popleft()
    assert queue.n_frames == 30


def test_a_newcomer_waits_for_one_turn_of_the_others_only() -> None:
    queue = FairQueue()
    for seed in range(10):
        queue.append(ticket("greedy", seed=seed, frames=30))
    assert queue.frames_ahead("newcomer") == pytest.approx(30)
    assert queue.frames_ahead("greedy") == pytest.approx(300)


def test_whatever_happens_nothing_is_lost_or_served_twice() -> None:
    random.seed(1)
    queue = FairQueue()
    waiting: set[Ticket] = set()
    for step in range(3000):
        match random.choice("aaprt"):
            case "a":
                made = ticket(random.choice("abcde"), random.randrange(3), step)
                queue.append(made)
                waiting.add(made)
            case "p" if waiting:
                waiting.remove(queue.popleft())
            case "r" if waiting:
                chosen = random.choice(sorted(waiting, key=lambda each: each.request.seed))
                queue.remove(chosen)
                waiting.remove(chosen)
                assert chosen not in queue
            case "t" if waiting:
                queue.appendleft(queue.popleft())
        assert len(queue) == len(waiting)
    assert all(each in queue for each in waiting)
    assert set(queue.drain()) == waiting and len(queue) == 0 and queue.n_frames == 0
