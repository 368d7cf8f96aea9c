"""Figures with 95 % intervals, by the percentile bootstrap (Efron 1979). Values that are NaN are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]
N_RESAMPLES = 1000
"""Enough for two digits of a 95 % interval."""


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float
    n: int
    """Notes, or whatever was counted, that it rests on."""


NOTHING = Estimate(value=float("nan"), low=float("nan"), high=float("nan"), n=0)
"""The estimate from no values at all."""


def share(flags: ArrayLike) -> Estimate:
    """Estimates the share of the flags [n] that are true."""
    return mean(flags)


def mean(values: ArrayLike) -> Estimate:
    """Estimates the mean of values [n]."""
    return joint(np.mean, values)


def median(values: ArrayLike, groups: ArrayLike | None = None) -> Estimate:
    """Estimates the median of values [n], in `groups` [n] as `joint` has them."""
    return joint(np.median, values, groups=groups)


def joint(
    statistic: Callable[..., float | np.floating], *columns: ArrayLike, groups: ArrayLike | None = None
) -> Estimate:
    """Estimates a statistic of paired columns, each [n, ...]: whole rows are resampled, so that pairs stay.

    Rows with a NaN in any column are left out. Rows with one label in `groups` [n] are resampled together.
    Resamples that have no statistic, since a share of nothing is none, are left out too; where they are more
    than the interval leaves out on either side, there is none.
    """
    arrays = [np.asarray(column, dtype=np.float64) for column in columns]
    kept = np.all([~_has_nan(array) for array in arrays], axis=0)
    arrays = [array[kept] for array in arrays]
    n = len(arrays[0])
    if not n:
        return NOTHING
    rng = np.random.default_rng(0)
    if groups is None:
        resamples = (rng.integers(0, n, n) for _ in range(N_RESAMPLES))
    else:
        together = rows_by_group(np.asarray(groups)[kept])
        drawn_groups = (rng.integers(0, len(together), len(together)) for _ in range(N_RESAMPLES))
        resamples = (np.concatenate([together[number] for number in each]) for each in drawn_groups)
    drawn = [float(statistic(*(array[rows] for array in arrays))) for rows in resamples]
    known = [value for value in drawn if np.isfinite(value)]
    is_told = len(known) >= 0.975 * N_RESAMPLES
    low, high = np.percentile(known, (2.5, 97.5)) if is_told else (np.nan, np.nan)
    return Estimate(float(statistic(*arrays)), float(low), float(high), n)


def by_label(labels: Sequence[str], order: Sequence[str]) -> list[tuple[str, NDArray[np.intp]]]:
    """Groups rows by label: the labels that occur, in the order given, each with its rows."""
    array = np.array(labels, dtype=object)
    groups = [(label, np.flatnonzero(array == label)) for label in order]
    return [(label, rows) for label, rows in groups if len(rows)]


def _has_nan(array: Values) -> NDArray[np.bool_]:
    """Flags [n] the rows that hold a NaN."""
    return np.asarray(np.isnan(array).any(axis=tuple(range(1, array.ndim))))


def rows_by_group(labels: NDArray) -> list[NDArray[np.intp]]:
    """Lists the rows of each label that occurs in labels [n]."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(labels[order][1:] != labels[order][:-1]) + 1)
