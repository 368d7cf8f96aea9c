"""A channel's volume, expression and pan as gains of the left and the right side over time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from timbrel.performance.score import ChannelState

RAMP_SECONDS = 0.01
"""A controller's step is spread over this time, lest it click, and done by its own time: a note that begins
there has its attack at the new level."""

DEFAULT_VOLUME = 100
"""At which a note sounds as the model gives it: what a channel has where a file says nothing."""

Gains = npt.NDArray[np.float32]
"""[2, samples] or [2, 1]: left and right."""


def side_gains(state: ChannelState) -> tuple[float, float]:
    """Left and right: 40 log10 of volume and expression, as General MIDI has it, and constant power between
    the sides; 1 and 1 in the middle at the default volume."""
    level = (state.volume / DEFAULT_VOLUME) ** 2 * (state.expression / 127) ** 2
    turn = math.pi / 2 * max(0, state.pan - 1) / 126
    return math.sqrt(2.0) * level * math.cos(turn), math.sqrt(2.0) * level * math.sin(turn)


class Faders:
    """The gains of one channel, at any moment."""

    def __init__(self, states: Sequence[ChannelState], sample_rate: int) -> None:
        """
        Args:
            states: by start, at least one.
        """
        ramp = max(1, round(RAMP_SECONDS * sample_rate))
        self._places: list[float] = []
        self._sides: list[tuple[float, float]] = []
        for state in states:
            gains = side_gains(state)
            if self._sides and gains == self._sides[-1]:
                continue
            if self._sides:
                place = state.start * sample_rate
                # A ramp that the last one has not left room for is steeper.
                self._add(max(place - ramp, self._places[-1]), self._sides[-1])
                self._add(place, gains)
            else:
                self._add(0.0, gains)

    def gains(self, start: int, n_samples: int) -> Gains:
        """Those of a stretch of the piece, in samples."""
        end = start + n_samples
        first = np.searchsorted(self._places, start, side="right")
        ends = self._at(np.array([start, end]))
        if first == np.searchsorted(self._places, end) and np.array_equal(ends[:, 0], ends[:, 1]):
            return ends[:, :1]  # nothing moves in between
        return self._at(np.arange(start, end))

    def _add(self, place: float, sides: tuple[float, float]) -> None:
        self._places.append(place)
        self._sides.append(sides)

    def _at(self, places: npt.NDArray[np.int64]) -> Gains:
        sides = np.array(self._sides)
        return np.stack([np.interp(places, self._places, sides[:, side]) for side in range(2)]).astype(
            np.float32
        )
