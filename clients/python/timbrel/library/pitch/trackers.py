"""Which two trackers listen: YIN and swift-f0, or YIN and a comb over the spectrum where that is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from timbrel.errors import MissingExtraError
from timbrel.library.pitch.harmonics import HarmonicSum
from timbrel.library.pitch.yin import Yin
from timbrel.pitch import PitchMeter


class Tracker(Protocol):
    """Hears how high a note is. Several threads may share one."""

    name: str

    def measure(self, audio: npt.NDArray[np.float32], sample_rate: int) -> float | None:
        """The pitch of audio [samples] as a fractional MIDI note number; None where there is none."""


class _Swift(PitchMeter):
    name = "swift-f0"


@dataclass(frozen=True)
class TrackerPair:
    """Two trackers that err on different notes."""

    one: Tracker
    other: Tracker

    @property
    def name(self) -> str:
        return f"{self.one.name}+{self.other.name}"

    def measure(self, audio: npt.NDArray[np.float32], sample_rate: int) -> tuple[float | None, float | None]:
        """What each of them hears."""
        return self.one.measure(audio, sample_rate), self.other.measure(audio, sample_rate)


def find_trackers() -> TrackerPair:
    """YIN, and swift-f0 where it is installed (the demo extra), else harmonics in the spectrum."""
    try:
        other: Tracker = _Swift()
    except MissingExtraError:
        other = HarmonicSum()
    return TrackerPair(Yin(), other)
