"""The rows of the batch: occupied, released, due, vacated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.request import Finish, NoteRequest, RequestHandle
from timbrel_server.engine.slots import Slots

EOS = 11
LAYOUT = TokenLayout(n_codebooks=2, bos_id=10, eos_id=EOS, max_frames=5)


def handle(held_frames: int = 2, **fields: int) -> RequestHandle:
    return RequestHandle(
        NoteRequest((0.0, 0.0), 60, 100, held_frames, seed=0, **fields), lambda delivery: None
    )


def slots(*handles: RequestHandle, n_slots: int = 4, tick: int = 0) -> Slots:
    made = Slots(LAYOUT, n_slots)
    for each in handles:
        made.occupy(each, tick)
    return made


def step(
    made: Slots, *drawn: list[int], tick: int = 0, during: Callable[[], None] = lambda: None
) -> list[bool]:
    """Takes a step; returns the gates that it read."""
    given = made.begin_step(tick)
    assert given is not None
    gates: list[bool] = (given.gate > 0).tolist()
    during()
    made.end_step(np.array(drawn), 0.0)
    return gates


def test_notes_take_the_lowest_free_rows() -> None:
    notes = [handle() for _ in range(4)]
    made = slots(*notes[:3])
    made.end(notes[1])
    assert (made.n_active, made.n_occupied, made.done) == (2, 3, {1})
    made.vacate(1)
    assert (made.n_occupied, made.n_rows) == (2, 3)
    assert made.occupy(notes[3]) == 1
    assert list(made) == [(0, notes[0]), (1, notes[3]), (2, notes[2])]


def test_a_row_is_named_when_its_first_frame_is_there_and_when_its_note_ends() -> None:
    made = slots(handle())
    named = []
    for tokens in ([1, 0], [2, 1], [3, 2], [EOS, 3]):
        made.begin_step(0)
        named.append(list(made.end_step(np.array([tokens]), 0.0)))
        if named[-1]:
            made.notes.wake(0, n_frames=100)
    assert named == [[], [0], [], [0]]
    assert made.notes.finish(0) is Finish.EOS


def test_a_note_that_is_given_up_while_a_step_runs_is_not_named() -> None:
    notes = [handle(), handle()]
    made = slots(*notes)
    made.begin_step(0)
    made.end(notes[0])
    assert list(made.end_step(np.array([[EOS, 0], [EOS, 0]]), 0.0)) == [1]


def test_free_rows_stand_at_the_first_position() -> None:
    notes = [handle() for _ in range(3)]
    made = slots(*notes)
    step(made, *[[1, 1]] * 3)
    made.end(notes[1])
    made.vacate(1)
    step(made, *[[1, 1]] * 3)
    given = made.begin_step(0)
    assert given is not None
    assert given.positions.tolist() == [2, 0, 2]
    assert given.active.tolist() == [True, False, True]


def test_a_note_that_moves_down_goes_on_as_it_was() -> None:
    notes = [handle(), handle(held_frames=3)]
    made = slots(*notes)
    step(made, [1, 1], [2, 2])
    made.end(notes[0])
    made.vacate(0)
    assert made.move_down(1) == 0
    assert (made.n_rows, list(made)) == (1, [(0, notes[1])])
    assert [step(made, [3, 3])[0] for _ in range(3)] == [True, True, False]
    assert made.notes.frames(0, 0, 2) == [(2, 3), (3, 3)]


def gates(made: Slots, releases_before: int | None = None, releases_during: int | None = None) -> list[bool]:
    """What four steps read, the key released before one of them or while it is being run."""
    [(_, note)] = made

    def release_in(step: int) -> None:
        if step == releases_during:
            made.release(note)

    gate = []
    for number in range(4):
        if number == releases_before:
            made.release(note)
        gate += step(made, [1, 1], during=lambda number=number: release_in(number))  # type: ignore[misc]
    return gate


def test_the_gate_closes_after_the_held_frames() -> None:
    assert gates(slots(handle(held_frames=2))) == [True, True, False, False]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_release_closes_the_gate_of_the_next_step(number: int) -> None:
    note = handle(held_frames=50)
    assert gates(slots(note), releases_before=number) == [True] * number + [False] * (4 - number)
    assert note.held_frames == number


def test_a_release_leaves_the_step_that_is_being_run_alone() -> None:
    note = handle(held_frames=50)
    assert gates(slots(note), releases_during=2) == [True] * 3 + [False]
    assert note.held_frames == 3


def test_a_note_is_held_for_one_frame_at_least_or_as_many_as_it_says() -> None:
    assert gates(slots(handle(held_frames=50)), releases_before=0) == [True] + [False] * 3
    least = slots(handle(held_frames=50, least_held_frames=3))
    assert gates(least, releases_before=0) == [True] * 3 + [False]


def test_a_second_release_and_one_after_the_end_change_nothing() -> None:
    note = handle(held_frames=2)
    made = slots(note)
    assert gates(made, releases_before=3) == [True] * 2 + [False] * 2
    made.end(note)
    made.release(note)
    made.end(note)
    assert note.held_frames == 2


def test_a_live_note_is_due_with_the_ticks_until_its_key_is_up() -> None:
    note = handle(held_frames=50, frames_ahead=2)
    made = slots(note, tick=100)
    for _ in range(2):
        step(made, [1, 1], tick=100)
    assert made.begin_step(100) is None
    assert (made.is_due(100), made.is_due(101)) == (False, True)
    made.release(note)
    assert made.is_due(100)


def test_a_live_note_that_waits_reads_the_same_again() -> None:
    live = handle(held_frames=50, frames_ahead=1)
    made = slots(live, handle())
    step(made, [1, 1], [1, 1])
    read = []
    for _ in range(2):
        given = made.begin_step(0)
        assert given is not None
        read.append((int(given.positions[0]), given.tokens[0].tolist(), bool(given.gate[0])))
        if len(read) == 2:
            made.release(live)
        made.end_step(np.array([[7, 7], [2, 2]]), 0.0)
    assert read == [(1, [1, 10], True)] * 2
    assert live.held_frames == 1, "the step that was run again has read no gate that counts"


def test_a_free_slot_refuses_what_needs_a_note() -> None:
    made = slots(handle())
    with pytest.raises(RuntimeError, match="slot 3 holds no note"):
        made.handle(3)
    with pytest.raises(KeyError):
        made.vacate(0)
    with pytest.raises(IndexError):
        slots(*[handle() for _ in range(5)])


def test_a_key_that_is_held_on_waits_for_its_release_and_takes_no_steps() -> None:
    note, other = handle(held_frames=1, held_on_frames=9, frames_ahead=50), handle(held_frames=4)
    made = slots(note, other)
    assert step(made, [1, 0], [1, 0]) == [True, True]
    assert made.standing == [note] and made.n_dying == 0
    assert step(made, [7, 7], [2, 1]) == [False, True]  # it runs along, and stays where it is
    assert made.notes.position[:2].tolist() == [1, 2]
    made.release(note)
    assert made.standing == [] and made.n_dying == 1
    assert step(made, [2, 1], [3, 2])[0] is False
    assert made.notes.position[:2].tolist() == [2, 3]
    assert note.held_frames == 1


def test_the_gate_counts_the_frames_since_the_key_went_up() -> None:
    made = Slots(dataclasses.replace(LAYOUT, release_frames=3), 4)
    made.occupy(handle(held_frames=2))
    gates = []
    for frame in range(5):
        given = made.begin_step(0)
        assert given is not None
        gates += given.gate.tolist()
        made.end_step(np.array([[frame, 0]]), 0.0)
    assert gates == [3, 3, 2, 1, 0]


def test_a_key_that_went_up_before_its_note_had_a_slot_is_not_waited_for() -> None:
    note = handle(held_frames=2, held_on_frames=9, frames_ahead=50, least_held_frames=2)
    note.release(0)
    made = slots(note)
    for tokens in ([1, 0], [2, 1], [3, 2]):
        step(made, tokens)
    assert made.standing == []


def test_a_note_that_nobody_plays_live_stands_nowhere() -> None:
    made = slots(handle(held_frames=1, held_on_frames=9))
    step(made, [1, 0])
    assert made.is_due(0) and made.standing == []


def test_a_note_that_stands_still_does_so_in_another_row() -> None:
    first, note = handle(held_frames=4), handle(held_frames=1, held_on_frames=9, frames_ahead=50)
    made = slots(first, note)
    step(made, [1, 0], [1, 0])
    made.end(first)
    made.vacate(0)
    assert made.move_down(1) == 0
    assert made.standing == [note] and not made.is_due(0)
