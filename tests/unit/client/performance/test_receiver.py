from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from requirements_gate import require_module

from timbrel.performance.expression import BRIGHTNESS_DB, PRESSURE_DB, VIBRATO_HERTZ
from timbrel.performance.receiver import BEYOND_BENDS, Receiver
from timbrel.performance.score import ScoreNote
from timbrel.scala import EQUAL_TEMPERAMENT, KeyCents


class Piece:
    """Messages, each a tenth of a second after the one before; the last ends the note that it held."""

    def __init__(self, tuning: KeyCents = EQUAL_TEMPERAMENT) -> None:
        require_module("mido", "midi")
        self.receiver = Receiver(tuning)
        self.time = 0.0

    def send(self, kind: str, **values: Any) -> Piece:
        import mido

        self.receiver.play(self.time, mido.Message(kind, **values))
        self.time += 0.1
        return self

    def control(self, *pairs: tuple[int, int], channel: int = 0) -> Piece:
        for number, value in pairs:
            self.send("control_change", control=number, value=value, channel=channel)
        return self

    def rpn(self, number: int, coarse: int, channel: int = 0) -> Piece:
        return self.control((101, 0), (100, number), (6, coarse), channel=channel)

    def note(self, key: int = 60, channel: int = 0) -> ScoreNote:
        """The note of a key struck now, and held until now and a second more."""
        self.send("note_on", note=key, velocity=90, channel=channel)
        self.time += 0.9
        held = (note for note in self.receiver.finish(self.time) if note.held > 0.5)
        return max(held, key=lambda note: note.start)


def cents(note: ScoreNote, seconds: float) -> float:
    if isinstance(note.cents, float):
        return note.cents
    return float(np.interp(seconds, *np.array(note.cents).T))


def test_a_range_that_changes_bends_what_is_bent_already() -> None:
    piece = Piece().send("pitchwheel", pitch=-8192)
    assert piece.rpn(0, 7).note().cents == -700.0


def test_null_ends_the_choice_of_a_parameter_and_nrpn_is_none() -> None:
    piece = Piece().send("pitchwheel", pitch=4096)
    piece.rpn(0, 4).control((101, 127), (100, 127), (6, 24), (99, 0), (98, 0), (6, 24), (96, 0))
    assert piece.note().cents == 200.0
    assert piece.receiver.unperformed == {"non-registered parameter (NRPN)": 2}


def test_increments_of_a_range_count_cents_and_those_of_coarse_tuning_semitones() -> None:
    piece = Piece().send("pitchwheel", pitch=4096).rpn(0, 1).control((38, 98), *[(96, 0)] * 4)
    assert piece.note().cents == 101.0
    piece = Piece().rpn(2, 64).control((96, 0), (96, 0), (97, 0))
    assert (piece.note().pitch, piece.note().cents) == (61, 0.0)


def test_tunings_move_the_pitch_to_the_nearest_and_bends_do_not() -> None:
    piece = Piece().rpn(2, 76).rpn(1, 96).send("sysex", data=(0x7F, 0x7F, 4, 3, 0, 80))
    note = piece.send("pitchwheel", pitch=8191).note()
    assert (note.pitch, note.cents) == (60 + 13, pytest.approx(-25.0 + 200.0, abs=0.1))


def test_a_vibrato_has_its_rate_and_its_parameters_depth() -> None:
    note = Piece().rpn(5, 1).control((1, 127)).note()
    quarter = 0.25 / VIBRATO_HERTZ
    assert [cents(note, quarter * turn) for turn in (1, 2, 3)] == pytest.approx([100, 0, -100], abs=6.0)


def test_bends_beyond_two_octaves_stop_there_and_are_told() -> None:
    piece = Piece().rpn(0, 96).send("pitchwheel", pitch=8191)
    assert piece.note().cents == 2400.0
    assert piece.receiver.unperformed == {BEYOND_BENDS: 1}


def test_keys_struck_while_the_soft_pedal_is_down_are_softer() -> None:
    piece = Piece().control((67, 127))
    assert piece.note().velocity == 68
    assert piece.control((67, 63)).note().velocity == 90
    assert piece.control((67, 64), (121, 0)).note().velocity == 90, "a reset lifts it"
    zone = Piece().rpn(6, 15).control((67, 127))
    assert zone.note(channel=1).velocity == 68, "a zone's is its manager's"


