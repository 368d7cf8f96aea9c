"""Measures of many notes together: the Frechet distance of two sets, and how evenly a path changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from timbrel_training.errors import TrainingError
from timbrel_training.notes.spectrum import FLOOR_DB, N_MELS, RANGE_DB, aligned

BANDS_TOGETHER = 4
"""Neighbouring mel bands are averaged: hundreds of notes give a covariance of 40 values, not one of 160."""

N_STATISTICS = 2 * N_MELS // BANDS_TOGETHER
"""A note has a mean and a deviation for each band."""

REGULARISATION_DB2 = 1.0
"""Added to every variance: dimensions that hardly vary do not decide, and few notes still give an answer."""


def log_mel_statistics(mel: NDArray[np.floating]) -> NDArray[np.float32]:
    """Means and deviations [40] in dB, over a note's frames, of 20 bands of its log-mel spectrogram.

    The spectrogram [frames, 80] is clipped 60 dB below its peak.
    """
    if not len(mel):
        return np.repeat(np.array([FLOOR_DB, 0.0], np.float32), N_STATISTICS // 2)
    clipped = np.maximum(np.asarray(mel, dtype=np.float32), float(np.max(mel)) - RANGE_DB)
    bands = clipped.reshape(len(mel), -1, BANDS_TOGETHER).mean(axis=2)
    return np.concatenate([bands.mean(axis=0), bands.std(axis=0)])


def frechet_distance(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Measures how far two sets of vectors [n, d] are apart, as Gaussians; dB^2 for log-mel statistics.

    |m_a - m_b|^2 + tr(C_a + C_b - 2 (C_a C_b)^(1/2)), of means and covariances.
    After Dowson and Landau 1982; Kilgour et al. 2019 use it on audio ("Fréchet Audio Distance").

    Raises:
        TrainingError: a set has fewer than two vectors, or the two differ in d.
    """
    (mean_a, root_a), (mean_b, root_b) = _fit(a), _fit(b)
    if len(mean_a) != len(mean_b):
        raise TrainingError(f"vectors of {len(mean_a)} and of {len(mean_b)} values cannot be compared")
    # tr (C_a C_b)^(1/2) is the sum of the singular values of C_a^(1/2) C_b^(1/2).
    shared = np.linalg.svd(root_a @ root_b, compute_uv=False).sum()
    apart = np.square(mean_a - mean_b).sum()
    return max(0.0, float(apart + np.square(root_a).sum() + np.square(root_b).sum() - 2.0 * shared))


def frechet_floor(reference: NDArray[np.floating], n_splits: int = 10, seed: int = 0) -> float:
    """Averages the distance between two random halves of a set [n, d] over several ways to halve it.

    What is no farther than this cannot be told from the reference. Halves are fitted on fewer notes than the
    whole, so it is a little high.

    Raises:
        TrainingError: there are fewer than four vectors.
    """
    if len(reference) < 4:
        raise TrainingError(f"{len(reference)} notes cannot be halved for a floor: it takes at least 4")
    rng, middle = np.random.default_rng(seed), len(reference) // 2
    orders = [rng.permutation(len(reference)) for _ in range(n_splits)]
    return float(np.mean([frechet_distance(reference[o[:middle]], reference[o[middle:]]) for o in orders]))


def largest_step_share(path: ArrayLike) -> float:
    """Measures the largest step between neighbours as a share of the path's whole change.

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
    """Makes a path's features [points, frames, 80] of the log-mel spectrograms [points][seeds] of its notes.

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


def _fit(vectors: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fits the mean [d] and the root of the covariance [d, d]."""
    values = np.asarray(vectors, dtype=np.float64)
    if values.ndim != 2 or len(values) < 2:
        raise TrainingError(f"a set of shape {values.shape} has no covariance: give [n, d] with n at least 2")
    covariance = np.atleast_2d(np.cov(values, rowvar=False)) + REGULARISATION_DB2 * np.eye(values.shape[1])
    eigenvalues, vectors_of = np.linalg.eigh(covariance)
    root = (vectors_of * np.sqrt(np.maximum(eigenvalues, 0.0))) @ vectors_of.T
    return values.mean(axis=0), np.asarray(root)
