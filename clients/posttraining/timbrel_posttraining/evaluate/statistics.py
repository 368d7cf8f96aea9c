"""Estimates with their intervals, for values that may hold NaN: those are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from timbrel_posttraining.evaluate.measure.bootstrap import Estimate, interval

Values = NDArray[np.float64]
NOTHING = Estimate(value=float("nan"), low=float("nan"), high=float("nan"), n=0)
"""Of no values at all."""


def share(flags: ArrayLike) -> Estimate:
    """Share of those that are true."""
    return mean(flags)


def mean(values: ArrayLike) -> Estimate:
    """The mean of values [n]."""
    return joint(np.mean, values)


def median(values: ArrayLike) -> Estimate:
    """The median of values [n]."""
    return joint(np.median, values)


def joint(statistic: Callable[..., float | np.floating], *columns: ArrayLike) -> Estimate:
    """A statistic of paired columns, each [n, ...]: whole rows are drawn anew, so the pairs stay together.

    Rows with a NaN in any column are left out.
    """
    arrays = [np.asarray(column, dtype=np.float64) for column in columns]
    kept = np.all([~_has_nan(array) for array in arrays], axis=0)
    arrays = [array[kept] for array in arrays]
    if not len(arrays[0]):
        return NOTHING
    rows = np.arange(len(arrays[0]))

    def of_rows(drawn: NDArray[np.float64]) -> float:
        index = drawn.astype(np.intp)
        return float(statistic(*(array[index] for array in arrays)))

    return interval(rows.astype(np.float64), of_rows)


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's; NaN where one of them does not vary or there are fewer than three."""
    ranks = [_ranks(np.asarray(values, dtype=np.float64)) for values in (a, b)]
    if len(ranks[0]) < 3 or min(float(np.ptp(rank)) for rank in ranks) == 0:
        return float("nan")
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def by_label(labels: Sequence[str], order: Sequence[str]) -> list[tuple[str, NDArray[np.intp]]]:
    """The rows of each label that occurs, in the order given."""
    array = np.array(labels, dtype=object)
    groups = [(label, np.flatnonzero(array == label)) for label in order]
    return [(label, rows) for label, rows in groups if len(rows)]


def _has_nan(array: Values) -> NDArray[np.bool_]:
    """[n], whether anything of the row is NaN."""
    return np.asarray(np.isnan(array).any(axis=tuple(range(1, array.ndim))))


def _ranks(values: Values) -> Values:
    """Ranks from 0; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    return np.asarray((last - (counts - 1) / 2)[inverse], dtype=np.float64)
