"""Pitches and velocities as people write them."""

from __future__ import annotations

import pytest

from timbrel.errors import InvalidRequestError
from timbrel.library.plan.ranges import CHORDS, parse_chords, parse_pitches, parse_velocities


@pytest.mark.parametrize(
    ("text", "pitches"),
    [
        ("60", (60,)),
        ("48-60:3", (48, 51, 54, 57, 60)),
        ("48-60:5", (48, 53, 58)),
        ("60-62", (60, 61, 62)),
        ("C4", (60,)),
        ("c4,A4", (60, 69)),
        ("C3-C4:4", (48, 52, 56, 60)),
        ("F#3,Gb3,Bb-1", (10, 54)),
        ("F♯3,B♭3", (54, 58)),
        ("72, 60-64:2 ,60", (60, 62, 64, 72)),
        ("C-1-C0:6", (0, 6, 12)),
        ("0,127", (0, 127)),
    ],
)
def test_pitches(text: str, pitches: tuple[int, ...]) -> None:
    assert parse_pitches(text) == pitches


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("60-50", "'60-50' runs downwards; write the lower end first, 50-60"),
        ("C9x", "'C9x' is not understood"),
        ("H4", "'H4' is not understood"),
        ("", "'' is not understood"),
        ("60,,62", "'' is not understood"),
        ("60-70:0", "a step of 0; 1 or more is allowed"),
        ("128", "128 is out of range; 0 to 127"),
        ("60-200", "200 is out of range"),
        ("A9", "A9 is out of range"),
        ("C10", "C10 is out of range"),
        ("60:3", "'60:3' is not understood"),
        ("60.5", "'60.5' is not understood"),
    ],
)
def test_bad_pitches_are_told_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_pitches(text)
    assert complaint in str(caught.value)
    assert str(caught.value).startswith("pitches: ") and "\n" not in str(caught.value)


def test_velocities() -> None:
    assert parse_velocities("120,40,80") == (40, 80, 120)
    assert parse_velocities("20-100:40") == (20, 60, 100)


@pytest.mark.parametrize("text", ["0", "128", "90-80", "C4", "loud", "-5"])
def test_bad_velocities(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"^velocities: "):
        parse_velocities(text)


def test_chords_by_name_and_by_semitones() -> None:
    assert parse_chords("maj, min7,0-5-10,7-0-7") == {
        "maj": (0, 4, 7),
        "min7": (0, 3, 7, 10),
        "0-5-10": (0, 5, 10),
        "7-0-7": (0, 7),
    }


def test_named_chords_begin_with_their_key_and_rise() -> None:
    assert all(tones[0] == 0 and list(tones) == sorted(set(tones)) for tones in CHORDS.values())
