"""The stereo mix of a piece: each channel's gains over time, the sum of its notes, and its level."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from timbrel.library.render.level import Audio, decibels
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
        """Takes at least one state; they come by their start."""
        ramp = max(1, round(RAMP_SECONDS * sample_rate))
        places: list[float] = []
        sides: list[tuple[float, float]] = []
        for state in states:
            gains = side_gains(state)
            if sides and gains == sides[-1]:
                continue
            place = state.start * sample_rate if sides else 0.0
            if sides:
                # A ramp that the last one has not left room for is steeper.
                places.append(max(place - ramp, places[-1]))
                sides.append(sides[-1])
            places.append(place)
            sides.append(gains)
        self._places = np.array(places)
        self._sides = np.array(sides).T

    def gains(self, start: int, n_samples: int) -> Gains:
        """The gains over a stretch of the piece, in samples."""
        end = start + n_samples
        first, behind = np.searchsorted(self._places, [start, end], side="right")
        # A channel may have thousands of points: those around the stretch tell all of it.
        around = slice(max(first - 1, 0), behind + 1)
        ends = self._at(np.array([start, end]), around)
        if first == np.searchsorted(self._places, end) and np.array_equal(ends[:, 0], ends[:, 1]):
            return ends[:, :1]  # nothing moves in between
        return self._at(np.arange(start, end), around)

    def _at(self, places: npt.NDArray[np.int64], around: slice) -> Gains:
        points = self._places[around]
        return np.stack([np.interp(places, points, side[around]) for side in self._sides]).astype(np.float32)


CUT_FADE_SECONDS = 0.005
"""The fade-in of a note whose lead-in would begin before the piece does."""

Stereo = npt.NDArray[np.float32]
"""[samples, 2]"""


class StereoMix:
    """Adds notes up; grows as they need it."""

    def __init__(self, sample_rate: int, seconds: float) -> None:
        """Makes room for a piece of so many seconds, at a guess."""
        self._sample_rate = sample_rate
        self._sides = np.zeros((2, round(seconds * sample_rate)), dtype=np.float32)
        self._end = 0

    def add(self, audio: Audio, start: int, faders: Faders) -> None:
        """Adds audio [samples] from this sample on; what lies before the piece's beginning is cut."""
        if start < 0:
            audio, start = self._faded_in(audio[-start:]), 0
        end = start + len(audio)
        self._reserve(end)
        self._sides[:, start:end] += audio * faders.gains(start, len(audio))
        self._end = max(self._end, end)

    def add_stereo(self, audio: Stereo) -> None:
        """Adds what is a mix itself, [samples, 2], from the beginning on."""
        self._reserve(len(audio))
        self._sides[:, : len(audio)] += audio.T
        self._end = max(self._end, len(audio))

    def audio(self) -> Stereo:
        """[samples, 2], until the last note has died away: the mix itself, and no copy."""
        return self._sides[:, : self._end].T

    def _reserve(self, n_samples: int) -> None:
        if (missing := n_samples - self._sides.shape[1]) > 0:
            spare = max(missing, self._sides.shape[1] // 8)
            self._sides = np.pad(self._sides, ((0, 0), (0, spare)))

    def _faded_in(self, audio: Audio) -> Audio:
        n_fade = min(round(CUT_FADE_SECONDS * self._sample_rate), len(audio))
        faded = audio.copy()
        faded[:n_fade] *= np.linspace(0.0, 1.0, n_fade, dtype=np.float32)
        return faded


NORMAL_PEAK_DB = -1.0
"""dB of full scale, where a piece is normalised: lossy formats and converters overshoot a little."""


def level(audio: Stereo, normalize: bool) -> tuple[float, float]:
    """Brings the peak to NORMAL_PEAK_DB where that is asked for or it would clip; else does nothing.

    In place: a long piece is held once. Returns the peak before, in dB of full scale, and the change in dB, 0
    for none.
    """
    peak = max(float(audio.max(initial=0.0)), -float(audio.min(initial=0.0)))
    if peak <= 0.0 or not (normalize or peak > 1.0):
        return decibels(peak), 0.0
    gain_db = NORMAL_PEAK_DB - decibels(peak)
    audio *= np.float32(10.0 ** (gain_db / 20.0))
    return decibels(peak), gain_db
