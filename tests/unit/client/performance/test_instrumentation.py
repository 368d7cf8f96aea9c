from __future__ import annotations

import json
from pathlib import Path

import pytest
from performance_scores import score_note, score_of

from timbrel import Instrument, InvalidRequestError
from timbrel.performance.instrumentation import (
    OTHER_NAMES,
    PROGRAMS,
    assign_parts,
    nearest_instrument,
    parse_timbres,
    program_of,
)

MAP = Path(__file__).parents[4] / "server" / "bundles" / "default" / "timbre_map.json"

SHIPPED = [
    Instrument(point["instrument"], point["family"], (point["x"], point["y"]), 33, 96)
    for point in json.loads(MAP.read_text())["points"]
]


FEW = (
    *(
        "Acoustic Grand Piano",
        "Celesta",
        "Marimba",
        "Vibraphone",
        "Reed Organ",
        "Accordion",
        "Banjo",
        "Sitar",
    ),
    *(
        "Acoustic Guitar (nylon)",
        "Acoustic Guitar (steel)",
        "Acoustic Bass",
        "Violin",
        "Cello",
        "Orchestral Harp",
    ),
    *(
        "String Ensemble 1",
        "Choir Aahs",
        "Trumpet",
        "Trombone",
        "French Horn",
        "Soprano Sax",
        "Oboe",
        "Clarinet",
    ),
    *("Flute", "Pan Flute", "Ocarina", "Lead 1 (square)", "Lead 2 (sawtooth)", "Pad 2 (warm)"),
)


def test_sound_effects_are_played_only_where_a_timbre_is_asked_for_or_the_map_has_them() -> None:
    score = score_of(score_note(program=127), score_note(program=40), score_note(program=119, channel=2))
    made = assign_parts(score, parse_timbres([]), SHIPPED)
    assert [(part.channel, part.program) for part in made] == [(1, 40)]
    asked = assign_parts(score, parse_timbres(["2=Marimba"]), SHIPPED)
    assert [(part.channel, part.program, part.player) for part in asked][1:] == [(2, 119, "Marimba")]
    assert len(assign_parts(score, parse_timbres(["Violin"]), SHIPPED)) == 3
    gunshot = Instrument("Gunshot", "Effects", (0.0, 0.0), 33, 96)
    assert [part.player for part in assign_parts(score, parse_timbres([]), [*SHIPPED, gunshot])][1:] == [
        "Gunshot"
    ]


def test_general_midi_has_128_names_each_once() -> None:
    assert len(PROGRAMS) == 128 == len(set(PROGRAMS))
    assert [program_of(name) for name in ("violin", "GUNSHOT", "Kazoo")] == [40, 127, None]
    assert program_of("acoustic  grand piano") == 0


def test_an_instrument_of_the_shipped_map_plays_the_program_of_its_name() -> None:
    named = [each.name for each in SHIPPED if program_of(each.name) is not None]
    assert len(named) > 80
    for name in named:
        found = nearest_instrument(PROGRAMS.index(name), SHIPPED)
        assert found is not None and found.name == name


@pytest.mark.parametrize(
    ("program", "player"),
    [
        ("Violin", "Violin"),
        ("Viola", "Violin"),
        ("Contrabass", "Cello"),
        ("Pizzicato Strings", "Orchestral Harp"),
        ("Honky-tonk Piano", "Acoustic Grand Piano"),
        ("Church Organ", "Reed Organ"),
        ("Electric Guitar (clean)", "Acoustic Guitar (steel)"),
        ("Slap Bass 2", "Acoustic Bass"),
        ("Tuba", "Trombone"),
        ("Tenor Sax", "Soprano Sax"),
        ("Bassoon", "Clarinet"),
        ("Recorder", "Flute"),
        ("Lead 8 (bass + lead)", "Lead 2 (sawtooth)"),
        ("Koto", "Banjo"),
        ("Steel Drums", "Vibraphone"),
    ],
)
def test_a_program_is_played_by_its_namesake_or_the_nearest_of_its_family(program: str, player: str) -> None:
    few = [Instrument(name, "", (0.0, 0.0), 33, 96) for name in FEW]
    found = nearest_instrument(PROGRAMS.index(program), few)
    assert found is not None and found.name == player


