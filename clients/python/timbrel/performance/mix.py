"""The stereo mix of a piece."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from timbrel.library.render.level import Audio
from timbrel.performance.faders import Faders

CUT_FADE_SECONDS = 0.005
"""Of a note whose lead-in would begin before the piece does."""

Stereo = npt.NDArray[np.float32]
"""[samples, 2]"""


class StereoMix:
    """Adds notes up; grows as they need it."""

    def __init__(self, sample_rate: int, seconds: float) -> None:
        """
        Args:
            seconds: how long the piece will be, at a guess.
        """
        self._sample_rate = sample_rate
        self._sides = np.zeros((2, round(seconds * sample_rate)), dtype=np.float32)
        self._end = 0

    def add(self, audio: Audio, start: int, faders: Faders) -> None:
        """Adds audio [samples] from this sample on; what lies before the piece's beginning is cut."""
        if start < 0:
            audio, start = self._faded_in(audio[-start:]), 0
        end = start + len(audio)
        self._reserve(end)
        self._sides[:, start:end] += audio * faders.gains(start, len(audio))
        self._end = max(self._end, end)

    def audio(self) -> Stereo:
        """[samples, 2], until the last note has died away: the mix itself, and no copy."""
        return self._sides[:, : self._end].T

    def _reserve(self, n_samples: int) -> None:
        if (missing := n_samples - self._sides.shape[1]) > 0:
            spare = max(missing, self._sides.shape[1] // 8)
            self._sides = np.pad(self._sides, ((0, 0), (0, spare)))

    def _faded_in(self, audio: Audio) -> Audio:
        n_fade = min(round(CUT_FADE_SECONDS * self._sample_rate), len(audio))
        faded = audio.copy()
        faded[:n_fade] *= np.linspace(0.0, 1.0, n_fade, dtype=np.float32)
        return faded
