"""When the key of a recorded note was let go, where nothing says so.

The level of a note in dB falls along straight lines: slowly while the key is held (not at all on an organ,
steadily on a piano), then fast once it is let go. So the bend between two fitted lines is the release.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from timbrel_training.notes.recording import sounding_samples

BLOCK_SECONDS = 0.01
ENDED_DB = -40.0
"""Below the peak by this, a release is over: what follows may be the room's noise. A file that ends louder
was cut off while the note still sounded."""
RISEN_DB = -3.0
"""The attack is over where the level first comes this near to its peak."""
MIN_RELEASE_DB = 20.0
"""A release takes the level down by at least this."""
STEEPER = 3.0
"""How many times faster the level falls in a release than before it; a plain decay has no such bend."""


@dataclass(frozen=True)
class Hold:
    """What a recording tells of its key."""

    seconds: float  # from the first sample until the key is let go, or the sound has died away
    cut: bool  # the note still sounds where the recording ends: how long it would last is unknown


def find_hold(audio: NDArray[np.float32], sample_rate: int) -> Hold:
    """When the key was let go, judged by the level alone.

    A sound that is cut off, or that dies away without a bend (plucked, struck), counts as held to its end.

    Args:
        audio: [samples], mono, from the onset on; silence may follow the sound.
        sample_rate: samples per second.
    """
    seconds = sounding_samples(audio, sample_rate) / sample_rate
    level = _level(audio, sample_rate)
    if len(level) < 6:
        return Hold(seconds, cut=False)
    if level[-1] > ENDED_DB:
        return Hold(seconds, cut=True)
    start = int(np.flatnonzero(level > RISEN_DB)[0])
    bend = _bend(level[start:])
    return Hold(seconds if bend is None else min(seconds, (start + bend) * BLOCK_SECONDS), cut=False)


def _level(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float64]:
    """RMS level of each 10 ms block in dB below the loudest one, no lower than ENDED_DB."""
    block = max(1, int(sample_rate * BLOCK_SECONDS))
    blocks = audio[: len(audio) // block * block].reshape(-1, block).astype(np.float64)
    power = np.square(blocks).mean(axis=1) + 1e-20
    return np.maximum(10.0 * np.log10(power / power.max(initial=1e-20)), ENDED_DB)


def _bend(level: NDArray[np.float64]) -> int | None:
    """The block from which on the level [blocks] falls to its end in a release; None where none is."""
    level = level[: int(np.flatnonzero(level > ENDED_DB)[-1]) + 2]
    candidates = range(2, len(level) - 1)
    if not candidates:
        return None
    fits = [(_line(level[:at]), _line(level[at:])) for at in candidates]
    best = int(np.argmin([before.error + after.error for before, after in fits]))
    before, after = fits[best]
    drop = float(level[candidates[best]] - level[-1])
    if drop < MIN_RELEASE_DB or after.slope > STEEPER * min(before.slope, -MIN_RELEASE_DB / len(level)):
        return None
    return candidates[best]


@dataclass(frozen=True)
class _Line:
    slope: float  # dB per block
    error: float  # sum of squares


def _line(level: NDArray[np.float64]) -> _Line:
    """The least-squares line through levels [blocks]."""
    time = np.arange(len(level)) - (len(level) - 1) / 2
    centred = level - level.mean()
    slope = float((time @ centred) / (time @ time)) if len(level) > 1 else 0.0
    return _Line(slope, float(np.square(centred - slope * time).sum()))
