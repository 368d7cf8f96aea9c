"""Overlapping pieces of a sound, at the one rate that pitch is measured at."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from timbrel_bundle.audio import resample

SAMPLE_RATE = 24_000
"""Hz. Fundamentals end at 2.4 kHz; what lies above 12 kHz says nothing about them."""


def at_measuring_rate(audio: npt.NDArray[np.float32], sample_rate: int) -> npt.NDArray[np.float32]:
    """Audio [samples] at SAMPLE_RATE."""
    return resample(np.ascontiguousarray(audio, dtype=np.float32), sample_rate, SAMPLE_RATE)


def frames_of(signal: npt.NDArray[np.float32], length: int, hop: int) -> npt.NDArray[np.float64]:
    """[frames, length], at least one: silence follows a signal that is shorter."""
    padded = np.pad(signal, (0, max(0, length - len(signal))))
    windows = np.lib.stride_tricks.sliding_window_view(padded, length)[::hop]
    return windows.astype(np.float64)
