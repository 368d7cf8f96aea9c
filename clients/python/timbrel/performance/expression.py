"""A note's expression while it sounds: values over time, the curves of cents, level and brightness that they
make, and the sound with the latter two."""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from timbrel.library.render.level import Audio
from timbrel_bundle.request_fields import FIELD

Times: TypeAlias = npt.NDArray[np.float64]
"""Seconds from the beginning of the piece, [N]."""

Curve: TypeAlias = tuple[tuple[float, float], ...]
"""Points (seconds since the note began, value), with lines between them; none where nothing happens."""

STEP_SECONDS = 0.01
"""Between two points of a curve."""

MOST_POINTS = 1 << 16
"""Of a curve: eleven minutes of such steps. Those of longer notes lie further apart."""

RELEASE_SECONDS = 1.0
"""A curve goes on for so long behind the hold, while the release sounds."""

VIBRATO_HERTZ = 5.5
PRESSURE_DB = 6.0
"""Full pressure makes a note louder by this, and brighter by this."""

BRIGHTNESS_DB = 12.0
"""What the controller of brightness, the slide of MPE, adds to high partials or takes from them, at most."""
CENTRE = 64
"""Where that controller changes nothing."""

BRIGHT_FROM = 3.0
"""Times the pitch of a note: partials above are made louder or softer beside those below."""
BALANCE_SECONDS = 0.04
"""Over so long a brighter or duller note is as loud as it was."""

SILENT_DB = -120.0
LEAST_CENTS = 0.01
LEAST_DB = 0.01
LEAST_POWER = 1e-12
BLOCK_SAMPLES = 128
"""Powers are those of blocks of so many samples."""
FAST_SAMPLES = 4096
"""A Fourier transform of a multiple of this is fast."""


class Steps:
    """A value that changes at moments; they come in the order of time."""

    def __init__(self, first: float = 0.0) -> None:
        self._times: list[float] = [-np.inf]
        self._values = [first]

    def set(self, time: float, value: float) -> None:
        """It is this from a time on."""
        if time <= self._times[-1]:
            self._values[-1] = value
        elif value != self._values[-1]:
            self._times.append(time)
            self._values.append(value)

    @property
    def last(self) -> float:
        """The value that was set last."""
        return self._values[-1]

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """Each moment of a change, in seconds, and the value from then on; the first is at minus infinity."""
        return tuple(zip(self._times, self._values, strict=True))

    def at(self, times: Times) -> npt.NDArray[np.float64]:
        """The values [N] at these times, which rise."""
        first, end = bisect_right(self._times, times[0]) - 1, bisect_right(self._times, times[-1])
        if end - first == 1:
            return np.full(len(times), self._values[first])
        places = np.searchsorted(self._times[first:end], times, side="right") - 1
        return np.asarray(np.array(self._values[first:end])[places])


def curve_times(start: float, held: float) -> Times:
    """When the points of a note's curves are: from its start until its release is over."""
    seconds = held + RELEASE_SECONDS
    n_points = min(max(2, round(seconds / STEP_SECONDS) + 1), MOST_POINTS)
    return start + np.linspace(0.0, seconds, n_points)


def vibrato(depth: npt.NDArray[np.float64], times: Times) -> npt.NDArray[np.float64]:
    """Cents of a vibrato of this depth, in cents."""
    return np.asarray(depth * np.sin(2 * np.pi * VIBRATO_HERTZ * (times - times[0])))


def glide(cents: float, seconds: float, times: Times) -> npt.NDArray[np.float64]:
    """A portamento: from so many cents off to none, in this time."""
    if seconds <= 0.0:
        return np.zeros(len(times))
    return np.asarray(cents * np.clip(1.0 - (times - times[0]) / seconds, 0.0, 1.0))


def as_bend(cents: npt.NDArray[np.float64], times: Times) -> tuple[float | Curve, bool]:
    """The bend that a note is asked with, and whether it went further than a note can be bent."""
    low, high = FIELD["cents"].low, FIELD["cents"].high
    held = np.clip(cents, low, high)
    beyond = bool(np.abs(held - cents).max() > LEAST_CENTS)
    if np.ptp(held) < LEAST_CENTS:
        return (round(float(held[0]), 3) if abs(held[0]) >= LEAST_CENTS else 0.0), beyond
    return _thinned(held, times), beyond


def as_level(decibels: npt.NDArray[np.float64], times: Times) -> Curve:
    """The curve of a note's level, or brightness, in dB; none where it stays as it is."""
    return () if np.abs(decibels).max() < LEAST_DB else _thinned(np.maximum(decibels, SILENT_DB), times)


