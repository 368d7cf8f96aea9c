"""What a point of the map gives away: predictions from the nearest notes on it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST_NEIGHBOURS = 15
"""Asked where two thousand notes are known; fewer of fewer notes, so that those asked stay near."""

Points = NDArray[np.float64]


def nearest(known: Points, asked: Points, *, same: bool = False) -> NDArray[np.intp]:
    """Per point asked [n, 2] the nearest of the known ones [m, 2], [n, k]; see `neighbours_of`.

    Args:
        same: the points asked are the known ones: none counts as its own neighbour.
    """
    away = np.linalg.norm(asked[:, None] - known[None], axis=2)
    if same:
        np.fill_diagonal(away, np.inf)
    k = neighbours_of(len(known))
    return np.asarray(np.argpartition(away, k - 1, axis=1)[:, :k])


def neighbours_of(n_known: int) -> int:
    """How many neighbours to ask where `n_known` points are known: at least 1."""
    return max(1, min(MOST_NEIGHBOURS, round(n_known**0.5 / 3)))


def predict_number(values: NDArray[np.float64], neighbours: NDArray[np.intp]) -> NDArray[np.float64]:
    """The mean of the neighbours' values, [n]."""
    return np.asarray(values[neighbours].mean(axis=1), dtype=np.float64)


def predict_label(labels: NDArray[np.int64], neighbours: NDArray[np.intp]) -> NDArray[np.int64]:
    """The label that most of the neighbours have, [n]; of equally many the smallest."""
    n_labels = int(labels.max(initial=0)) + 1
    return np.array(
        [np.bincount(row, minlength=n_labels).argmax() for row in labels[neighbours]], dtype=np.int64
    )


def explained(values: NDArray[np.float64], predicted: NDArray[np.float64]) -> float:
    """R^2, the share of the values' variance that is explained. Always guessing the mean gives 0."""
    total = float(((values - values.mean()) ** 2).sum())
    return 1.0 - float(((values - predicted) ** 2).sum()) / total if total > 0 else float("nan")
