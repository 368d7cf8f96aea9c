from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from timbrel import Instrument
from timbrel.timbre_map.text import draw_text

MAP = Path(__file__).parents[4] / "server" / "bundles" / "default" / "timbre_map.json"

SHIPPED = [
    Instrument(each["instrument"], each["family"], (each["x"], each["y"]), 33, 96)
    for each in json.loads(MAP.read_text())["points"]
]

TOLD_APART = [each for each in SHIPPED if sum(each.name[:20] in other.name for other in SHIPPED) == 1]
"""Those whose names, cut short, are no part of another's."""

SGR = re.compile(r"\x1b\[\d+m")


@pytest.mark.parametrize("width", [24, 40, 57, 60, 80, 100, 132, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_every_instrument_is_named_once_and_no_line_is_too_long(width: int, unicode: bool) -> None:
    text = draw_text(SHIPPED, width, colour=False, unicode=unicode)
    assert max(len(line) for line in text.splitlines()) <= width
    assert text.isascii() != unicode
    assert len(TOLD_APART) > 100
    for each in TOLD_APART:
        # On a narrow map a long name is cut in the list below; its beginning is there.
        assert len(re.findall(re.escape(each.name[:20]), text)) == 1


def test_a_wide_terminal_names_nearly_all_beside_their_points() -> None:
    text = draw_text(SHIPPED, 132, colour=False, unicode=True)
    beside = [each for each in SHIPPED if f"● {each.name}" in text or f"{each.name} ●" in text]
    assert len(beside) >= 30


def test_points_lie_where_they_are() -> None:
    corners = [
        Instrument(name, "F", point, 36, 96)
        for name, point in (("N", (0.0, 1.0)), ("S", (0.0, -1.0)), ("E", (1.0, 0.0)), ("W", (-1.0, 0.0)))
    ]
    lines = draw_text(corners, 80, colour=False, unicode=True).splitlines()
    middle = len(lines) // 2
    assert "● N" in lines[0] and "● S" in lines[-1]
    assert lines[middle].index("W") < lines[middle].index("┼") < lines[middle].index("E")
    assert lines[0].index("●") == lines[middle].index("┼")
    # A disc, not an ellipse: cells are twice as high as wide.
    assert len(lines) * 2 == pytest.approx(80 - 16, abs=2)


def test_colours_are_added_and_nothing_else_changes() -> None:
    plain = draw_text(SHIPPED, 100, colour=False, unicode=True)
    coloured = draw_text(SHIPPED, 100, colour=True, unicode=True)
    assert SGR.search(plain) is None
    bare = SGR.sub("", coloured)
    assert bare.startswith(plain.split("\n\n")[0])
    for family in {each.family for each in SHIPPED}:
        assert family in bare


def test_a_map_without_names_says_so() -> None:
    assert "no instruments" in draw_text([], 40, colour=False, unicode=True)
