"""Where on the map a sound lies, by the bundle's own timbre encoder."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import AudioError
from timbrel_bundle.timbre_encoder import TimbreEncoder

NOWHERE = (math.nan, math.nan)


class Locator:
    """Places recordings on the map: nothing but the sound is known of them, not even the pitch."""

    def __init__(self, bundle: Bundle) -> None:
        self._encoder = TimbreEncoder(bundle, n_threads=1)

    def locate(self, audio: NDArray[np.float32], sample_rate: int) -> tuple[float, float]:
        """The point (x, y) of a note's audio [samples]; NOWHERE where there is too little to hear."""
        try:
            return self._encoder.locate(audio, sample_rate)
        except AudioError:
            return NOWHERE
