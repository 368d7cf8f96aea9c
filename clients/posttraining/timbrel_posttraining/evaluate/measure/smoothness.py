"""How evenly the sound changes along a path over the timbre map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from timbrel_training.errors import TrainingError
from timbrel_training.notes.spectrum import aligned


def largest_step_share(path: ArrayLike) -> float:
    """The largest step between neighbours as a share of the path's whole change.

    A step is the mean absolute difference of two neighbours' features, and the whole change is the sum of all
    steps: 1 means that everything changes at once, and an even path of 9 points has 1/8. NaN where nothing
    changes at all.

    Args:
        path: features [points, ...] of the notes along a path, averaged over seeds (see `path_of_log_mels`).

    Raises:
        TrainingError: there are fewer than two points.
    """
    points = np.asarray(path, dtype=np.float64)
    if len(points) < 2:
        raise TrainingError(f"a path of {len(points)} points has no steps: it takes at least 2")
    steps = np.abs(np.diff(points, axis=0)).reshape(len(points) - 1, -1).mean(axis=1)
    whole = float(steps.sum())
    return float(steps.max()) / whole if whole > 0.0 else float("nan")


def path_of_log_mels(mels: Sequence[Sequence[NDArray[np.floating]]]) -> NDArray[np.float32]:
    """Features [points, frames, 80] of a path from the log-mel spectrograms [points][seeds] of its notes.

    The seeds of a point are averaged; silence follows the shorter notes, and all are clipped 60 dB below the
    path's peak. With these, steps are log-mel distances.

    Raises:
        TrainingError: a point has no notes, or not as many as the others.
    """
    counts = {len(point) for point in mels}
    if len(counts) != 1 or 0 in counts:
        raise TrainingError(f"points with {sorted(counts)} notes: each takes the same number, at least 1")
    stacked = aligned([mel for point in mels for mel in point])
    return np.asarray(stacked.reshape(len(mels), -1, *stacked.shape[1:]).mean(axis=1), dtype=np.float32)
