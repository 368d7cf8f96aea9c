"""Two pitch trackers that have nothing in common, and what their readings of a note mean.

They are YIN and swift-f0, or YIN and a comb over the spectrum where swift-f0 is missing. By what both hear, a
note is left alone, tuned at the sampler, or rendered again. Of a bell, in which neither finds a period, the
strongest partial decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from timbrel.errors import MissingExtraError
from timbrel.library.render.harmonics import HarmonicSum
from timbrel.pitch import PitchMeter
from timbrel_bundle.audio import resample
from timbrel_bundle.yin import QUIET_DB, Yin, midi_pitch

FINE_CENTS = 5.0
"""Nobody hears less than this, and no tracker is surer."""

FAR_CENTS = 50.0
"""A note further off than this is another note: half a semitone."""


PARTIAL = "partial"
"""The name of what hears the strongest partial, where trackers have names."""

PARTIAL_HERTZ = (30.0, 6000.0)
PARTIAL_SECONDS = (0.05, 1.05)
"""Between these it is looked for, as far as a file of few samples a second holds them."""


class Tracker(Protocol):
    """Hears how high a note is. Several threads may share one."""

    name: str

    def measure(self, audio: npt.NDArray[np.float32], sample_rate: int) -> float | None:
        """Hears the pitch of audio [samples] from its onset on: a fractional MIDI note number, or None."""


class _Swift(PitchMeter):
    """swift-f0, which listens for as long as the sound is within QUIET_DB of its loudest, as YIN does."""

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
        """Gives what each of them hears."""
        return self.one.measure(audio, sample_rate), self.other.measure(audio, sample_rate)

    def nearest(self, asked: int, audio: npt.NDArray[np.float32], sample_rate: int) -> float | None:
        """Gives whichever reading is nearer to the pitch asked: one of them may hear an organ's octave."""
        heard = (each for each in self.measure(audio, sample_rate) if each is not None)
        return min(heard, key=lambda each: abs(each - asked), default=None)


def find_trackers() -> TrackerPair:
    """Takes YIN, and swift-f0 where it is installed (the demo extra), else harmonics in the spectrum."""
    try:
        other: Tracker = _Swift()
    except MissingExtraError:
        other = HarmonicSum()
    return TrackerPair(Yin(), other)


def strongest_partial(
    asked: int, heard: tuple[float | None, float | None], audio: npt.NDArray[np.float32], sample_rate: int
) -> float | None:
    """Measures the strongest partial of audio [samples], as a fractional MIDI note number, where it is the
    note asked for although the trackers have heard other pitches: as of a bell, whose partials are no
    harmonics. None where it is another note, or one of the harmonics of what they have heard."""
    if heard == (None, None) or any(_is_harmonic(asked, each) for each in heard if each is not None):
        return None
    begin, end = (round(seconds * sample_rate) for seconds in PARTIAL_SECONDS)
    sound = audio[begin:end].astype(np.float64)
    if len(sound) <= begin or sample_rate < 4.0 * PARTIAL_HERTZ[0]:
        return None  # too little of it to tell partials apart
    size = 4 * len(sound)
    power = np.square(np.abs(np.fft.rfft(sound * np.hanning(len(sound)), size))) + 1e-12
    low, high = (round(hertz * size / sample_rate) for hertz in PARTIAL_HERTZ)
    peak = low + int(power[low : min(high, len(power) - 1)].argmax())
    left, top, right = np.log(power[peak - 1 : peak + 2])
    shift = 0.5 * (left - right) / (left - 2.0 * top + right) if left - 2.0 * top + right else 0.0
    found = midi_pitch((peak + shift) * sample_rate / size)
    return found if abs(100.0 * (found - asked)) <= FAR_CENTS else None


def _is_harmonic(pitch: float, fundamental: float) -> bool:
    ratio = 2.0 ** ((pitch - fundamental) / 12.0)
    number = round(ratio)
    return number > 1 and abs(1200.0 * math.log2(ratio / number)) <= FAR_CENTS


def cents_off(asked: int, heard: float | None) -> float | None:
    """Tells how far above the pitch asked a note is heard, in cents."""
    return None if heard is None else 100.0 * (heard - asked)


def is_far_off(asked: int, one: float | None, other: float | None) -> bool:
    """Tells by what both trackers hear of a note, fractional MIDI note numbers, None where no pitch, whether
    it is to be rendered again; what only one of them says is not acted upon."""
    if one is None or other is None:
        return False
    return min(abs(100.0 * (one - asked)), abs(100.0 * (other - asked))) > FAR_CENTS


def first_decides(asked: int, one: float | None) -> bool:
    """Tells whether the first tracker's reading decides everything, whatever a second one would hear.

    Within FINE_CENTS of the pitch asked, a note is kept, untuned, and in tune.
    """
    return one is not None and abs(100.0 * (one - asked)) < FINE_CENTS


def correction_cents(asked: int, one: float | None, other: float | None) -> int:
    """Gives the cents of a sampler's tune opcode: the nearer reading, undone; 0 where nothing is to be done.

    By neither tracker's reading does it make a note worse. One that hears another octave, as of an organ's
    high stops, still tells the cents.
    """
    if one is None or other is None or is_far_off(asked, one, other):
        return 0
    cents = [100.0 * (each - asked - 12.0 * round((each - asked) / 12.0)) for each in (one, other)]
    is_heard = all(FINE_CENTS <= abs(each) <= FAR_CENTS for each in cents) and cents[0] * cents[1] > 0.0
    nearer = min(cents, key=abs)
    return -round(nearer) if is_heard else 0


def is_in_tune(asked: int, one: float | None, other: float | None, tune: int = 0) -> bool:
    """Tells whether either tracker hears it within half a semitone of the pitch, the correction included."""
    cents = [cents_off(asked, heard) for heard in (one, other)]
    return any(each is not None and abs(each + tune) <= FAR_CENTS for each in cents)