@pytest.mark.parametrize(
    ("program", "player"),
    [
        ("Tinkle Bell", "Music Box"),
        ("Agogo", "Tubular Bells"),
        ("Steel Drums", "Steel Pan"),
        ("Woodblock", "Xylophone"),
        ("Taiko Drum", "Tuned Membrane"),
        ("Timpani", "Tuned Membrane"),
        ("FX 8 (sci-fi)", "Pad 8 (sweep)"),
    ],
)
def test_what_is_struck_is_not_played_by_a_reed(program: str, player: str) -> None:
    """Of families that the map that ships has nothing of, nor a pad by something plucked."""
    found = nearest_instrument(PROGRAMS.index(program), SHIPPED)
    assert found is not None and found.name == player


def test_every_family_that_the_map_has_keeps_its_programs() -> None:
    families = {number // 8 for each in SHIPPED if (number := program_of(each.name)) is not None}
    for program in sorted(set(range(128)) - OTHER_NAMES.keys()):
        found = nearest_instrument(program, SHIPPED)
        assert found is not None
        chosen = program_of(found.name)
        assert chosen is not None
        if program // 8 in families:
            assert chosen // 8 == program // 8, PROGRAMS[program]


DRUM = score_note(channel=10, is_drum=True)


def test_programs_are_cast_and_the_reason_is_told() -> None:
    score = score_of(score_note(program=40), score_note(channel=2, program=41), DRUM)
    parts = assign_parts(score, parse_timbres([]), SHIPPED)
    assert [(part.channel, part.player, part.reason) for part in parts] == [
        (1, "Violin", "same name"),
        (2, "Violin", "nearest"),
    ]


def test_wishes_go_before_programs_and_a_channels_before_everyones() -> None:
    score = score_of(*(score_note(channel=channel) for channel in (1, 2)), DRUM)
    parts = assign_parts(score, parse_timbres(["flute", "2=0.1,-0.25", "10=Marimba"]), SHIPPED)
    assert [(part.channel, part.player, part.reason) for part in parts] == [
        (1, "Flute", "asked"),
        (2, "(0.100, -0.250)", "asked"),
        (10, "Marimba", "asked"),
    ]
    assert parts[1].timbre == (0.1, -0.25)


@pytest.mark.parametrize(
    ("texts", "word"),
    [
        (["17=Violin"], "channel 17"),
        (["0=Violin"], "channel 0"),
        (["1=Violin", "1=Flute"], "twice"),
        (["Violin", "Flute"], "second"),
        (["1="], "timbre"),
        (["0.1,0.2,0.3"], "timbre"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(texts: list[str], word: str) -> None:
    with pytest.raises(InvalidRequestError, match=word):
        parse_timbres(texts)


@pytest.mark.parametrize(
    ("text", "word"),
    [("Violinn", "did you mean 'Violin'"), ("3=Violin", "channel 3 has no notes"), ("2,0", "unit disc")],
)
def test_what_the_piece_or_the_map_has_not_is_refused(text: str, word: str) -> None:
    with pytest.raises(InvalidRequestError, match=word):
        assign_parts(score_of(score_note()), parse_timbres([text]), SHIPPED)


def test_a_map_without_general_midis_names_still_plays() -> None:
    own = [Instrument("Glass harp", "Mine", (0.1, 0.2), 36, 96)]
    (part,) = assign_parts(score_of(score_note()), parse_timbres([]), own)
    assert (part.player, part.reason) == ("Glass harp", "nearest")
    with pytest.raises(InvalidRequestError, match="names no instruments"):
        assign_parts(score_of(score_note()), parse_timbres([]), [])
