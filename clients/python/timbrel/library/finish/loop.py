"""Loops for sounds that last: two places where the waveform is alike, and a crossfade between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from timbrel.library.render.level import Audio, fast_length, rms_db

STEADY_SHARE = 0.25
STEADY_SECONDS = 0.3
"""A loop begins after this share of the hold, and not sooner than this after the onset: past the attack."""

BEFORE_RELEASE_SECONDS = 0.02
"""A loop ends this long before the key is let go."""

CROSSFADE_SECONDS = 0.05
WINDOW_SECONDS = 0.06
"""So much of the waveform before either end is compared: three periods of the lowest note and more."""

SHORTEST_SECONDS = 0.2
"""Shorter loops buzz: a listener hears the period of the repetition."""

N_ENDS = 8
STARTS_PER_END = 3

LEAST_LIKENESS = 0.6
"""Correlation below which a crossfade would be heard as beating or a dip."""

LENGTH_BONUS = 0.4
"""Added to the correlation of a loop as long as the stretch: longer ones move as the held note does. The best
correlation alone is often that of the shortest, which stands still but for its repetition."""

JOINT_DB = 1.0
"""A joint clicks where its curvature exceeds the loop's sharpest by more than this."""

STEP_DB = 1.5
"""Largest difference in level across the joint."""

STEP_RATIO = 10.0 ** (STEP_DB / 10.0)
"""The same of two energies."""

STEP_SECONDS = 0.03

BLOCK_WINDOWS = 2.5
"""Length of the transforms that windows are compared by."""


class Loop(NamedTuple):
    """The stretch that a sampler repeats, in samples; `end` is the last one played before `start`."""

    start: int
    end: int


class LoopedSound(NamedTuple):
    """A sound with a loop in it."""

    audio: Audio
    """[samples], crossfaded around the loop's end: straight playing has no click there either."""

    loop: Loop
    joint_db: float
    """The joint's curvature over the sharpest within the loop: at most JOINT_DB."""


def find_loop(audio: Audio, sample_rate: int, begin: int, stop: int) -> LoopedSound | None:
    """Finds the best loop of audio [samples] within begin, where it has become steady, and stop, where the
    key is released; None where there is none that cannot be heard."""
    stop = min(stop, len(audio))
    for start, end, likeness in _candidates(audio[:stop].astype(np.float64), sample_rate, begin):
        loop = Loop(start, end)
        n_fade = min(round(CROSSFADE_SECONDS * sample_rate), start - begin, end - start)
        looped = _crossfaded(audio, loop, n_fade, likeness)
        joint = joint_excess_db(looped, loop)
        if joint <= JOINT_DB and abs(level_step_db(looped, loop, sample_rate)) <= STEP_DB:
            return LoopedSound(looped, loop, joint)
    return None


def as_held(audio: Audio, loop: tuple[int, int] | None, n_samples: int) -> Audio:
    """Gives the first samples of a sound as a key that stays down plays it: through its loop again and again,
    or, without one, to its end."""
    if loop is None or n_samples <= loop[1] + 1:
        return audio[:n_samples]
    start, stop = loop[0], loop[1] + 1
    return np.concatenate([audio[:stop], np.resize(audio[start:stop], n_samples - stop)])


def joint_excess_db(audio: Audio, loop: Loop) -> float:
    """Compares the largest second difference across the joint with the largest within the loop, in dB.

    A click lies far above 0.
    """
    body = _curvature(audio[loop.start : loop.end + 1])
    joint = _curvature(
        np.concatenate([audio[loop.end - 2 : loop.end + 1], audio[loop.start : loop.start + 3]])
    )
    sharpest = float(body.max(initial=0.0))
    return 20.0 * float(np.log10(max(float(joint.max(initial=0.0)), 1e-9) / max(sharpest, 1e-9)))


def level_step_db(audio: Audio, loop: Loop, sample_rate: int) -> float:
    """Measures how much louder it is just before the joint than just after."""
    n_samples = round(STEP_SECONDS * sample_rate)
    before = audio[max(0, loop.end + 1 - n_samples) : loop.end + 1]
    return rms_db(before) - rms_db(audio[loop.start : loop.start + n_samples])


def _candidates(
    audio: npt.NDArray[np.float64], sample_rate: int, begin: int
) -> Iterator[tuple[int, int, float]]:
    """Yields (start, end, correlation) of places that are alike, best first."""
    window = round(WINDOW_SECONDS * sample_rate)
    shortest = round(SHORTEST_SECONDS * sample_rate)
    first_end = begin + window + shortest
    span = len(audio) - first_end
    if span <= 0:
        return
    ends = np.unique(np.linspace(first_end + 0.6 * span, len(audio) - 1, N_ENDS).astype(int))
    templates = [audio[end + 1 - window : end + 1] for end in ends]
    matcher = _Matcher(audio[begin : len(audio) - 1 - shortest], window)
    bonus = LENGTH_BONUS / (len(audio) - begin) * np.arange(len(audio), 0, -1)
    found: list[tuple[float, int, int, float]] = []
    for end, template, transformed in zip(ends, templates, matcher.transformed(templates), strict=True):
        # likeness[i] compares the window before `end` with the one before begin + window + i.
        likeness = matcher.likeness(template, transformed, end - shortest - begin - window + 1)
        longest = len(audio) - (end - begin - window)
        score = likeness + bonus[longest : longest + len(likeness)]
        for place in _best_places(score, likeness, round(0.01 * sample_rate)):
            alike = matcher.likeness_at(template, place)
            found.append((float(score[place]), begin + window + place, int(end), alike))
    for _, start, end, likeness_there in sorted(found, key=lambda each: (-each[0], each[1], each[2])):
        yield start, end, likeness_there