def square_law_db(value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """40 log10 of a share of full volume, as General MIDI has it."""
    return np.asarray(40.0 * np.log10(np.maximum(value, 10.0 ** (SILENT_DB / 40.0))))


def brightness_db(slide: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Gives the dB of high partials for values of the controller of brightness."""
    return np.asarray(BRIGHTNESS_DB * np.clip((slide - CENTRE) / (127 - CENTRE), -1.0, 1.0))


def swelled(audio: Audio, seconds: Times, level_db: Curve) -> Audio:
    """A note's sound [samples] with its own level over time; `seconds` says when each sample is heard."""
    if not level_db:
        return audio
    return np.asarray(audio * _gains(level_db, seconds), dtype=np.float32)


def brightened(audio: Audio, rate: int, seconds: Times, brightness: Curve, hertz: float) -> Audio:
    """A note's sound [samples] of this pitch, brighter or duller over time, and as loud as it is.

    A shelf of the first order, whose gain moves: what lies below its corner stays as it is.
    """
    if not brightness or not len(audio):
        return audio
    low = _low_pass(audio, rate, BRIGHT_FROM * hertz)
    high, gain = audio - low, _gains(brightness, seconds).astype(np.float32)
    balance = _balance(low, high, gain, max(1, round(BALANCE_SECONDS * rate / BLOCK_SAMPLES)))
    return np.asarray((low + gain * high) * balance, dtype=np.float32)


def _balance(low: Audio, high: Audio, gain: Audio, n_blocks: int) -> Audio:
    """Gives the factor by which low + gain * high is as loud as low + high, over so many blocks around.

    The powers that are averaged are those of the parts: that of what is changed would mix what lies before a
    jump of the gain with what follows.
    """
    lows, both, highs = (
        _moving_mean(_block_means(*each), n_blocks) for each in ((low, low), (low, high), (high, high))
    )
    middles = np.minimum((np.arange(len(lows)) + 0.5) * BLOCK_SAMPLES, len(low) - 1).astype(np.int64)
    here = gain[middles]
    before = np.maximum(lows + 2 * both + highs, 0.0) + LEAST_POWER
    after = np.maximum(lows + 2 * here * both + here**2 * highs, 0.0) + LEAST_POWER
    return np.asarray(np.interp(np.arange(len(low)), middles, np.sqrt(before / after)), dtype=np.float32)


def _block_means(one: Audio, other: Audio) -> npt.NDArray[np.float64]:
    """The mean product of two sounds in each block of BLOCK_SAMPLES, the last filled up with zeros."""
    products = np.pad(one * other, (0, -len(one) % BLOCK_SAMPLES))
    return np.asarray(products.reshape(-1, BLOCK_SAMPLES).mean(axis=1, dtype=np.float64))


def _moving_mean(values: npt.NDArray[np.float64], n_around: int) -> npt.NDArray[np.float64]:
    """The mean of so many values around each; there are zeros before and behind."""
    n_before = n_around // 2
    sums = np.cumsum(np.pad(values, (n_before + 1, n_around - 1 - n_before)))
    return np.asarray((sums[n_around:] - sums[:-n_around]) / n_around)


def _gains(decibels: Curve, seconds: Times) -> npt.NDArray[np.float64]:
    return np.asarray(10.0 ** (np.interp(seconds, *np.array(decibels).T) / 20.0))


def _low_pass(audio: Audio, rate: int, corner: float) -> Audio:
    """The sound [samples] through a low-pass of the first order; silence behind it keeps its end from its
    beginning."""
    n_padded = len(audio) + round(4.0 * rate / corner)
    n_padded += -n_padded % FAST_SAMPLES
    spectrum = np.fft.rfft(audio, n_padded)
    spectrum /= 1.0 + 1j * np.fft.rfftfreq(n_padded, 1.0 / rate) / corner
    return np.fft.irfft(spectrum, n_padded)[: len(audio)].astype(np.float32)


def _thinned(values: npt.NDArray[np.float64], times: Times) -> Curve:
    """The points, without those that lie between equal ones."""
    same = np.zeros(len(values), dtype=bool)
    same[1:-1] = (values[1:-1] == values[:-2]) & (values[1:-1] == values[2:])
    seconds = times - times[0]
    return tuple(
        (round(float(second), 6), round(float(value), 3))
        for second, value in zip(seconds[~same], values[~same], strict=True)
    )