def test_portamento_comes_from_the_last_key_or_the_one_it_is_told() -> None:
    piece = Piece().control((5, 127), (65, 127))
    piece.send("note_on", note=60, velocity=90).send("note_off", note=60)
    assert cents(piece.note(72), 0.0) == -1200.0
    piece = Piece().control((5, 127), (84, 50))
    first = piece.note(60)
    assert [cents(first, at) for at in (0.0, 1.0)] == pytest.approx([-1000.0, -500.0], abs=10.0)
    assert piece.note(60).cents == 0.0


def test_portamento_begins_at_the_pitch_of_the_key_before_as_it_is_tuned() -> None:
    tuning = tuple(1200 / 19 * (key - 60) - 100.0 * (key - 60) for key in range(128))
    piece = Piece(tuning).control((5, 127), (65, 127))
    piece.send("note_on", note=60, velocity=90).send("note_off", note=60)
    glided = piece.note(67)
    assert 100.0 * glided.pitch + cents(glided, 0.0) == pytest.approx(6000.0, abs=0.1)


def test_a_vibrato_keeps_its_rate_in_a_note_of_ten_minutes() -> None:
    piece = Piece().control((1, 127))
    piece.send("note_on", note=60, velocity=90)
    (note,) = piece.receiver.finish(piece.time + 600.0)
    assert not isinstance(note.cents, float)
    seconds, bend = np.array(note.cents).T
    turns = np.diff(np.sign(bend[np.abs(bend) > 1.0])) != 0
    assert turns.sum() / 2 / seconds[-1] == pytest.approx(VIBRATO_HERTZ, rel=0.01)


def test_the_drum_channel_has_curves_for_whom_a_timbre_plays_it() -> None:
    piece = Piece().send("pitchwheel", pitch=8191, channel=9).send("aftertouch", value=127, channel=9)
    note = piece.note(60, channel=9)
    assert note.cents == pytest.approx(200.0, abs=0.1) and note.level_db[0] == (0.0, PRESSURE_DB)


def test_pressure_of_keys_and_channels_is_the_larger_one() -> None:
    piece = Piece().send("aftertouch", value=64)
    for key in (60, 61):
        piece.send("note_on", note=key, velocity=90)
    piece.send("polytouch", note=60, value=127)
    levels = {note.pitch: note.level_db[-1][1] for note in piece.receiver.finish(piece.time + 1.0)}
    assert levels == {60: PRESSURE_DB, 61: pytest.approx(PRESSURE_DB * 64 / 127, abs=1e-3)}


def test_each_stroke_of_a_key_begins_without_pressure_of_its_own() -> None:
    assert Piece().send("polytouch", note=60, value=127).note(60).level_db == Piece().note(60).level_db


def test_slides_and_pressure_are_brightness() -> None:
    piece = Piece().rpn(6, 5).control((74, 127), channel=1).control((74, 32)).send("aftertouch", value=127)
    slide = BRIGHTNESS_DB * (1.0 - 32 / 63)
    assert piece.note(60, channel=1).brightness_db[0] == (0.0, pytest.approx(slide + PRESSURE_DB, abs=1e-3))
    assert Piece().control((74, 64)).note().brightness_db == ()
    reset = Piece().control((74, 0)).send("sysex", data=(0x7E, 0x7F, 9, 1))
    assert reset.note().brightness_db == ()


def test_zones_share_out_the_channels() -> None:
    """Members' notes are the manager's, those of channel 10, too; ranges hold for all members."""
    piece = Piece().rpn(6, 10).send("program_change", program=40)
    piece.rpn(0, 24, channel=4).send("pitchwheel", pitch=4096, channel=9)
    note = piece.note(60, channel=9)
    assert (note.channel, note.program, note.cents) == (1, 40, 1200.0)
    # The upper zone takes what it asks for: the lower one shrinks to what is left.
    piece = Piece().rpn(6, 10).rpn(6, 6, channel=15).send("pitchwheel", pitch=8191)
    taken = [piece.note(60, channel=channel).channel for channel in range(16)]
    assert taken == [1] * 9 + [16] * 7
    piece = Piece().rpn(6, 10).rpn(6, 0)
    assert piece.note(60, channel=3).channel == 4


