from __future__ import annotations

from timbrel.performance.keyboard import Keyboard


def lengths(keyboard: Keyboard) -> list[tuple[int, float, float]]:
    """(pitch, start, held) of each finished note, in order."""
    return sorted((note.pitch, note.start, note.held) for note in keyboard.notes)


def test_a_note_lasts_from_press_to_release_and_keeps_its_velocity_and_program() -> None:
    keyboard = Keyboard(3)
    keyboard.press(1.0, 60, 80, 40)
    keyboard.release(1.5, 60)
    (note,) = keyboard.notes
    assert (note.channel, note.pitch, note.velocity, note.program) == (3, 60, 80, 40)
    assert (note.start, note.held) == (1.0, 0.5)


def test_velocity_0_is_a_release() -> None:
    keyboard = Keyboard(1)
    keyboard.press(0.0, 60, 80, 0)
    keyboard.press(0.25, 60, 0, 0)
    assert lengths(keyboard) == [(60, 0.0, 0.25)]


def test_a_release_of_a_key_that_is_not_down_does_nothing() -> None:
    keyboard = Keyboard(1)
    keyboard.release(0.0, 60)
    keyboard.silence(1.0)
    assert keyboard.notes == []


def test_overlapping_equal_pitches_end_the_oldest_first() -> None:
    keyboard = Keyboard(1)
    keyboard.press(0.0, 60, 80, 0)
    keyboard.press(1.0, 60, 90, 0)
    keyboard.release(1.5, 60)
    keyboard.release(3.0, 60)
    assert lengths(keyboard) == [(60, 0.0, 1.5), (60, 1.0, 2.0)]


def test_the_pedal_holds_what_is_let_go_until_it_comes_up() -> None:
    keyboard = Keyboard(1)
    keyboard.press(0.0, 60, 80, 0)
    keyboard.pedal(0.1, 64)
    keyboard.release(0.5, 60)
    keyboard.press(0.6, 64, 80, 0)
    keyboard.pedal(2.0, 63)
    assert lengths(keyboard) == [(60, 0.0, 2.0)]  # 64 is still held by its key
    keyboard.release(3.0, 64)
    assert lengths(keyboard) == [(60, 0.0, 2.0), (64, 0.6, 2.4)]


def test_a_key_struck_again_ends_the_note_that_only_the_pedal_holds() -> None:
    keyboard = Keyboard(1)
    keyboard.pedal(0.0, 127)
    keyboard.press(0.0, 60, 80, 0)
    keyboard.release(0.5, 60)
    keyboard.press(1.0, 60, 80, 0)
    assert lengths(keyboard) == [(60, 0.0, 1.0)]


def test_all_keys_up_leaves_the_pedal_its_notes_and_silence_does_not() -> None:
    keyboard = Keyboard(1)
    keyboard.pedal(0.0, 127)
    keyboard.press(0.0, 60, 80, 0)
    keyboard.release_all(0.5)
    assert keyboard.notes == []
    keyboard.press(1.0, 67, 80, 0)
    keyboard.silence(2.0)
    assert lengths(keyboard) == [(60, 0.0, 2.0), (67, 1.0, 1.0)]
