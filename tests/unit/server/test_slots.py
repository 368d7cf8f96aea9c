"""A slot's states."""

from __future__ import annotations

import pytest

from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.request import Finish, NoteRequest, RequestHandle
from timbrel_server.engine.slots import Slot, SlotState

EOS = 11
LAYOUT = TokenLayout(n_codebooks=2, bos_id=10, eos_id=EOS, max_frames=5)


def handle(held_frames: int = 2) -> RequestHandle:
    return RequestHandle(NoteRequest((0.0, 0.0), 60, 100, held_frames, seed=0), lambda delivery: None)


def test_goes_through_its_states_in_order() -> None:
    slot = Slot(0)
    states = [slot.state]
    slot.occupy(handle(), LAYOUT)
    for drawn in ([1, 1], [2, 2], [3, 3], [EOS, 4]):
        states.append(slot.state)
        slot.advance(drawn)
    states.append(slot.state)
    slot.vacate()
    states.append(slot.state)
    writing = [SlotState.WRITING] * 4
    assert states == [SlotState.FREE, *writing, SlotState.DONE, SlotState.FREE]


def test_flushes_while_later_codebooks_catch_up() -> None:
    slot = Slot(0)
    slot.occupy(handle(), TokenLayout(n_codebooks=4, bos_id=10, eos_id=EOS, max_frames=5))
    slot.advance([1, 0, 0, 0])
    slot.advance([EOS, 2, 0, 0])
    flushing = (slot.state, slot.finish)
    slot.advance([0, 0, 3, 0])
    assert slot.advance([0, 0, 0, 4]) == (1, 2, 3, 4)
    assert flushing == (SlotState.FLUSHING, None)
    assert (slot.state, slot.finish) == (SlotState.DONE, Finish.EOS)


def test_the_gate_closes_after_the_held_frames() -> None:
    slot = Slot(0)
    slot.occupy(handle(held_frames=2), LAYOUT)
    gate = []
    for _ in range(4):
        gate.append(slot.held)
        slot.advance([1, 1])
    assert gate == [True, True, False, False]


def gates(slot: Slot, releases_before: int | None = None, releases_during: int | None = None) -> list[bool]:
    """What five steps read, the key released before one of them or while it is being run."""
    gate = []
    for step in range(5):
        if step == releases_before:
            slot.release()
        slot.begin_step()
        gate.append(slot.held)
        if step == releases_during:
            slot.release()
        slot.advance([1, 1])
    return gate


@pytest.mark.parametrize("step", [1, 2, 4])
def test_a_release_closes_the_gate_of_the_next_step(step: int) -> None:
    slot = Slot(0)
    slot.occupy(handle(held_frames=50), LAYOUT)
    assert gates(slot, releases_before=step) == [True] * step + [False] * (5 - step)
    assert slot.handle.held_frames == step


def test_a_release_leaves_the_step_that_is_being_run_alone() -> None:
    slot = Slot(0)
    slot.occupy(handle(held_frames=50), LAYOUT)
    assert gates(slot, releases_during=2) == [True] * 3 + [False] * 2
    assert slot.handle.held_frames == 3


def test_a_note_is_held_for_one_frame_at_least_or_as_many_as_it_says() -> None:
    slot = Slot(0)
    slot.occupy(handle(held_frames=50), LAYOUT)
    assert gates(slot, releases_before=0) == [True] + [False] * 4
    slot = Slot(0)
    slot.occupy(RequestHandle(NoteRequest((0.0, 0.0), 60, 100, 50, 0, least_held_frames=3), print), LAYOUT)
    assert gates(slot, releases_before=0) == [True] * 3 + [False] * 2


def test_a_second_release_and_one_after_the_end_change_nothing() -> None:
    slot = Slot(0)
    slot.occupy(handle(held_frames=2), LAYOUT)
    assert gates(slot, releases_before=4) == [True] * 2 + [False] * 3
    slot.release()
    assert slot.handle.held_frames == 2


def test_a_live_note_is_due_with_the_ticks_until_its_key_is_up() -> None:
    slot = Slot(0)
    slot.occupy(
        RequestHandle(NoteRequest((0.0, 0.0), 60, 100, 50, 0, frames_ahead=2), print), LAYOUT, tick=100
    )
    due_at_100 = []
    for _ in range(3):
        due_at_100.append(slot.is_due(100))
        slot.begin_step()
        slot.advance([1, 1])
    assert due_at_100 == [True, True, False]
    assert (slot.is_due(101), slot.is_due(102)) == (False, True)
    slot.release()
    assert slot.is_due(100)


def test_an_abandoned_note_has_no_finish() -> None:
    slot = Slot(0)
    slot.occupy(handle(), LAYOUT)
    slot.advance([1, 1])
    slot.abandon()
    assert slot.state is SlotState.DONE
    assert slot.finish is None


@pytest.mark.parametrize("misuse", [Slot.vacate, lambda slot: slot.advance([1, 1]), lambda slot: slot.handle])
def test_a_free_slot_refuses_what_needs_a_note(misuse: object) -> None:
    assert callable(misuse)
    with pytest.raises(RuntimeError, match="slot 3"):
        misuse(Slot(3))


def test_an_occupied_slot_takes_no_second_note() -> None:
    slot = Slot(0)
    slot.occupy(handle(), LAYOUT)
    with pytest.raises(RuntimeError, match="cannot go from WRITING to WRITING"):
        slot.occupy(handle(), LAYOUT)