def test_the_managers_wheel_and_pedal_are_for_all_its_notes() -> None:
    piece = Piece().rpn(6, 5).send("pitchwheel", pitch=4096).send("pitchwheel", pitch=-171, channel=2)
    piece.control((64, 127))
    piece.send("note_on", note=60, velocity=90, channel=2).send("note_off", note=60, channel=2)
    piece.time += 2.0
    (note,) = piece.receiver.finish(piece.time)
    assert note.held == pytest.approx(2.2) and note.cents == pytest.approx(0.0, abs=0.5)


def test_a_zones_configuration_sets_the_ranges_and_who_leaves_it_is_as_at_the_beginning() -> None:
    piece = Piece().rpn(0, 12).rpn(6, 5).send("pitchwheel", pitch=4096)
    assert piece.note(60, channel=2).cents == 100.0  # of the manager's two semitones
    piece = Piece().rpn(6, 5).send("pitchwheel", pitch=512, channel=2).control((74, 127), channel=2)
    piece.control((64, 127)).rpn(6, 0)
    note = piece.note(60, channel=2)
    assert (note.channel, note.cents, note.brightness_db) == (3, 0.0, ())
    piece = Piece().rpn(6, 5).control((64, 127)).rpn(6, 0).send("pitchwheel", pitch=4096, channel=2)
    piece.send("note_on", note=60, velocity=90, channel=2).send("note_off", note=60, channel=2)
    (note,) = piece.receiver.finish(piece.time + 5.0)
    assert note.cents == 100.0 and note.held == pytest.approx(0.1)  # no pedal that nobody lifts any more


def test_what_channel_10_lacks_as_a_member_of_a_zone_is_told() -> None:
    piece = Piece().rpn(6, 15).control((71, 3), channel=9)
    piece.note(60, channel=9)
    assert (piece.receiver.unperformed, piece.receiver.n_never_let_go) == ({"resonance": 1}, 1)


def test_a_members_release_is_not_moved_by_the_next_note_of_its_channel() -> None:
    """Nor is what the pedal holds."""
    for pedal in (0, 127):
        piece = Piece().rpn(6, 5).control((64, pedal)).send("pitchwheel", pitch=171, channel=2)
        piece.send("note_on", note=60, velocity=90, channel=2)
        piece.send("note_off", note=60, channel=2).send("pitchwheel", pitch=1024, channel=2)
        piece.send("aftertouch", value=127, channel=2).control((74, 127), (1, 127), channel=2)
        later = piece.note(64, channel=2)
        notes = piece.receiver.finish(piece.time)
        first = next(note for note in notes if note.pitch == 60)
        assert (first.cents, first.level_db, first.brightness_db) == (pytest.approx(100.2, abs=0.1), (), ())
        assert cents(later, 0.0) == 600.0 and later.level_db[0] == (0.0, PRESSURE_DB)
    # The manager's are for all notes for as long as they sound.
    piece = Piece().rpn(6, 5).send("note_on", note=60, velocity=90, channel=2)
    piece.send("note_off", note=60, channel=2).send("pitchwheel", pitch=4096)
    (note,) = piece.receiver.finish(piece.time)
    assert cents(note, 0.0) == 0.0 and cents(note, 0.5) == 100.0


@pytest.mark.parametrize(
    "reset",
    [(0x7E, 0x7F, 9, 1), (0x41, 16, 0x42, 0x12, 0x40, 0, 0x7F, 0, 0x41), (0x43, 16, 0x4C, 0, 0, 0x7E, 0)],
)
def test_a_reset_of_the_device_undoes_bends_tunings_and_zones(reset: tuple[int, ...]) -> None:
    piece = Piece().rpn(6, 15).rpn(2, 70).send("pitchwheel", pitch=8191, channel=1).send("sysex", data=reset)
    note = piece.note(60, channel=1)
    assert (note.channel, note.pitch, note.cents) == (2, 60, 0.0)
    assert piece.receiver.unperformed == {}


def tuned_programs() -> Piece:
    """A piece in which tuning program 1 raises middle C by a quarter-tone, and 2 lowers it by one."""
    piece = Piece()
    for program, semitone in ((1, 60), (2, 59)):
        piece.send("sysex", data=(0x7F, 0x7F, 8, 2, program, 1, 60, semitone, 64, 0))
    return piece


