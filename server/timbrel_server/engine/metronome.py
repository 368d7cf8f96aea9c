"""When the frames of a live note are due: the ticks that all of them share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Metronome:
    """Counts frames of real time since some moment in the past.

    One count for all notes, so that those that are played live move on in one step, however many they are and
    whenever each began.
    """

    def __init__(self, frame_rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            frame_rate: frames per second.
            clock: seconds since some moment in the past, never falling.
        """
        self._frame_rate = frame_rate
        self._clock = clock

    @property
    def tick(self) -> int:
        """Whole frames gone by."""
        return math.floor(self._clock() * self._frame_rate)

    @property
    def seconds_to_next(self) -> float:
        """Until the next tick; above 0."""
        now = self._clock()
        return max((math.floor(now * self._frame_rate) + 1) / self._frame_rate - now, 1e-4)
