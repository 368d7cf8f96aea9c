from __future__ import annotations

from timbrel.performance.channel import HeldKeys, Press


def lengths(keys: HeldKeys) -> list[tuple[int, float, float]]:
    """(pitch, start, held) of each finished note, in order."""
    return sorted((press.key, press.start, held) for press, held in keys.notes)


def test_a_note_lasts_from_press_to_release() -> None:
    keys = HeldKeys()
    keys.press(Press(1.0, 60, 80, 40))
    keys.release(1.5, 60)
    assert keys.notes == [(Press(1.0, 60, 80, 40), 0.5)]


def test_velocity_0_is_a_release() -> None:
    keys = HeldKeys()
    keys.press(Press(0.0, 60, 80, 0))
    keys.press(Press(0.25, 60, 0, 0))
    assert lengths(keys) == [(60, 0.0, 0.25)]


def test_a_release_of_a_key_that_is_not_down_does_nothing() -> None:
    keys = HeldKeys()
    keys.release(0.0, 60)
    keys.silence(1.0)
    assert keys.notes == []


def test_overlapping_equal_pitches_end_the_oldest_first() -> None:
    keys = HeldKeys()
    keys.press(Press(0.0, 60, 80, 0))
    keys.press(Press(1.0, 60, 90, 0))
    keys.release(1.5, 60)
    keys.release(3.0, 60)
    assert lengths(keys) == [(60, 0.0, 1.5), (60, 1.0, 2.0)]


def test_the_pedal_holds_what_is_let_go_until_it_comes_up() -> None:
    keys = HeldKeys()
    keys.press(Press(0.0, 60, 80, 0))
    keys.pedal(0.1, 64)
    keys.release(0.5, 60)
    keys.press(Press(0.6, 64, 80, 0))
    keys.pedal(2.0, 63)
    assert lengths(keys) == [(60, 0.0, 2.0)]  # 64 is still held by its key
    keys.release(3.0, 64)
    assert lengths(keys) == [(60, 0.0, 2.0), (64, 0.6, 2.4)]


def test_a_key_struck_again_ends_the_note_that_only_the_pedal_holds() -> None:
    keys = HeldKeys()
    keys.pedal(0.0, 127)
    keys.press(Press(0.0, 60, 80, 0))
    keys.release(0.5, 60)
    keys.press(Press(1.0, 60, 80, 0))
    assert lengths(keys) == [(60, 0.0, 1.0)]


def test_sostenuto_holds_what_sounded_as_it_went_down_and_nothing_else() -> None:
    keys = HeldKeys()
    keys.pedal(0.0, 127)
    for start, key in ((0.0, 48), (0.1, 60)):
        keys.press(Press(start, key, 80, 0))
    keys.release(0.2, 48)
    keys.sostenuto(0.5, 64)
    keys.pedal(0.6, 0)
    keys.release(0.7, 60)
    keys.press(Press(1.0, 64, 80, 0))
    keys.sostenuto(1.2, 127)  # it is down
    keys.release(1.5, 64)
    assert lengths(keys) == [(64, 1.0, 0.5)]
    keys.press(Press(2.0, 60, 80, 0))  # struck again, it is caught no more
    keys.release(2.5, 60)
    assert lengths(keys) == [(60, 0.1, 1.9), (60, 2.0, 0.5), (64, 1.0, 0.5)]
    keys.pedal(2.8, 127)
    keys.sostenuto(3.0, 0)
    assert len(keys.notes) == 3  # the other pedal has it now
    keys.pedal(4.0, 0)
    assert lengths(keys)[0] == (48, 0.0, 4.0)


def test_all_keys_up_leaves_the_pedal_its_notes_and_silence_does_not() -> None:
    keys = HeldKeys()
    keys.pedal(0.0, 127)
    keys.press(Press(0.0, 60, 80, 0))
    keys.release_all(0.5)
    assert keys.notes == []
    keys.press(Press(1.0, 67, 80, 0))
    keys.silence(2.0)
    assert lengths(keys) == [(60, 0.0, 2.0), (67, 1.0, 1.0)]