def test_a_note_keeps_the_tuning_program_that_its_key_was_struck_with() -> None:
    piece = tuned_programs()
    for program in (1, 2, 0):
        piece.rpn(3, program).note()
        piece.send("note_off", note=60)
    notes = sorted(piece.receiver.finish(piece.time), key=lambda note: note.start)
    assert [100 * note.pitch + cents(note, 0.0) for note in notes] == [6050.0, 5950.0, 6000.0]


def test_a_zones_notes_follow_its_managers_tuning_program() -> None:
    piece = tuned_programs().rpn(6, 15).rpn(3, 1)
    assert piece.note(60, channel=1).cents == 50.0


def test_a_reset_of_the_device_undoes_its_choice_of_a_tuning() -> None:
    piece = tuned_programs().rpn(3, 1)
    piece.send("sysex", data=(0x7E, 0x7F, 8, 8, 3, 0x7F, 0x7F, *[64 + 30] * 12))  # each pitch class
    piece.rpn(5, 12).control((5, 127)).send("sysex", data=(0x7E, 0x7F, 9, 1))
    piece.control((1, 127), (65, 127)).note(67)
    piece.send("note_off", note=67)
    note = piece.note()
    assert cents(note, 0.0) == pytest.approx(0.0) and np.abs(np.array(note.cents)[:, 1]).max() <= 50.0


def test_what_is_not_performed_is_told_of_channels_that_play_and_does_nothing_untold() -> None:
    piece = Piece().control((91, 40), (93, 0), (74, 64), (69, 127), (3, 9), (0, 0), (32, 0))
    piece.control((91, 40), channel=5).send("sysex", data=(0x41, 1, 2, 3))
    piece.control((101, 1), (100, 0), (6, 4)).note()
    assert piece.receiver.unperformed == {
        "reverb": 1,
        "hold 2": 1,
        "controller 3": 1,
        "registered parameter 128": 1,
        "system exclusive message": 1,
    }


XG_ON = (0x43, 0x10, 0x4C, 0, 0, 0x7E, 0)
GENERAL_MIDI_2_ON = (0x7E, 0x7F, 9, 3)
GENERAL_MIDI_ON = (0x7E, 0x7F, 9, 1)


@pytest.mark.parametrize(
    ("system", "bank", "are_drums"),
    [
        (XG_ON, 127, True),
        (XG_ON, 126, True),
        (XG_ON, 64, False),
        (GENERAL_MIDI_2_ON, 120, True),
        (GENERAL_MIDI_2_ON, 121, False),
        (GENERAL_MIDI_ON, 127, False),
        ((), 127, False),  # of GS it is another module's sounds
    ],
)
def test_a_bank_of_drum_kits_makes_any_channel_one_of_drums(
    system: tuple[int, ...], bank: int, are_drums: bool
) -> None:
    piece = Piece()
    if system:
        piece.send("sysex", data=system)
    piece.control((7, 90), (0, bank), channel=10).send("program_change", program=25, channel=10)
    assert piece.note(36, channel=10).is_drum == are_drums
    assert piece.note(36, channel=9).is_drum and not piece.note(36).is_drum
    told = [message.hex() for _, message in piece.receiver.drums if message.channel == 10]
    assert ("BA 07 5A" in told) == are_drums  # how loud the kit is was said before it was one
    assert piece.receiver.unperformed["bank select"] == (not are_drums)
    piece.control((0, 0), channel=10).send("program_change", program=25, channel=10)
    assert not piece.note(36, channel=10).is_drum


def test_roland_makes_parts_of_drums_and_of_pitches() -> None:
    piece = Piece()
    for part, mode in ((0x1A, 1), (0x11, 2), (0x10, 0)):
        piece.send("sysex", data=(0x41, 0x10, 0x42, 0x12, 0x40, part, 0x15, mode, 0))
    are_drums = {channel + 1: piece.note(36, channel=channel).is_drum for channel in (0, 9, 10, 11)}
    assert are_drums == {1: True, 10: False, 11: True, 12: False}
    piece.send("sysex", data=GENERAL_MIDI_ON)
    are_drums = {channel + 1: piece.note(36, channel=channel).is_drum for channel in (0, 9, 10, 11)}
    assert are_drums == {1: False, 10: True, 11: False, 12: False}
