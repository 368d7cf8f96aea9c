"""What is held out of training."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from timbrel_training.notes.general_midi import PROGRAM_NAMES
from timbrel_training.notes.split import Split, SplitRule

PITCHES = range(36, 97)


def splits(rule: SplitRule, instruments: tuple[str, ...]) -> dict[tuple[str, int], Split]:
    return {(name, pitch): rule.split_of(name, pitch) for name in instruments for pitch in PITCHES}


def test_about_the_asked_fraction_of_cells_is_held_out() -> None:
    held_out = [s is Split.HELD_OUT_CELL for s in splits(SplitRule(0.08), PROGRAM_NAMES).values()]
    assert 0.07 < sum(held_out) / len(held_out) < 0.09


def test_every_instrument_is_mostly_trained() -> None:
    table = splits(SplitRule(0.08), PROGRAM_NAMES)
    for name in PROGRAM_NAMES:
        assert sum(table[name, pitch] is Split.TRAIN for pitch in PITCHES) > 45


def test_the_split_does_not_depend_on_what_else_there_is() -> None:
    rule = SplitRule(0.08, instrument_fraction=0.1)
    everything = splits(rule, PROGRAM_NAMES)
    for cell, split in splits(rule, PROGRAM_NAMES[50:40:-1]).items():
        assert everything[cell] is split


def test_known_cells_stay_where_they_are() -> None:
    """The hash is part of the format: a change of it would train on what was held out."""
    held_out = [p for p in PITCHES if SplitRule().split_of("Violin", p) is Split.HELD_OUT_CELL]
    assert held_out == [71, 74, 77, 84]


def test_whole_instruments_are_held_out_by_name_and_by_fraction() -> None:
    rule = SplitRule(instruments=("Oboe",))
    assert {rule.split_of("Oboe", pitch) for pitch in PITCHES} == {Split.HELD_OUT_INSTRUMENT}
    assert Split.HELD_OUT_INSTRUMENT not in {rule.split_of("Flute", pitch) for pitch in PITCHES}
    table = splits(SplitRule(0.0, instrument_fraction=0.2), PROGRAM_NAMES)
    whole = [{table[name, pitch] for pitch in PITCHES} for name in PROGRAM_NAMES]
    assert all(len(parts) == 1 for parts in whole)
    assert 15 < whole.count({Split.HELD_OUT_INSTRUMENT}) < 36


def test_another_salt_gives_another_split() -> None:
    assert splits(SplitRule(), PROGRAM_NAMES) != splits(SplitRule(salt="other"), PROGRAM_NAMES)


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_fractions_are_checked(value: float) -> None:
    with pytest.raises(ValueError, match="cell_fraction must be at least 0 and below 1"):
        SplitRule(cell_fraction=value)


def test_a_family_is_held_out_with_all_its_instruments() -> None:
    rule = SplitRule(families=("Reed",))
    assert {rule.split_of("Oboe", pitch, "Reed") for pitch in PITCHES} == {Split.HELD_OUT_INSTRUMENT}
    assert Split.HELD_OUT_INSTRUMENT not in {rule.split_of("Oboe", pitch, "Pipe") for pitch in PITCHES}


def test_held_out_names_are_read_in_any_case_and_those_that_nothing_has_are_told() -> None:
    rule = SplitRule(0.0, instruments=("viola", "Voice of Angels", "Vioal"), families=("ORGAN", "Orgna"))
    there = [("Viola", "Strings"), ("Voice of Clouds", "Voices"), ("Drawbar", "Organ"), ("Flute", "Pipe")]
    held_out = [rule.split_of(name, 60, family) is Split.HELD_OUT_INSTRUMENT for name, family in there]
    assert held_out == [True, True, True, False]
    assert rule.unmatched(there) == ["Vioal", "Orgna"]


def test_instruments_are_trained_at_pitches_as_far_apart_as_a_samplers() -> None:
    rule = SplitRule(0.0, spacings=(2, 12))
    table = splits(rule, PROGRAM_NAMES)
    for name in PROGRAM_NAMES:
        trained = [pitch for pitch in PITCHES if table[name, pitch] is Split.TRAIN]
        assert rule.spacing(name) in (2, 12)
        assert trained == [pitch for pitch in PITCHES if pitch % rule.spacing(name) == 0]
        assert rule.spacing(f"{name} of MuseScore") == rule.spacing(name)
    assert {rule.spacing(name) for name in PROGRAM_NAMES} == {2, 12}
    assert SplitRule().spacing("Oboe") == 1


def test_a_rule_is_read_as_it_was_written_and_an_older_one_as_it_was_meant() -> None:
    rule = SplitRule(0.1, instruments=("Oboe",), spacings=(2, 12))
    written = asdict(rule)
    assert SplitRule.from_json(json.loads(json.dumps(written))) == rule
    assert SplitRule.from_json({name: written[name] for name in written if name != "spacings"}) == SplitRule(
        0.1, instruments=("Oboe",)
    )


def test_spacings_are_checked() -> None:
    with pytest.raises(ValueError, match="spacings must be at least 1 semitone, got 0"):
        SplitRule(spacings=(0,))
