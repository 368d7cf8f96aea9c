"""The YIN pitch tracker: the period after which a waveform repeats itself.

After de Cheveigné and Kawahara 2002, "YIN, a fundamental frequency estimator for speech and music".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from timbrel_bundle.audio import resample

Values = npt.NDArray[np.float64]
Lags = npt.NDArray[np.intp]

SAMPLE_RATE = 24_000
"""Hz. Fundamentals end at 2.4 kHz; what lies above 12 kHz says nothing about them."""

LONGEST_PERIOD = 512
"""Samples at 24 kHz: 47 Hz."""

SHORTEST_PERIOD = 10
"""Samples at 24 kHz: 2400 Hz."""

WINDOW = 1024
"""Samples compared with those one period later: two periods of the lowest note."""

HOP = 480
"""Samples: 20 ms."""

THRESHOLD = 0.1
"""The first dip of the difference below this is the period (the paper's value)."""

FINE_LAG = 48
"""Samples: a shorter period is read off at that multiple of it which comes close to this lag. A parabola
through three samples is 5 cents off at the highest notes otherwise."""

VOICED_BELOW = 0.4
"""A frame is voiced where the power that does not repeat is at most this share."""

ONSET_SECONDS = 0.05
"""The attack, in which few instruments have a pitch yet, is left out."""

QUIET_DB = 40.0
"""Frames this far below the loudest one are left out: the last of a release, and silence."""

MOST_FRAMES = 32
"""A note's pitch is the median of so many frames at most, evenly spread over it. Of 500 notes of soundfonts
the median of all differs by 0.6 cents at the 95th percentile, and by nothing at the 50th."""

WANDERING_DB = 25.0
"""Whether a pitch wanders is asked of frames that are at most this far below the loudest one."""

WANDERING_SEMITONES = 2.5
"""A pitch that wanders covers so many semitones, its lowest and highest tenth left out. Vibrato of a semitone
up and down covers 2.0, a bend of a whole tone too."""

GLIDE_SEMITONES = (0.15, 1.5)
"""A pitch glides where it moves so far in a frame: less is steady, more is another period that was found."""

GLIDING_SHARE = 0.3
"""A pitch that wanders glides in so many of its frames: 0.33 to 0.84 in speech, in notes seldom in 0.19."""

FRAME = WINDOW + LONGEST_PERIOD
"""Samples. No lag reaches beyond, so that a transform of this size has nothing wrapped around in it."""


@dataclass(frozen=True)
class PitchTrack:
    """The fundamental of a note over time."""

    hertz: Values
    """[frames]"""

    voiced: npt.NDArray[np.bool_]
    """[frames]"""

    seconds: Values
    """[frames], the middle of each."""

    power: Values
    """[frames], mean square."""


def at_measuring_rate(audio: npt.NDArray[np.float32], sample_rate: int) -> npt.NDArray[np.float32]:
    """Brings audio [samples] to SAMPLE_RATE."""
    return resample(np.ascontiguousarray(audio, dtype=np.float32), sample_rate, SAMPLE_RATE)


def track_pitch(audio: npt.NDArray[np.float32], sample_rate: int) -> PitchTrack:
    """Tracks the fundamental, 47 to 2400 Hz, every 20 ms. Silence follows a note below a frame of 64 ms."""
    frames = _Frames(at_measuring_rate(audio, sample_rate))
    return frames.track(np.ones(len(frames.power), dtype=np.bool_))


def wanders(audio: npt.NDArray[np.float32], sample_rate: int) -> bool:
    """Tells whether the pitch of audio [samples] glides far up and down, as that of speech does.

    Of 1,000 notes of soundfonts and rules, 300 of them as recordings have them, none's does.
    """
    frames = _Frames(at_measuring_rate(audio, sample_rate))
    loud = frames.power > frames.power.max() * 10.0 ** (-WANDERING_DB / 10.0)
    track = frames.track(loud)
    if not track.voiced.any():
        return False
    semitones = 12.0 * np.log2(track.hertz)
    low, high = np.percentile(semitones[track.voiced], (10.0, 90.0))
    joined = track.voiced[1:] & track.voiced[:-1] & (np.diff(np.flatnonzero(loud)) == 1)
    steps = np.abs(np.diff(semitones))[joined]
    glides = (steps > GLIDE_SEMITONES[0]) & (steps < GLIDE_SEMITONES[1])
    return bool(high - low > WANDERING_SEMITONES and glides.sum() > GLIDING_SHARE * len(steps))


class Yin:
    """Measures pitch, 47 to 2400 Hz, by the waveform's period."""

    name = "yin"

    def measure(self, audio: npt.NDArray[np.float32], sample_rate: int) -> float | None:
        """Takes the median over voiced frames from 50 ms on; see `Tracker.measure`."""
        frames = _Frames(at_measuring_rate(audio, sample_rate))
        # Only what counts is listened to: half of a note may be its release.
        loud = frames.power > frames.power.max() * 10.0 ** (-QUIET_DB / 10.0)
        track = frames.track(_spread(loud & (frames.seconds >= ONSET_SECONDS), MOST_FRAMES))
        return midi_pitch(float(np.median(track.hertz[track.voiced]))) if track.voiced.any() else None


class _Frames:
    """Overlapping pieces of a sound, FRAME samples every HOP; silence follows a sound that is shorter."""

    def __init__(self, signal: npt.NDArray[np.float32]) -> None:
        self._signal = np.pad(signal, (0, max(0, FRAME - len(signal)))).astype(np.float64)
        self._sums = np.zeros(len(self._signal) + 1)
        np.cumsum(np.square(self._signal), out=self._sums[1:])
        self.power = (self._sums[FRAME:] - self._sums[:-FRAME])[::HOP] / FRAME
        """Mean square [frames]."""

        self.seconds = (np.arange(len(self.power)) * HOP + FRAME / 2) / SAMPLE_RATE
        """The middle of each frame [frames]."""

    def track(self, which: npt.NDArray[np.bool_]) -> PitchTrack:
        """Finds the fundamental in those of the frames [frames] that are marked."""
        difference = self._difference(which)
        normalised = _normalised(difference)
        lag = _first_dip(normalised)
        depth = np.take_along_axis(normalised, lag[:, None], axis=1)[:, 0]
        power = self.power[which]
        return PitchTrack(
            hertz=SAMPLE_RATE / _fine_period(difference, lag),
            voiced=(depth <= VOICED_BELOW) & (power > 0.0),
            seconds=self.seconds[which],
            power=power,
        )

    def _difference(self, which: npt.NDArray[np.bool_]) -> Values:
        """Sums the energy of x(t) - x(t + lag) over the window: d(lag) [marked frames, lags]."""
        frames = np.lib.stride_tricks.sliding_window_view(self._signal, FRAME)[::HOP][which]
        head = np.fft.rfft(frames[:, :WINDOW], FRAME)
        np.conj(head, out=head)
        head *= np.fft.rfft(frames)
        product = np.fft.irfft(head, FRAME)[:, :LONGEST_PERIOD]
        windows = self._sums[WINDOW:] - self._sums[:-WINDOW]
        lags = np.lib.stride_tricks.sliding_window_view(windows, LONGEST_PERIOD)
        difference = lags[::HOP][: len(which)][which]
        difference += difference[:, :1].copy()
        product *= 2.0
        difference -= product
        return np.maximum(difference, 0.0, out=difference)


def midi_pitch(hertz: float) -> float:
    """The fractional MIDI note number of a frequency: 440 Hz is 69."""
    return 69.0 + 12.0 * math.log2(hertz / 440.0)


def _spread(marked: npt.NDArray[np.bool_], most: int) -> npt.NDArray[np.bool_]:
    """Keeps every so many of the marked [frames], so that no more than `most` are left."""
    places = np.flatnonzero(marked)
    chosen = np.zeros_like(marked)
    chosen[places[:: max(1, -(-len(places) // most))]] = True
    return chosen


def _normalised(difference: Values) -> Values:
    """Divides the difference by its mean up to each lag: 1 where nothing repeats, and at lag 0."""
    mean = np.cumsum(difference[:, 1:], axis=1) / np.arange(1, LONGEST_PERIOD)
    ratio = np.ones_like(difference)
    np.divide(difference[:, 1:], mean, out=ratio[:, 1:], where=mean > 0.0)
    return ratio


def _first_dip(normalised: Values) -> Lags:
    """Finds the lag [frames] of the first local minimum below the threshold, else of the lowest one.

    A minimum's depth is that of a parabola through it (the paper's step 5): of short periods, which fall
    between samples, the double would look deeper otherwise.
    """
    before = normalised[:, SHORTEST_PERIOD - 1 : -2]
    middle = normalised[:, SHORTEST_PERIOD:-1]
    after = normalised[:, SHORTEST_PERIOD + 1 :]
    dip = (middle < before) & (middle <= after)
    depth = middle.copy()
    left, at, right = before[dip], middle[dip], after[dip]
    depth[dip] -= np.square(left - right) / (8.0 * (left - 2.0 * at + right))
    deep = dip & (depth < THRESHOLD)
    lag = np.where(deep.any(axis=1), deep.argmax(axis=1), depth.argmin(axis=1))
    return np.asarray(lag + SHORTEST_PERIOD, dtype=np.intp)


def _fine_period(difference: Values, lag: Lags) -> Values:
    """Refines the whole lag [frames] of a period to parts of a sample."""
    times = np.maximum(1, FINE_LAG // lag)
    later = np.rint(times * (lag + _offset_of_minimum(difference, lag))).astype(np.intp)
    return np.asarray((later + _offset_of_minimum(difference, later)) / times, dtype=np.float64)


def _offset_of_minimum(difference: Values, lag: Lags) -> Values:
    """Finds the minimum of a parabola through three points at the lag [frames]: -0.5 .. 0.5 away from it."""
    rows = np.arange(len(lag))
    before, at, after = (difference[rows, lag + step] for step in (-1, 0, 1))
    curvature = before - 2.0 * at + after
    offset = np.divide(0.5 * (before - after), curvature, out=np.zeros_like(at), where=curvature > 0.0)
    return np.clip(offset, -0.5, 0.5)
