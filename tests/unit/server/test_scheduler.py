"""Which note stands in which row, and when it is due."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest

from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.request import ClientKey, NoteRequest, RequestHandle
from timbrel_server.engine.request_queue import RequestQueue
from timbrel_server.engine.scheduler import FrameClock, Scheduler

EOS = 11
LAYOUT = TokenLayout(n_codebooks=2, bos_id=10, eos_id=EOS, max_frames=50)
BUCKETS = (1, 2, 4)


def handle(seed: int = 0) -> RequestHandle:
    return RequestHandle(NoteRequest((0.0, 0.0), 60, 100, held_frames=3, seed=seed), lambda delivery: None)


def scheduler(*, waiting: int = 0, compacts: bool = True) -> tuple[Scheduler, RequestQueue]:
    queue = RequestQueue(capacity=1000, n_frames=1_000_000)
    made = Scheduler(LAYOUT, BUCKETS, queue, compacts=compacts)
    for seed in range(waiting):
        queue.put(handle(seed))
    return made, queue


def rows(notes: Iterable[tuple[int, RequestHandle]]) -> dict[int, int]:
    """Row -> seed of the note in it."""
    return {row: handle.request.seed for row, handle in notes}


def end(scheduler: Scheduler, *seeds: int) -> None:
    """Lets the notes of these seeds end."""
    for _, handle in scheduler.slots:
        if handle.request.seed in seeds:
            scheduler.slots.end(handle)


def test_first_come_first_served_into_the_lowest_rows() -> None:
    made, queue = scheduler(waiting=6)
    assert rows(made.admit().begun) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert len(queue) == 2


def test_a_note_joins_while_others_are_running() -> None:
    made, queue = scheduler(waiting=2)
    made.admit()
    queue.put(handle(seed=7))
    assert rows(made.admit().begun) == {2: 7}
    assert rows(made.slots) == {0: 0, 1: 1, 2: 7}


def test_a_waiting_note_takes_the_row_of_one_that_ended() -> None:
    made, _ = scheduler(waiting=5)
    made.admit()
    end(made, 1)
    admission = made.admit()
    assert rows(admission.begun) == {1: 4}
    assert not admission.moves


def test_the_highest_note_moves_down_where_a_smaller_bucket_would_do() -> None:
    made, _ = scheduler(waiting=3)
    made.admit()
    end(made, 0)
    assert made.admit().moves == [(2, 0)]
    assert rows(made.slots) == {0: 2, 1: 1}


def test_a_gap_that_no_smaller_bucket_would_close_stays() -> None:
    made, _ = scheduler(waiting=4)
    made.admit()
    end(made, 1)
    assert not made.admit().moves
    assert rows(made.slots) == {0: 0, 2: 2, 3: 3}


def test_nothing_moves_where_rows_cannot() -> None:
    made, _ = scheduler(waiting=3, compacts=False)
    made.admit()
    end(made, 0, 1)
    assert not made.admit().moves
    assert rows(made.slots) == {2: 2}


def test_a_cancelled_note_frees_its_slot_with_the_next_admission() -> None:
    made, _ = scheduler(waiting=2)
    made.admit()
    made.slots.end(dict(made.slots)[0])
    assert rows(made.slots) == {1: 1}
    made.admit()
    assert made.slots.n_occupied == 1


def test_cancelling_what_has_ended_changes_nothing() -> None:
    made, _ = scheduler(waiting=1)
    [(_, gone)] = made.admit().begun
    end(made, 0)
    made.admit()
    made.slots.end(gone)
    assert not made.has_work(tick=0)


def test_a_closed_scheduler_gives_up_what_runs_and_takes_no_more() -> None:
    made, queue = scheduler(waiting=6)
    running = [handle for _, handle in made.admit().begun]
    assert made.close() == running
    assert made.slots.n_occupied == 0
    assert not made.has_work(tick=0)
    assert not made.admit().begun
    assert len(queue) == 2


def test_any_history_keeps_every_note_in_one_row_of_the_smallest_bucket() -> None:
    rng = random.Random(0)
    made, queue = scheduler()
    where: dict[int, int] = {}  # seed -> row, as told by the admissions
    for seed in range(400):
        if len(queue) < 10 and rng.random() < 0.7:
            queue.put(handle(seed))
        for _, handle_ in made.slots:
            if rng.random() < 0.3:
                where.pop(handle_.request.seed)
                made.slots.end(handle_)
        admission = made.admit()
        where |= {seed: row for row, seed in rows(admission.begun).items()}
        for source, target in admission.moves:
            assert target not in where.values()
            where = {seed: target if row == source else row for seed, row in where.items()}
        assert {seed: row for row, seed in rows(made.slots).items()} == where
        n_active = len(where)
        smallest = next(bucket for bucket in BUCKETS if bucket >= n_active)
        assert all(row < smallest for row in where.values())


@pytest.mark.parametrize(
    ("now", "tick"), [(0.0, 0), (0.019, 0), (0.021, 1), (1.0, 50), (1e6 + 0.01, 50_000_000)]
)
def test_a_tick_is_a_frame_of_real_time(now: float, tick: int) -> None:
    assert FrameClock(50.0, lambda: now).tick == tick


@pytest.mark.parametrize("now", [0.0, 0.005, 0.0199999, 123.456, 1e6])
def test_sleeping_until_the_next_tick_reaches_it_and_no_further(now: float) -> None:
    clock = FrameClock(50.0, lambda: now)
    later = FrameClock(50.0, lambda: now + clock.seconds_to_next + 1e-6)
    assert 0 < clock.seconds_to_next <= 0.02 + 1e-9
    assert later.tick == clock.tick + 1


def held_on(seed: int, caller: str) -> RequestHandle:
    request = NoteRequest((0.0, 0.0), 60, 100, held_frames=1, seed=seed, held_on_frames=99, frames_ahead=9)
    return RequestHandle(request, lambda delivery: None, ClientKey(caller))


def test_where_keys_are_held_in_every_slot_who_has_most_lets_go_of_the_one_held_longest() -> None:
    made, queue = scheduler()
    for seed, caller in enumerate(["one", "two", "two", "two"]):
        queue.put(held_on(seed, caller))
    made.admit()
    given = made.slots.begin_step(0)
    assert given is not None
    made.slots.end_step(np.ones((4, 2), np.int64), 0.0)
    assert not made.has_work(0), "keys that are held on wait, and do not spin"
    queue.put(handle(seed=7))
    assert made.has_work(0)
    for _ in range(3):  # one slot is wanted, and one key goes up
        made.admit()
        assert [held.request.seed for held in made.slots.standing] == [0, 2, 3]
    end(made, 1)
    assert rows(made.admit().begun) == {1: 7}
    assert len(made.slots.standing) == 3


def test_no_key_goes_up_for_one_that_may_have_the_slot_of_a_header() -> None:
    made, queue = scheduler()
    held = [held_on(seed, "one") for seed in range(3)]
    request = NoteRequest((0.0, 0.0), 60, 100, held_frames=5, seed=3, is_header=True)
    header = RequestHandle(request, lambda delivery: None, ClientKey("one"))
    for each in (*held, header):
        queue.put(each)
    made.admit()
    made.slots.begin_step(0)
    made.slots.end_step(np.ones((4, 2), np.int64), 0.0)
    queue.put(held_on(4, "one"))
    made.admit()
    assert made.slots.standing == held and not any(each.is_released for each in held)
    made.slots.end(header)
    assert rows(made.admit().begun) == {3: 4}
    queue.put(held_on(5, "one"))
    made.admit()
    assert [each.is_released for each in held] == [True, False, False]


def test_of_two_engines_whose_keys_are_all_held_on_one_lets_one_go_for_one_request() -> None:
    queue = RequestQueue(capacity=1000, n_frames=1_000_000)
    engines = [Scheduler(LAYOUT, BUCKETS, queue) for _ in range(2)]
    held = [held_on(seed, "one") for seed in range(8)]
    for each in held:
        queue.put(each)
    for engine in engines:
        engine.admit()
        assert engine.slots.begin_step(0) is not None
        engine.slots.end_step(np.ones((4, 2), np.int64), 0.0)
    assert sum(len(engine.slots.standing) for engine in engines) == 8
    queue.put(handle(seed=9))
    for engine in engines * 2:
        engine.admit()
    assert sum(each.is_released for each in held) == 1


def live(seed: int, caller: str) -> RequestHandle:
    request = NoteRequest((0.0, 0.0), 60, 100, held_frames=40, seed=seed, frames_ahead=9)
    return RequestHandle(request, lambda delivery: None, ClientKey(caller))


def test_who_has_more_than_a_fair_share_of_live_keys_makes_room_for_who_has_less() -> None:
    queue = RequestQueue(capacity=1000, n_frames=1_000_000, share=2)
    made = Scheduler(LAYOUT, BUCKETS, queue)
    for seed in range(8):
        queue.put(live(seed, "greedy"))
    assert rows(made.admit().begun) == {row: row for row in range(4)}
    made.admit()
    assert len(made.slots.keys_down) == 4, "nobody else waits"
    for seed in range(10, 13):
        queue.put(live(seed, "modest"))
    made.admit()
    assert [held.request.seed for held in made.slots.keys_down] == [2, 3], "two are a fair share"
    end(made, 0, 1)
    assert rows(made.admit().begun) == {0: 10, 1: 11}
    made.admit()
    assert len(made.slots.keys_down) == 4, "both have their share"


def test_no_more_keys_are_let_go_than_are_owed_while_one_has_to_stay_down_yet() -> None:
    queue = RequestQueue(capacity=1000, n_frames=1_000_000, share=2)
    made = Scheduler(LAYOUT, BUCKETS, queue)
    for seed in range(3):
        request = NoteRequest(
            (0.0, 0.0), 60, 100, held_frames=40, seed=seed, least_held_frames=9, frames_ahead=9
        )
        queue.put(RequestHandle(request, lambda delivery: None, ClientKey("greedy")))
    queue.put(live(8, "modest"))
    made.admit()
    queue.put(live(9, "modest"))
    for _ in range(5):  # the first of a chord is let go, and written on for its least hold
        made.admit()
        assert [held.request.seed for held in made.slots.keys_down] == [1, 2, 8]
        given = made.slots.begin_step(0)
        assert given is not None
        made.slots.end_step(np.ones((4, 2), np.int64), 0.0)


def test_live_notes_leave_a_slot_to_who_has_none() -> None:
    queue = RequestQueue(capacity=1000, n_frames=1_000_000, share=1, most_live=3)
    made = Scheduler(LAYOUT, BUCKETS, queue)
    for seed in range(8):
        queue.put(live(seed, "greedy"))
    assert rows(made.admit().begun) == {0: 0, 1: 1, 2: 2}
    assert not made.admit().begun
    queue.put(live(9, "modest"))
    assert rows(made.admit().begun) == {3: 9}
    assert len(made.slots.keys_down) == 4
