"""How bright a note is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from timbrel_training.notes.spectrum import SAMPLE_RATE, WINDOW, loud_frames, power_spectrum


def centroid_hz(audio: NDArray[np.float32], sample_rate: int) -> float | None:
    """The spectral centroid in Hz, weighted by magnitude, averaged over the loud frames; None of silence."""
    return centroid_of(power_spectrum(audio, sample_rate))


def centroid_of(power: NDArray[np.float32]) -> float | None:
    """As `centroid_hz`, of power [frames, 513]."""
    magnitude = np.sqrt(power[loud_frames(power)])
    if not len(magnitude):
        return None
    frequencies = np.fft.rfftfreq(WINDOW, 1.0 / SAMPLE_RATE)
    return float(np.mean(magnitude @ frequencies / magnitude.sum(axis=1)))
