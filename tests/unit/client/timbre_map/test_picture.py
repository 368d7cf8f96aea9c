from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest
from requirements_gate import require_module

from timbrel.core.timbre import Instrument
from timbrel.timbre_map.picture import INCHES, MOST_NAMES, Box, draw_map, inches, place_labels

MAP = Path(__file__).parents[4] / "server" / "bundles" / "default" / "timbre_map.json"
FRAME = Box(-1.2, -1.2, 1.2, 1.2)
MARK = 0.014


def shipped() -> list[tuple[str, tuple[float, float]]]:
    return [(each["instrument"], (each["x"], each["y"])) for each in json.loads(MAP.read_text())["points"]]


def check(points: list[tuple[float, float]], boxes: list[Box]) -> None:
    """No name lies on another name or on a mark, or leaves the frame."""
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    for box in boxes:
        assert FRAME.left <= box.left and box.right <= FRAME.right
        assert FRAME.bottom <= box.bottom and box.top <= FRAME.top
        for x, y in points:
            assert not box.overlaps(Box(x - MARK, y - MARK, x + MARK, y + MARK))


def test_the_shipped_maps_names_overlap_nothing() -> None:
    points = [point for _, point in shipped()]
    scale = INCHES / inches(len(points))
    sizes = [(0.018 * scale * len(name), 0.04 * scale) for name, _ in shipped()]
    boxes = place_labels(points, sizes, MARK, FRAME)
    check(points, boxes)


@pytest.mark.parametrize("seed", range(3))
def test_crowds_find_room(seed: int) -> None:
    draw = random.Random(seed)
    points = [(draw.gauss(0, 0.3), draw.gauss(0, 0.3)) for _ in range(40)]
    check(points, place_labels(points, [(0.2, 0.035)] * 40, MARK, FRAME))


def test_a_lone_name_stands_to_the_right_of_its_mark() -> None:
    (box,) = place_labels([(0.0, 0.0)], [(0.2, 0.04)], MARK, FRAME)
    assert MARK < box.left < 3 * MARK
    assert box.bottom == pytest.approx(-0.02)


def test_names_at_the_frames_edge_and_beside_obstacles_give_way() -> None:
    (box,) = place_labels([(1.15, 0.0)], [(0.3, 0.04)], MARK, FRAME)
    assert box.right < 1.15
    (box,) = place_labels([(0.0, 0.0)], [(0.2, 0.04)], MARK, FRAME, [Box(0.1, -0.5, 0.12, 0.5)])
    assert box.right < 0.0


def test_where_there_is_no_room_at_all_a_place_is_given_nevertheless() -> None:
    boxes = place_labels([(0.0, 0.0)] * 3, [(2.3, 2.3)] * 3, MARK, FRAME)
    assert len(boxes) == 3


def test_names_are_no_mathematics(tmp_path: Path) -> None:
    require_module("matplotlib", "demo")
    instruments = [
        Instrument("$\\frac{$", "$_$", (0.1, 0.2), 36, 94),
        Instrument("$ $", "", (0.0, 0.0), 36, 94),
    ]
    draw_map(instruments, tmp_path / "map.png", "$\\nothing$")
    assert (tmp_path / "map.png").stat().st_size > 0


def test_equal_maps_make_equal_pictures_whatever_a_user_s_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module("matplotlib", "demo")
    import matplotlib

    pictures = []
    for has_latex_for_texts in (False, True):
        monkeypatch.setitem(matplotlib.rcParams, "text.usetex", has_latex_for_texts)
        draw_map([Instrument("Violin", "Strings", (0.1, 0.2), 36, 94)], tmp_path / "map.png", "map")
        pictures.append((tmp_path / "map.png").read_bytes())
    assert pictures[0] == pictures[1]


def test_a_crowd_is_drawn_without_names(tmp_path: Path) -> None:
    """Places for the names of ten thousand would be sought for hours."""
    require_module("matplotlib", "demo")
    draw = random.Random(1)
    crowd = [
        Instrument(f"name {number}", "family", (draw.uniform(-0.7, 0.7), draw.uniform(-0.7, 0.7)), 36, 94)
        for number in range(10 * MOST_NAMES)
    ]
    draw_map(crowd, tmp_path / "map.png", "crowd")
    assert (tmp_path / "map.png").stat().st_size > 0
