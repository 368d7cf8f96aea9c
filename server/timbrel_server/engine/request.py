"""What is asked for, checked and in the engine's own units: a note, or the place of a recording."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class SamplingSettings:
    """How each token is drawn."""

    temperature: float
    """Softmax temperature; 0 always takes the most likely token."""

    top_k: int
    """Only the k most likely tokens are drawn from, 1..256."""

    top_p: float
    """Only the smallest set of tokens whose probabilities reach p is drawn from, in (0, 1]."""


DEFAULT_SAMPLING = SamplingSettings(temperature=1.0, top_k=256, top_p=0.95)
"""Where the caller leaves it open. A cooler draw repeats the likeliest code, so that plucked notes never
decay; a draw without `top_p` takes unlikely codes now and then, which are heard as jumps."""


@dataclass(frozen=True)
class NoteRequest:
    """One note to write. Everything in it is within the bundle's ranges."""

    timbre: tuple[float, float]
    """Point (x, y) in the unit disc."""

    pitch: int
    """MIDI note number."""

    velocity: int
    """MIDI velocity, 1..127."""

    held_frames: int
    """Frames for which the key is held, at least 1; where it is released while the note sounds, at most."""

    seed: int
    """0..2^64-1."""

    sampling: SamplingSettings = DEFAULT_SAMPLING

    least_held_frames: int = 1
    """A key that is released earlier goes up after so many frames. At least 1."""

    lead_frames: int | None = None
    """Frames that may be written ahead of real time while the key is held, at least 1: what has been written
    can no longer be released. None writes as fast as it goes."""


@dataclass(frozen=True, eq=False)
class LocateRequest:
    """A recording to be found on the timbre map. Whether there is a note in it is not known yet."""

    audio: npt.NDArray[np.float32]  # [samples], at least 1

    sample_rate: int
    """Hz."""

    pitch: float | None
    """MIDI note number, fractions allowed; None where it is not known."""
