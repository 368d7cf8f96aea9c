"""How sure a figure is: percentile bootstrap intervals (Efron 1979)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from timbrel_training.errors import TrainingError

Statistic = Callable[..., float | np.floating]
"""A figure of values [n]: np.mean, np.median or one's own."""

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

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}] (n = {self.n})"


def interval(
    values: ArrayLike, statistic: Statistic = np.mean, n_resamples: int = N_RESAMPLES, seed: int = 0
) -> Estimate:
    """A statistic of values [n], with the 95 % percentile interval over resamples of them.

    Raises:
        TrainingError: there are no values, or one is not finite.
    """
    array = _checked(values)
    return _estimate(array, statistic, n_resamples, seed)


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    statistic: Statistic = np.mean,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """statistic(a) - statistic(b) of two measurements [n] of the same notes, resampled together.

    What makes a note hard for both drops out, so the interval is narrower than that of two separate samples.

    Raises:
        TrainingError: they differ in length, are empty, or one value is not finite.
    """
    return _estimate(
        _pairs(a, b), lambda rows: statistic(rows[:, 0]) - statistic(rows[:, 1]), n_resamples, seed
    )


def paired_ratio(
    a: ArrayLike,
    b: ArrayLike,
    statistic: Statistic = np.mean,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """statistic(a) / statistic(b), otherwise as `paired_difference`; NaN where the divisor can be 0."""

    def ratio(rows: NDArray[np.float64]) -> float:
        divisor = float(statistic(rows[:, 1]))
        return float(statistic(rows[:, 0])) / divisor if divisor else float("nan")

    return _estimate(_pairs(a, b), ratio, n_resamples, seed)


def _estimate(values: NDArray[np.float64], statistic: Statistic, n_resamples: int, seed: int) -> Estimate:
    """Of values [n] or rows [n, ...]."""
    rng, n = np.random.default_rng(seed), len(values)
    drawn = [float(statistic(values[rng.integers(0, n, n)])) for _ in range(n_resamples)]
    low, high = np.percentile(drawn, (2.5, 97.5))
    return Estimate(float(statistic(values)), float(low), float(high), n)


def _pairs(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """[n, 2]"""
    first, second = _checked(a), _checked(b)
    if first.shape != second.shape:
        raise TrainingError(f"{len(first)} and {len(second)} values are not pairs: measure the same notes")
    return np.stack([first, second], axis=1)


def _checked(values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise TrainingError(f"values of shape {array.shape} have no interval: give [n] with n at least 1")
    if not np.isfinite(array).all():
        raise TrainingError(
            f"{np.count_nonzero(~np.isfinite(array))} values are not finite: leave them out first"
        )
    return array
