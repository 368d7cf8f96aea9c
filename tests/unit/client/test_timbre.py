from __future__ import annotations

import pytest

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
    ],
)
def test_reads_points_and_names(text: str, expected: tuple[float, float] | str) -> None:
    assert parse_timbre(text) == expected


@pytest.mark.parametrize("text", ["", "  ", "0.5", "1,2,3"])
def test_refuses_anything_but_two_numbers(text: str) -> None:
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
