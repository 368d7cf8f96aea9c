from __future__ import annotations

import itertools
import math

import pytest

import timbrel


def test_a_morph_goes_straight_in_even_steps_from_end_to_end() -> None:
    points = timbrel.morph((-0.6, 0.2), (0.3, -0.7), 7)
    assert points[0] == (-0.6, 0.2) and points[-1] == (0.3, -0.7) and len(points) == 7
    lengths = [math.dist(a, b) for a, b in itertools.pairwise(points)]
    assert lengths == pytest.approx([math.dist(points[0], points[-1]) / 6] * 6)


def test_a_morph_of_two_points_of_the_disc_stays_in_it() -> None:
    assert all(math.hypot(*point) <= 1.0 for point in timbrel.morph((0.0, 1.0), (-1.0, 0.0), 99))


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
        ([(0.0, 0.0)], 5, "points"),
        ([(0.0, 0.0), (0.9, 0.9)], 5, "points"),
        ([(0.0, 0.0), (math.nan, 0.0)], 5, "points"),
        ([(0.0, 0.0), (0.1, 0.2, 0.3)], 5, "points"),
        (["Violin", "Flute"], 5, "points"),
    ],
)
def test_bad_paths_are_refused(points: list[tuple[float, float]], steps: int, field: str) -> None:
    with pytest.raises(timbrel.InvalidRequestError) as caught:
        timbrel.path(points, steps)
    assert [each.field for each in caught.value.fields] == [field]
