"""The YIN pitch tracker.

After de Cheveigné and Kawahara 2002, "YIN, a fundamental frequency estimator for speech and music". It is
arithmetic on the waveform: nothing in it was learnt, so it errs on other notes than a neural tracker does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, rfft

from timbrel_training.evaluate.measure.spectrum import SAMPLE_RATE, at_measuring_rate, frames_of

LONGEST_PERIOD = 512
"""Samples at 24 kHz: 47 Hz."""

SHORTEST_PERIOD = 10
"""Samples at 24 kHz: 2400 Hz."""

WINDOW = 1024
"""Samples compared with those one period later: two and a half periods of the lowest note that is judged."""

HOP = 480
"""Samples: 20 ms."""

THRESHOLD = 0.1
"""The first dip of the difference below this is the period (the paper's value)."""

FINE_LAG = 48
"""Samples: a shorter period is read off at that multiple of it which comes close to this lag. A parabola
through three samples is 5 cents off at the highest notes otherwise."""

VOICED_BELOW = 0.4
"""A frame is voiced where the power that does not repeat is at most this share."""

FRAME = WINDOW + LONGEST_PERIOD


@dataclass(frozen=True)
class PitchTrack:
    """The fundamental of a note over time."""

    hertz: NDArray[np.float64]
    """[frames]"""

    voiced: NDArray[np.bool_]
    """[frames]"""

    seconds: NDArray[np.float64]
    """[frames], the middle of each."""

    power: NDArray[np.float64]
    """[frames], mean square."""


def track_pitch(audio: NDArray[np.float32], sample_rate: int) -> PitchTrack:
    """The fundamental, 47 to 2400 Hz, every 20 ms; silence follows a note shorter than a frame of 64 ms."""
    signal = at_measuring_rate(audio, sample_rate)
    frames = frames_of(np.pad(signal, (0, max(0, FRAME - len(signal)))), FRAME, HOP).astype(np.float64)
    power = np.square(frames).mean(axis=1)
    difference = _difference(frames)
    normalised = _normalised(difference)
    period = _first_dip(normalised)
    depth = np.take_along_axis(normalised, period[:, None], axis=1)[:, 0]
    return PitchTrack(
        hertz=SAMPLE_RATE / _fine_period(difference, period),
        voiced=(depth <= VOICED_BELOW) & (power > 0.0),
        seconds=(np.arange(len(frames)) * HOP + FRAME / 2) / SAMPLE_RATE,
        power=power,
    )


def _difference(frames: NDArray[np.float64]) -> NDArray[np.float64]:
    """d(lag) [frames, lags]: the energy of x(t) - x(t + lag) over the window."""
    size = 2048
    head = rfft(frames[:, :WINDOW], size)
    product = irfft(rfft(frames, size) * np.conj(head), size)[:, :LONGEST_PERIOD]
    sums = np.pad(np.cumsum(np.square(frames), axis=1), ((0, 0), (1, 0)))
    energy = sums[:, WINDOW : WINDOW + LONGEST_PERIOD] - sums[:, :LONGEST_PERIOD]
    return np.maximum(energy[:, :1] + energy - 2.0 * product, 0.0)


def _normalised(difference: NDArray[np.float64]) -> NDArray[np.float64]:
    """The difference divided by its mean up to each lag: 1 where nothing repeats, and at lag 0."""
    lags = np.arange(1, LONGEST_PERIOD)
    mean = np.cumsum(difference[:, 1:], axis=1) / lags
    ratio = np.divide(difference[:, 1:], mean, out=np.ones_like(mean), where=mean > 0.0)
    return np.pad(ratio, ((0, 0), (1, 0)), constant_values=1.0)


def _first_dip(normalised: NDArray[np.float64]) -> NDArray[np.intp]:
    """The lag [frames] of the first local minimum below the threshold, else of the lowest value."""
    middle = normalised[:, SHORTEST_PERIOD:-1]
    dip = (middle < normalised[:, SHORTEST_PERIOD - 1 : -2]) & (
        middle <= normalised[:, SHORTEST_PERIOD + 1 :]
    )
    deep = dip & (middle < THRESHOLD)
    lag = np.where(deep.any(axis=1), deep.argmax(axis=1), middle.argmin(axis=1))
    return np.asarray(lag + SHORTEST_PERIOD, dtype=np.intp)


def _fine_period(difference: NDArray[np.float64], lag: NDArray[np.intp]) -> NDArray[np.float64]:
    """The period [frames] in samples and parts of them, from its whole lag [frames]."""
    times = np.maximum(1, FINE_LAG // lag)
    later = np.rint(times * (lag + _offset_of_minimum(difference, lag))).astype(np.intp)
    return np.asarray((later + _offset_of_minimum(difference, later)) / times, dtype=np.float64)


def _offset_of_minimum(difference: NDArray[np.float64], lag: NDArray[np.intp]) -> NDArray[np.float64]:
    """How far from the lag [frames] the minimum lies, by a parabola through three points: -0.5 .. 0.5."""
    rows = np.arange(len(lag))
    before, at, after = (difference[rows, lag + step] for step in (-1, 0, 1))
    curvature = before - 2.0 * at + after
    offset = np.divide(0.5 * (before - after), curvature, out=np.zeros_like(at), where=curvature > 0.0)
    return np.clip(offset, -0.5, 0.5)
