"""The demo's draw: by hash, over families and registers."""

from __future__ import annotations

from timbrel import Instrument
from timbrel.demo.plan import draw_instruments, plan_notes

FAMILIES = ("Strings", "Winds", "Keys")
MAP = [
    Instrument(f"{family} {number}", family, (0.0, 0.0), 21, 108)
    for family in FAMILIES
    for number in range(5)
]
BUNDLE_RANGE = (30, 100)


def test_draws_the_same_whatever_the_order_of_the_map() -> None:
    assert plan_notes(MAP, 3, 4, BUNDLE_RANGE) == plan_notes(MAP[::-1], 3, 4, BUNDLE_RANGE)


def test_takes_every_family_before_any_twice() -> None:
    assert {each.family for each in draw_instruments(MAP, 3)} == set(FAMILIES)
    drawn = [each.family for each in draw_instruments(MAP, 7)]
    assert sorted(map(drawn.count, FAMILIES)) == [2, 2, 3]


def test_pitches_stay_where_instrument_bundle_and_tracker_reach_and_are_spread() -> None:
    flute = Instrument("Flute", "Winds", (0.0, 0.0), 60, 96)
    pitches = [note.pitch for note in plan_notes([flute], 1, 4, (30, 90))]
    assert len(set(pitches)) == 4
    assert pitches == sorted(pitches)
    assert 60 <= pitches[0] < 68 and 82 < pitches[-1] <= 90
    wide = plan_notes(MAP, 15, 6, (0, 127))
    assert all(36 <= note.pitch <= 94 for note in wide)


def test_leaves_out_what_never_sounds_within_the_limits() -> None:
    piccolo = Instrument("Piccolo", "Winds", (0.0, 0.0), 95, 108)
    narrow = Instrument("Narrow", "Keys", (0.0, 0.0), 60, 61)
    plan = plan_notes([piccolo, narrow], 2, 4, (0, 127))
    assert [(note.instrument.name, note.pitch) for note in plan] == [("Narrow", 60), ("Narrow", 61)]
    assert plan_notes([], 3, 4, BUNDLE_RANGE) == []


def test_files_are_named_by_the_midi_number() -> None:
    note = plan_notes([Instrument("Tremolo / Strings", "Strings", (0.0, 0.0), 60, 60)], 1, 1, BUNDLE_RANGE)[0]
    assert note.file_name == "tremolo-strings_060.wav"
