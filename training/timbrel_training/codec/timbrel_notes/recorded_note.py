"""Finds out of a recording how high its note is, and when its key was let go, where nobody says so.

The pitch is found by YIN (de Cheveigné and Kawahara, 2002), frame by frame; what has no pitch that lasts is
no note.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from timbrel_training.errors import TrainingError

FRAME = 4096
"""Samples at 48 kHz: two periods of the lowest note and more."""
HOP = 2048
MOST_FRAMES = 48
LOWEST_HZ, HIGHEST_HZ = 30.0, 4500.0
DIP = 0.15
"""The first dip of the difference below this is the period."""
VOICED_BELOW = 0.35
"""A frame has a pitch where what does not repeat is at most this share of its power."""
VOICED_SHARE = 0.4
"""Of the frames that are within 30 dB of the loudest, as many have a pitch in a note."""
SPREAD_SEMITONES = 0.8
"""And half of them lie this close to their median."""
RANGE_DB = 30.0
RELEASE_DB = 24.0
"""The release begins where the level last is so far below its median of the 300 ms before."""


class NoNoteError(TrainingError):
    """A recording is no note of a pitch; the message says why."""


def estimate_pitch(audio: NDArray[np.float32], sample_rate: int) -> float:
    """Returns the MIDI note number, a fraction, of a note float32 [S]. Raises NoNoteError: it is silent, too
    short, or has no pitch that lasts."""
    if len(audio) < FRAME:
        raise NoNoteError(
            f"too short to tell its pitch: {FRAME / sample_rate:.2f} seconds at least are needed"
        )
    frames = np.lib.stride_tricks.sliding_window_view(audio, FRAME)[::HOP].astype(np.float64)
    frames = frames[np.unique(np.linspace(0, len(frames) - 1, min(MOST_FRAMES, len(frames))).astype(int))]
    power = np.square(frames).mean(axis=1)
    if power.max() < 1e-10:
        raise NoNoteError("silent")
    frames = frames[power > power.max() * 10 ** (-RANGE_DB / 10)]
    midi, aperiodic = _yin(frames, sample_rate)
    voiced = midi[aperiodic < VOICED_BELOW]
    if len(voiced) < VOICED_SHARE * len(frames):
        raise NoNoteError("no note of a pitch: noise, a drum, or several notes at once")
    if np.median(np.abs(voiced - np.median(voiced))) > SPREAD_SEMITONES:
        raise NoNoteError("no single note: its pitch does not last")
    return float(np.median(voiced))


def estimate_held_seconds(audio: NDArray[np.float32], sample_rate: int) -> float:
    """Returns for how long the key of a note float32 [S] was held, as far as it can be heard: up to where its
    level falls for good faster than it did before."""
    hop = sample_rate // 100
    n = max(1, len(audio) // hop)
    blocks = (
        np.square(audio[: n * hop].astype(np.float64)).reshape(n, -1) if len(audio) >= hop else audio[None]
    )
    level = 10 * np.log10(blocks.mean(axis=1) + 1e-12)
    before = np.array([np.median(level[max(0, k - 30) : k + 1]) for k in range(n)])
    sounding = np.flatnonzero((level > before - RELEASE_DB) & (level > level.max() - 60))
    last = int(sounding[-1]) + 1 if len(sounding) else n
    # Back to where that fall began.
    while last > 1 and level[last - 1] < np.median(level[max(0, last - 30) : last]) - 3.0:
        last -= 1
    return last * hop / sample_rate


def _yin(frames: NDArray[np.float64], sample_rate: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns MIDI note numbers of frames [N, FRAME], and the share of their power that does not repeat."""
    longest, shortest = int(sample_rate / LOWEST_HZ), int(sample_rate / HIGHEST_HZ)
    window = FRAME - longest
    size = 2 * FRAME
    head = np.fft.rfft(frames[:, :window], size)
    whole = np.fft.rfft(frames, size)
    product = np.fft.irfft(np.conj(head) * whole, size)[:, : longest + 1]
    squares = np.cumsum(np.pad(np.square(frames), ((0, 0), (1, 0))), axis=1)
    energy = squares[:, window : window + longest + 1] - squares[:, : longest + 1]
    difference = np.maximum(energy[:, :1] + energy - 2 * product, 0)
    lag = np.arange(1, longest + 1)
    normal = difference[:, 1:] * lag / np.maximum(np.cumsum(difference[:, 1:], axis=1), 1e-12)
    midi, aperiodic = np.zeros(len(frames)), np.zeros(len(frames))
    for row, curve in enumerate(normal):
        below = np.flatnonzero(curve[shortest - 1 :] < DIP) + shortest - 1
        if len(below):
            best = int(below[0])
            while best + 1 < len(curve) and curve[best + 1] < curve[best]:
                best += 1
        else:
            best = int(curve[shortest - 1 :].argmin()) + shortest - 1
        at = min(max(best, 1), len(curve) - 2)
        left, centre, right = curve[at - 1 : at + 2]
        bend = left - 2 * centre + right
        shift = 0.5 * (left - right) / bend if bend > 1e-12 else 0.0
        midi[row] = 69 + 12 * np.log2(sample_rate / (at + 1 + np.clip(shift, -1, 1)) / 440)
        # At the longest period nothing says that it is one.
        aperiodic[row] = centre if best + 2 < len(curve) else 1.0
    return midi, aperiodic
