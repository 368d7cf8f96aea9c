"""Folding stereo to mono without losing what cancels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_LOSS_DB = 3.0
"""Where the sum of both channels is more than this below the louder one, they cancel."""


@dataclass(frozen=True)
class MonoFold:
    """Weights of the left and right channel. One fold serves all of a cell: its timbre must not jump."""

    left: float
    right: float

    def __call__(self, stereo: NDArray[np.float32]) -> NDArray[np.float32]:
        """Mono audio [samples] of stereo audio [2, samples]."""
        mono: NDArray[np.float32] = np.float32(self.left) * stereo[0] + np.float32(self.right) * stereo[1]
        return mono


MEAN_FOLD = MonoFold(0.5, 0.5)
# One channel alone is scaled to the level at which two unrelated channels of its loudness would fold.
LEFT_FOLD = MonoFold(0.5**0.5, 0.0)
RIGHT_FOLD = MonoFold(0.0, 0.5**0.5)


def choose_fold(stereo: NDArray[np.float32]) -> MonoFold:
    """The mean of both channels of [2, samples], or the louder one alone where they cancel."""
    left, right = (float(np.sqrt(np.mean(np.square(channel, dtype=np.float64)))) for channel in stereo)
    total = float(np.sqrt(np.mean(np.square(stereo.sum(axis=0), dtype=np.float64))))
    if total >= max(left, right) * 10 ** (-MAX_LOSS_DB / 20):
        return MEAN_FOLD
    return LEFT_FOLD if left >= right else RIGHT_FOLD
