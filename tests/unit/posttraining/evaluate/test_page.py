"""The report's pictures."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest

from timbrel.timbre_map.picture import Box
from timbrel_posttraining.evaluate.page import MARK, TEXT, map_svg

SVG = "{http://www.w3.org/2000/svg}"


def test_names_of_a_crowded_map_keep_off_each_other_and_off_points() -> None:
    rng = np.random.default_rng(0)
    places = np.arange(162)
    turns, radii = 2.4 * places, np.sqrt((places + 0.5) / len(places))  # a sunflower's seeds, jostled
    points = radii[:, None] * np.stack([np.cos(turns), np.sin(turns)], 1) + rng.normal(0, 0.02, (162, 2))
    names = [f"Electric Guitar {place} <of a font>"[: 8 + place % 27] for place in places]
    families = [("Guitar", "Bass", "Strings & Co")[place % 3] for place in places]
    root = ElementTree.fromstring(map_svg(points, names, families, points + 0.01, families))
    labels = [each for each in root.iter(f"{SVG}text") if each.get("textLength")]
    assert [each.text for each in labels] == names
    boxes = []
    for each in labels:
        left, base, width = (float(each.get(name, "nan")) for name in ("x", "y", "textLength"))
        boxes.append(Box(left, -base - TEXT / 5, left + width, -base + 4 * TEXT / 5))
    marks = [Box(x - MARK, y - MARK, x + MARK, y + MARK) for x, y in points.tolist()]
    hidden = sum(one.shared_area(other) for one, other in combinations(boxes, 2))
    hidden += sum(box.shared_area(mark) for box in boxes for mark in marks)
    whole = sum((box.right - box.left) * (box.top - box.bottom) for box in boxes)
    assert hidden < 0.02 * whole


@pytest.mark.parametrize("count", [0, 1000])
def test_a_map_of_none_and_of_too_many_to_name_is_drawn(count: int) -> None:
    points, families = np.zeros((count, 2)), ["<Guitar>"] * count
    root = ElementTree.fromstring(map_svg(points, ["<name> &"] * count, families, points, families))
    assert len([each for each in root.iter(f"{SVG}circle")]) == 1 + 2 * count + len(set(families))
    assert [each.text for each in root.iter(f"{SVG}text")] == sorted(set(families))
