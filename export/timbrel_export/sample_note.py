"""A note that graphs and model are compared on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SampleNote:
    """A real note that parity is checked on."""

    timbre: tuple[float, float]
    pitch: int
    velocity: float
    held_frames: int
    codes: NDArray[np.uint16]  # [T, K]
