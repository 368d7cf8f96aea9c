"""Instruments of a library."""

from __future__ import annotations

import math

import pytest

from timbrel.core.timbre import Instrument
from timbrel.errors import InvalidRequestError
from timbrel.library.plan.voice import (
    NamedPoint,
    grid_points,
    name_voices,
    path_points,
    slug_of,
    tell_untrained,
)

KNOWN = (
    Instrument("Violin", "Strings", (0.5, 0.5), 36, 96),
    Instrument("Lead 1 (square)", "Synth Lead", (-0.5, 0.0), 36, 96),
)


def test_a_name_is_found_whatever_its_case() -> None:
    assert NamedPoint.find("violin", KNOWN) == NamedPoint("Violin", (0.5, 0.5))


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(InvalidRequestError, match=r"no instrument 'Violine'.*did you mean 'Violin'\?"):
        NamedPoint.find("Violine", KNOWN)


def test_a_point_takes_the_family_of_its_nearest_instrument() -> None:
    (voice,) = name_voices([NamedPoint(None, (-0.4, 0.1))], KNOWN)
    assert (voice.nearest, voice.family, voice.slug) == ("Lead 1 (square)", "Synth Lead", "x-0.400y0.100")


def test_the_same_instrument_comes_once_and_slugs_never_collide() -> None:
    points = [NamedPoint("Violin", (0.5, 0.5)), NamedPoint("Violin", (0.5, 0.5))]
    close = [NamedPoint(None, (0.0, 0.0001)), NamedPoint(None, (0.0, -0.0001))]
    assert [voice.slug for voice in name_voices(points + close, KNOWN)] == [
        "Violin",
        "x0.000y0.000",
        "x0.000y0.000-2",
    ]


def test_naming_a_voice_does_not_look_at_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    n_lowered = 0

    class Slug(str):
        def lower(self) -> str:
            nonlocal n_lowered
            n_lowered += 1
            return super().lower()

    monkeypatch.setattr("timbrel.library.plan.voice.slug_of", Slug)
    names = [NamedPoint(f"Voice {number}", (0.0, number / 1000)) for number in range(500)]
    assert len(name_voices(names, KNOWN)) == 500 and n_lowered <= 3 * 500


@pytest.mark.parametrize("point", [(0.8, 0.8), (math.nan, 0.0), (math.inf, 0.0)])
def test_points_outside_of_the_disc_are_refused(point: tuple[float, float]) -> None:
    with pytest.raises(InvalidRequestError, match="outside of the unit disc"):
        name_voices([NamedPoint(None, point)], KNOWN)


def test_slugs_can_stand_in_any_file_name() -> None:
    assert slug_of("Lead 1 (square)") == "Lead-1-square"
    assert slug_of("a=b/c\\d.e") == "a-b-c-d-e"
    assert slug_of("Ж" * 300) == "Ж" * 100, "names of files have 255 bytes"
    assert slug_of("a" * 199 + " b") == "a" * 199
    assert slug_of("My Víolin, Größe \uff13") == "My-Violin-Grosse-3"
    assert slug_of("Ηχώ/Скрипка й") == "Ηχώ-Скрипка-й"
    assert slug_of("?!") == "instrument"
    assert [slug_of(name) for name in ("Aux", "con.", "Com 1", "LPT1")] == [
        *("Aux-instrument", "con-instrument", "Com-1", "LPT1-instrument")  # devices' names, to Windows
    ]


def test_a_grid_covers_the_disc() -> None:
    points = grid_points(5)
    assert len(points) == 13 and (0.0, 0.0) in points and (1.0, 0.0) in points and (-0.5, 0.5) in points
    assert all(math.hypot(*point) <= 1.0 + 1e-9 for point in points)
    assert grid_points(1) == [(0.0, 0.0)]
    for n_across in (0, 2, 201):
        with pytest.raises(InvalidRequestError, match=r"^grid"):
            grid_points(n_across)


def test_a_path_holds_both_ends() -> None:
    assert path_points((-0.5, 0.0), (0.5, 0.2), 3) == [(-0.5, 0.0), (0.0, 0.1), (0.5, 0.2)]
    with pytest.raises(InvalidRequestError, match=r"^path"):
        path_points((0.0, 0.0), (0.5, 0.2), 1)


def test_pitches_that_an_instrument_was_not_trained_on_are_told() -> None:
    known = [
        Instrument("Tuba", "Brass", (0.4, -0.2), 33, 72),
        Instrument("Bassoon", "Reed", (-0.8, 0.0), 33, 84),
        Instrument("Violin", "Strings", (0.1, 0.5), 33, 96),
    ]
    names = [each.name for each in known]
    assert tell_untrained(names, known, range(33, 73)) is None
    told = "Tuba was trained on pitches 33 to 72; beyond, its sound is a guess (24 of 64 here"
    assert tell_untrained([" tuba "], known, range(33, 97)) == f"{told})"
    assert tell_untrained(names, known, range(33, 97)) == f"{told}; so it is with 1 more)"
    assert tell_untrained(["(0.400, -0.200)"], known, [96]) is None
