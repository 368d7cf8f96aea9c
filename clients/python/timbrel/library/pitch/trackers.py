"""Which two trackers listen: YIN and swift-f0, or YIN and a comb over the spectrum where that is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from timbrel.errors import MissingExtraError
from timbrel.library.pitch.harmonics import HarmonicSum
from timbrel.library.pitch.yin import QUIET_DB, Yin
from timbrel.pitch import PitchMeter
from timbrel_bundle.audio import resample


class Tracker(Protocol):
    """Hears how high a note is. Several threads may share one."""

    name: str

    def measure(self, audio: npt.NDArray[np.float32], sample_rate: int) -> float | None:
        """The pitch of audio [samples] as a fractional MIDI note number; None where there is none."""


class _Swift(PitchMeter):
    """Listens for as long as the sound is within QUIET_DB of its loudest, as YIN does."""

    name = "swift-f0"

    def measure(self, audio: npt.NDArray[np.float32], sample_rate: int) -> float | None:
        from swift_f0.core import HOP, LOOKAHEAD_FRAMES, SAMPLE_RATE

        signal = resample(audio, sample_rate, SAMPLE_RATE)
        n_hops = len(signal) // HOP
        power = np.square(signal[: n_hops * HOP].reshape(n_hops, HOP)).mean(axis=1)
        loud = np.flatnonzero(power > power.max(initial=0.0) * 10.0 ** (-QUIET_DB / 10.0))
        if len(loud) == 0:
            return None
        # A frame depends on so many later ones.
        last = int(loud[-1]) + 1 + LOOKAHEAD_FRAMES
        return super().measure(signal[: last * HOP], SAMPLE_RATE)


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
