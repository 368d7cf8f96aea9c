"""How loud a note is as a whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WINDOW_SECONDS = 0.4
"""The momentary window of ITU-R BS.1770: about as long as the ear takes to judge loudness."""

SILENCE_DB = -120.0
"""What silence measures."""


def level_db(audio: NDArray[np.float32], sample_rate: int) -> float:
    """RMS in dB of the loudest 400 ms; 0 dB is RMS 1, and a sine of amplitude 1 measures -3.

    A shorter note is judged as if silence followed: of two equally strong notes the shorter is softer.
    """
    if not len(audio):
        return SILENCE_DB
    length = round(WINDOW_SECONDS * sample_rate)
    energy = np.concatenate(([0.0], np.cumsum(np.square(audio, dtype=np.float64))))
    loudest = float(np.max(energy[length:] - energy[:-length])) if len(audio) > length else float(energy[-1])
    return max(SILENCE_DB, float(10.0 * np.log10(max(loudest, 0.0) / length + 1e-30)))
