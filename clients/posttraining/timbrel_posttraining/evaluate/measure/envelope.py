"""How loud a note is over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WINDOW_SECONDS = 0.016
"""The level is the mean over this long: a period of the lowest notes, so that it does not follow the wave."""

STEP_SECONDS = 0.001


@dataclass(frozen=True)
class Envelope:
    """The level of a note in steps of 1 ms."""

    level: NDArray[np.float64]
    """[steps], RMS around each moment; full scale is 1."""

    peak: float
    """The highest level; 0 of silence."""

    def first_above(self, share: float) -> float | None:
        """Seconds from the start until the level first reaches this share of the peak; None of silence."""
        reached = self._at_least(share)
        return float(reached[0]) * STEP_SECONDS if len(reached) else None

    def last_above(self, share: float) -> float | None:
        """Seconds from the start until the level last has this share of the peak; None of silence."""
        reached = self._at_least(share)
        return float(reached[-1]) * STEP_SECONDS if len(reached) else None

    def _at_least(self, share: float) -> NDArray[np.intp]:
        return np.flatnonzero((self.level > 0.0) & (self.level >= share * self.peak))


def envelope_of(audio: NDArray[np.float32], sample_rate: int) -> Envelope:
    """The envelope of audio [samples]."""
    if not len(audio):
        return Envelope(np.zeros(0), 0.0)
    half = max(1, round(WINDOW_SECONDS * sample_rate / 2))
    energy = np.concatenate(([0.0], np.cumsum(np.square(audio, dtype=np.float64))))
    centres = np.arange(0.0, len(audio), STEP_SECONDS * sample_rate).round().astype(np.int64)
    last, first = np.minimum(centres + half, len(audio)), np.maximum(centres - half, 0)
    level = np.sqrt(np.maximum(energy[last] - energy[first], 0.0) / (2 * half))
    return Envelope(level, float(level.max()))
