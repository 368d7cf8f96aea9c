from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

import timbrel
from timbrel.core.timbre import instrument_point, parse_timbre
from timbrel.errors import InvalidRequestError
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MAP = pb.TimbreMap(points=[pb.TimbrePoint(instrument=name, x=0.5) for name in ("Violin", "Viola", "Flute")])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.2,-0.4", (0.2, -0.4)),
        (" -1, 0 ", (-1.0, 0.0)),
        ("Violin", "Violin"),
        (" Piano, Grand ", "Piano, Grand"),
        ("808", "808"),
    ],
)
def test_reads_points_and_names(text: str, expected: tuple[float, float] | str) -> None:
    assert parse_timbre(text) == expected


@pytest.mark.parametrize("text", ["", "  ", "0.5", "-1", "1,2,3"])
def test_refuses_other_numbers_of_numbers(text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_timbre(text)
    assert caught.value.fields[0].field == "timbre"


def test_finds_an_instrument_whatever_the_case() -> None:
    assert instrument_point(MAP, "violin") == (0.5, 0.0)


def test_an_unknown_instrument_suggests_the_nearest() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        instrument_point(MAP, "Violinn")
    assert caught.value.fields[0].field == "timbre"
    assert "Violin" in str(caught.value) and "Viola" in str(caught.value)


def test_a_morph_goes_straight_in_even_steps_from_end_to_end() -> None:
    points = timbrel.morph((-0.6, 0.2), (0.3, -0.7), 7)
    assert points[0] == (-0.6, 0.2) and points[-1] == (0.3, -0.7) and len(points) == 7
    lengths = [math.dist(a, b) for a, b in itertools.pairwise(points)]
    assert lengths == pytest.approx([math.dist(points[0], points[-1]) / 6] * 6)


def test_a_morph_of_two_points_of_the_disc_stays_in_it() -> None:
    assert all(math.hypot(*point) <= 1.0 for point in timbrel.morph((0.0, 1.0), (-1.0, 0.0), 99))


def test_a_morph_between_names_says_where_their_points_are() -> None:
    with pytest.raises(InvalidRequestError, match=r"as Client\.point gives of a name, got 'Violin'"):
        timbrel.morph("Violin", "Flute", 5)  # type: ignore[arg-type]


def test_a_path_goes_by_length_and_not_by_corner() -> None:
    points = timbrel.path([(0.0, 0.0), (0.1, 0.0), (0.1, 0.0), (0.1, 0.9)], 11)
    assert points[0] == (0.0, 0.0) and points[-1] == (0.1, 0.9)
    assert points[1] == pytest.approx((0.1, 0.0))
    assert points[6] == pytest.approx((0.1, 0.5))


def test_a_path_that_goes_nowhere_stays_there() -> None:
    assert timbrel.morph((0.5, 0.5), (0.5, 0.5), 4) == [(0.5, 0.5)] * 4


@pytest.mark.parametrize(
    ("points", "steps", "field"),
    [
        ([(0.0, 0.0), (0.5, 0.0)], 1, "steps"),
        ([(0.0, 0.0), (0.5, 0.0)], 2.5, "steps"),
        ([(0.0, 0.0)], 5, "points"),
        ([(0.0, 0.0), (0.9, 0.9)], 5, "points"),
        ([(0.0, 0.0), (math.nan, 0.0)], 5, "points"),
        ([(0.0, 0.0), (0.1, 0.2, 0.3)], 5, "points"),
        (["Violin", "Flute"], 5, "points"),
    ],
)
def test_bad_paths_are_refused(points: list[tuple[float, float]], steps: Any, field: str) -> None:
    with pytest.raises(timbrel.InvalidRequestError) as caught:
        timbrel.path(points, steps)
    assert [each.field for each in caught.value.fields] == [field]
