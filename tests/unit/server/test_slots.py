"""A slot's states."""

from __future__ import annotations

import pytest

from timbrel_server.progress import TokenLayout
from timbrel_server.request import NoteRequest
from timbrel_server.slots import Slot, SlotState
from timbrel_server.ticket import Finish, Ticket

EOS = 11
LAYOUT = TokenLayout(n_codebooks=2, bos_id=10, eos_id=EOS, max_frames=5)


def ticket(held_frames: int = 2) -> Ticket:
    return Ticket(NoteRequest((0.0, 0.0), 60, 100, held_frames, seed=0), lambda delivery: None)


def test_goes_through_its_states_in_order() -> None:
    slot = Slot(0)
    states = [slot.state]
    slot.occupy(ticket(), LAYOUT)
    for drawn in ([1, 1], [2, 2], [3, 3], [EOS, 4]):
        states.append(slot.state)
        slot.advance(drawn)
    states.append(slot.state)
    slot.release()
    states.append(slot.state)
    writing = [SlotState.WRITING] * 4
    assert states == [SlotState.FREE, *writing, SlotState.DONE, SlotState.FREE]


def test_flushes_while_later_codebooks_catch_up() -> None:
    slot = Slot(0)
    slot.occupy(ticket(), TokenLayout(n_codebooks=4, bos_id=10, eos_id=EOS, max_frames=5))
    slot.advance([1, 0, 0, 0])
    slot.advance([EOS, 2, 0, 0])
    flushing = (slot.state, slot.finish)
    slot.advance([0, 0, 3, 0])
    assert slot.advance([0, 0, 0, 4]) == (1, 2, 3, 4)
    assert flushing == (SlotState.FLUSHING, None)
    assert (slot.state, slot.finish) == (SlotState.DONE, Finish.EOS)


def test_the_gate_closes_after_the_held_frames() -> None:
    slot = Slot(0)
    slot.occupy(ticket(held_frames=2), LAYOUT)
    gate = []
    for _ in range(4):
        gate.append(slot.held)
        slot.advance([1, 1])
    assert gate == [True, True, False, False]


def test_an_abandoned_note_has_no_finish() -> None:
    slot = Slot(0)
    slot.occupy(ticket(), LAYOUT)
    slot.advance([1, 1])
    slot.abandon()
    assert slot.state is SlotState.DONE
    assert slot.finish is None


@pytest.mark.parametrize(
    "misuse", [Slot.release, lambda slot: slot.advance([1, 1]), lambda slot: slot.ticket]
)
def test_a_free_slot_refuses_what_needs_a_note(misuse: object) -> None:
    assert callable(misuse)
    with pytest.raises(RuntimeError, match="slot 3"):
        misuse(Slot(3))


def test_an_occupied_slot_takes_no_second_note() -> None:
    slot = Slot(0)
    slot.occupy(ticket(), LAYOUT)
    with pytest.raises(RuntimeError, match="cannot go from WRITING to WRITING"):
        slot.occupy(ticket(), LAYOUT)
