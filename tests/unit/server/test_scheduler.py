"""Which note stands in which row."""

from __future__ import annotations

import random

import pytest

from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.request import NoteRequest
from timbrel_server.engine.scheduler import Move, QueueFull, Scheduler
from timbrel_server.engine.slots import Slot
from timbrel_server.engine.ticket import Ticket

EOS = 11
LAYOUT = TokenLayout(n_codebooks=2, bos_id=10, eos_id=EOS, max_frames=50)
BUCKETS = (1, 2, 4)


def ticket(seed: int = 0) -> Ticket:
    return Ticket(NoteRequest((0.0, 0.0), 60, 100, held_frames=3, seed=seed), lambda delivery: None)


def scheduler(
    *, waiting: int = 0, capacity: int = 10, compacts: bool = True
) -> tuple[Scheduler, list[Ticket]]:
    made = Scheduler(LAYOUT, BUCKETS, capacity, compacts=compacts)
    tickets = [ticket(seed) for seed in range(waiting)]
    for each in tickets:
        made.enqueue(each)
    return made, tickets


def rows(slots: list[Slot]) -> dict[int, int]:
    """Row -> seed of the note in it."""
    return {slot.row: slot.ticket.request.seed for slot in slots}


def end(scheduler: Scheduler, *seeds: int) -> None:
    """Lets the notes of these seeds end, as if at once."""
    for slot in scheduler.active:
        if slot.ticket.request.seed in seeds:
            slot.advance([EOS, 0])


def test_first_come_first_served_into_the_lowest_rows() -> None:
    made, _ = scheduler(waiting=6)
    assert rows(list(made.admit().begun)) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert made.n_waiting == 2


def test_a_note_joins_while_others_are_running() -> None:
    made, _ = scheduler(waiting=2)
    made.admit()
    made.enqueue(ticket(seed=7))
    assert rows(list(made.admit().begun)) == {2: 7}
    assert rows(made.active) == {0: 0, 1: 1, 2: 7}


def test_a_waiting_note_takes_the_row_of_one_that_ended() -> None:
    made, _ = scheduler(waiting=5)
    made.admit()
    end(made, 1)
    admission = made.admit()
    assert rows(list(admission.begun)) == {1: 4}
    assert not admission.moves


def test_the_highest_note_moves_down_where_a_smaller_bucket_would_do() -> None:
    made, _ = scheduler(waiting=3)
    made.admit()
    end(made, 0)
    assert made.admit().moves == [Move(source=2, target=0)]
    assert rows(made.active) == {0: 2, 1: 1}


def test_a_gap_that_no_smaller_bucket_would_close_stays() -> None:
    made, _ = scheduler(waiting=4)
    made.admit()
    end(made, 1)
    assert made.admit().moves == []
    assert rows(made.active) == {0: 0, 2: 2, 3: 3}


def test_nothing_moves_where_rows_cannot() -> None:
    made, _ = scheduler(waiting=3, compacts=False)
    made.admit()
    end(made, 0, 1)
    assert made.admit().moves == []
    assert rows(made.active) == {2: 2}


def test_the_queue_is_bounded() -> None:
    made, _ = scheduler(waiting=10)
    with pytest.raises(QueueFull):
        made.enqueue(ticket())
    made.admit()
    made.enqueue(ticket())


def test_a_cancelled_request_leaves_the_queue_at_once() -> None:
    made, tickets = scheduler(waiting=10)
    made.cancel(tickets[4])
    assert made.n_waiting == 9
    made.enqueue(ticket())


def test_a_cancelled_note_frees_its_slot_with_the_next_admission() -> None:
    made, tickets = scheduler(waiting=2)
    made.admit()
    made.cancel(tickets[0])
    assert rows(made.active) == {1: 1}
    made.admit()
    assert made.n_occupied == 1


def test_cancelling_what_has_ended_changes_nothing() -> None:
    made, tickets = scheduler(waiting=1)
    made.admit()
    end(made, 0)
    made.admit()
    made.cancel(tickets[0])
    assert not made.has_work(tick=0)


def test_drain_gives_up_everything() -> None:
    made, tickets = scheduler(waiting=6)
    made.admit()
    assert made.drain() == tickets
    made.admit()
    assert not made.has_work(tick=0)


def test_any_history_keeps_every_note_in_one_row_of_the_smallest_bucket() -> None:
    rng = random.Random(0)
    made, _ = scheduler()
    where: dict[int, int] = {}  # seed -> row, as told by the admissions
    for seed in range(400):
        if made.n_waiting < 10 and rng.random() < 0.7:
            made.enqueue(ticket(seed))
        for slot in made.active:
            if rng.random() < 0.3:
                where.pop(slot.ticket.request.seed)
                if rng.random() < 0.5:
                    slot.advance([EOS, 0])
                else:
                    made.cancel(slot.ticket)
        admission = made.admit()
        where |= {slot.ticket.request.seed: slot.row for slot in admission.begun}
        for move in admission.moves:
            assert move.target not in where.values()
            where = {seed: move.target if row == move.source else row for seed, row in where.items()}
        assert {seed: row for row, seed in rows(made.active).items()} == where
        n_active = len(where)
        smallest = next(bucket for bucket in BUCKETS if bucket >= n_active)
        assert all(row < smallest for row in where.values())
