"""Where a note's sound ends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DECAY = 1e-3
"""A note has died away 60 dB below its own peak."""
FLOOR = 1e-5
"""Below this (-100 dB of full scale) is silence, whatever the note's peak."""
BLOCK_SECONDS = 0.01


def sounding_samples(audio: NDArray[np.float32], sample_rate: int) -> int:
    """How many leading samples of audio [samples] to keep: to the end of the last 10 ms that sound."""
    block = max(1, int(sample_rate * BLOCK_SECONDS))
    n_blocks = -(-len(audio) // block)
    padded = np.zeros(n_blocks * block, np.float32)
    padded[: len(audio)] = np.abs(audio)
    peaks = padded.reshape(n_blocks, block).max(axis=1)
    sounding = np.flatnonzero(peaks > max(FLOOR, DECAY * float(peaks.max(initial=0.0))))
    return min(len(audio), (int(sounding[-1]) + 1) * block) if len(sounding) else 0


def fade_out(audio: NDArray[np.float32], n_samples: int) -> NDArray[np.float32]:
    """A copy of audio [samples] whose last `n_samples` fade to zero along a raised cosine."""
    n_samples = min(n_samples, len(audio))
    faded = audio.copy()
    ramp = 0.5 + 0.5 * np.cos(np.pi * np.arange(1, n_samples + 1) / n_samples)
    faded[len(audio) - n_samples :] *= ramp.astype(np.float32)
    return faded
