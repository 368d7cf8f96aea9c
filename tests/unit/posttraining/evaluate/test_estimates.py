"""Estimates with their bootstrap intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from timbrel_posttraining.evaluate import estimates
from timbrel_posttraining.evaluate.sections.identity import ratio_of_shares


def test_the_interval_holds_the_truth_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "N_RESAMPLES", 200)
    rng = np.random.default_rng(3)
    found = [estimates.mean(rng.standard_normal(100) + 2) for _ in range(100)]
    assert 0.87 <= np.mean([estimate.low <= 2 <= estimate.high for estimate in found]) <= 0.99
    width = np.mean([estimate.high - estimate.low for estimate in found])
    assert width == pytest.approx(2 * 1.96 / np.sqrt(100), rel=0.1)


def test_intervals_are_the_same_every_time() -> None:
    values = np.random.default_rng(4).exponential(size=50)
    first = estimates.mean(values)
    assert first == estimates.mean(values)
    assert first.value == np.mean(values) and first.n == 50
    assert first.low <= first.value <= first.high
    assert estimates.mean([0.5]).low == estimates.mean([0.5]).high == 0.5


def test_pairs_are_resampled_together() -> None:
    rng = np.random.default_rng(5)
    difficulty = 10 * rng.standard_normal(200)
    a, b = difficulty + 1 + 0.1 * rng.standard_normal(200), difficulty
    difference = estimates.joint(lambda first, second: first.mean() - second.mean(), a, b)
    assert difference.value == pytest.approx(1, abs=0.05)
    alone = estimates.mean(a)
    assert difference.high - difference.low < 0.1 < alone.high - alone.low


def test_what_is_not_a_number_is_left_out() -> None:
    assert estimates.median([1.0, math.nan, 3.0, 8.0]).value == 3.0
    joint = estimates.joint(lambda a, b: float((a * b).sum()), [1.0, 2.0, math.nan], [1.0, math.nan, 1.0])
    assert (joint.value, joint.n) == (1.0, 1)
    assert estimates.mean([math.nan]) is estimates.NOTHING


def test_a_ratio_has_its_interval_where_few_resamples_have_none(recwarn: pytest.WarningsRecorder) -> None:
    """Of twelve notes a codec keeps four: one resample in 130 holds none of these, and no share of them. Of
    five it keeps two: then it is one in 13."""
    written, kept = np.array([1.0, 0.0, 1.0, 0.0] * 3), np.array([1.0, 1.0, 0.0, 0.0] * 3)
    kept[8:] = 0.0
    ratio = estimates.joint(ratio_of_shares, written, kept)
    assert ratio.value == pytest.approx(1.5) and 0.0 <= ratio.low < 1.5 < ratio.high < math.inf
    assert math.isnan(estimates.joint(ratio_of_shares, written[:5], [1.0, 1.0, 0.0, 0.0, 0.0]).low)
    alone = estimates.median([math.inf])  # from the one instrument of a map to the nearest other
    assert alone.value == math.inf and math.isnan(alone.low) and not recwarn


def test_groups_are_resampled_as_a_whole() -> None:
    """Ten notes of each of 30 cells that are all alike tell no more than one note of each."""
    cells = np.random.default_rng(6).standard_normal(30)
    alone = estimates.joint(np.mean, cells)
    tenfold = estimates.joint(np.mean, np.repeat(cells, 10), groups=np.repeat(np.arange(30), 10))
    assert (tenfold.low, tenfold.high) == pytest.approx((alone.low, alone.high), abs=1e-9)
    assert tenfold.n == 300