class _Matcher:
    """Compares short windows with every stretch of one signal.

    In single precision, which takes half the time, and errs by a millionth of what makes two places alike.
    """

    def __init__(self, signal: npt.NDArray[np.float64], window: int) -> None:
        # In blocks that overlap by a window: short transforms stay in the processor's nearest cache.
        self._size = fast_length(round(BLOCK_WINDOWS * window))
        self._hop = self._size - window + 1
        n_blocks = -(-len(signal) // self._hop)
        padded = np.pad(signal, (0, n_blocks * self._hop + window - 1 - len(signal)))
        blocks = np.lib.stride_tricks.sliding_window_view(padded, self._size)[:: self._hop]
        self._spectra = np.fft.rfft(blocks).astype(np.complex64)
        self._signal = signal
        sums = np.pad(np.cumsum(np.square(signal)), (1, 0))
        self._energy = np.maximum(sums[window:] - sums[:-window], 1e-12).astype(np.float32)
        self._root = np.sqrt(self._energy)

    def transformed(self, templates: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.complex64]:
        """Transforms these templates for `likeness` to multiply by: [windows, bins]."""
        return np.conj(np.fft.rfft(np.stack(templates), self._size)).astype(np.complex64)

    def likeness(
        self, template: npt.NDArray[np.float64], transformed: npt.NDArray[np.complex64], n_places: int
    ) -> npt.NDArray[np.float32]:
        """Correlates the template, -1..1, with each of the signal's first stretches of its length.

        0 where the two differ in level by more than STEP_DB: a crossfade between them would pump.
        """
        n_blocks = -(-n_places // self._hop)
        product = np.fft.irfft(self._spectra[:n_blocks] * transformed, self._size)[:, : self._hop]
        energy, there = self._energy[:n_places], np.float32(max(float(template @ template), 1e-12))
        ratio = np.float32(STEP_RATIO)
        same_level = (energy <= ratio * there) & (energy >= there / ratio)
        likeness = product.reshape(-1)[:n_places] / self._root[:n_places]
        likeness *= same_level
        likeness /= np.sqrt(there)
        return np.asarray(likeness, dtype=np.float32)

    def likeness_at(self, template: npt.NDArray[np.float64], place: int) -> float:
        """Correlates the template with one place, to the last digit."""
        stretch = self._signal[place : place + len(template)]
        energies = max(float(template @ template), 1e-12) * max(float(stretch @ stretch), 1e-12)
        return float(template @ stretch) / math.sqrt(energies)


def _best_places(
    score: npt.NDArray[np.float64], likeness: npt.NDArray[np.float32], apart: int
) -> Iterator[int]:
    """Yields the places of the highest few scores that are alike enough, none within `apart` of another."""
    left = np.where(likeness >= LEAST_LIKENESS, score, -np.inf)
    for _ in range(STARTS_PER_END):
        place = int(left.argmax())
        if left[place] == -np.inf:
            return
        yield place
        left[max(0, place - apart) : place + apart] = -np.inf


def _crossfaded(audio: Audio, loop: Loop, n_fade: int, likeness: float) -> Audio:
    """Turns the loop's end into what comes before the loop's start, and then back again.

    Both are weighed for constant power, given how alike the two are.
    """
    looped = audio.copy()
    last = loop.end + 1
    share = (np.arange(1, n_fade + 1) / n_fade).astype(np.float64)
    before = slice(last - n_fade, last)
    looped[before] = _mixed(audio[before], audio[loop.start - n_fade : loop.start], share, likeness)
    n_after = min(n_fade, len(audio) - last)
    after = slice(last, last + n_after)
    back = 1.0 - share[:n_after]
    looped[after] = _mixed(audio[after], audio[loop.start : loop.start + n_after], back, likeness)
    return looped


def _mixed(own: Audio, other: Audio, share: npt.NDArray[np.float64], likeness: float) -> Audio:
    power = np.square(1.0 - share) + np.square(share) + 2.0 * share * (1.0 - share) * max(0.0, likeness)
    return (((1.0 - share) * own + share * other) / np.sqrt(power)).astype(np.float32)


def _curvature(audio: Audio) -> npt.NDArray[np.float64]:
    return np.abs(np.diff(audio.astype(np.float64), 2))
