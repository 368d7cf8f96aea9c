"""How steady a held sound is, and how soon it is released."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Audio = npt.NDArray[np.float32]

LEAST_VARIATION_DB = 1.4
"""Below this no two seconds of a steady sound are told apart: those of six flute notes of the shipped bundle
differ by 0.36 to 1.28 dB, whether they are half a second or seven apart."""
WINDOW = 2048
RELEASE_DB = 3.0
STEP_SECONDS = 0.01


def spectrum(audio: Audio, rate: int, second: float) -> npt.NDArray[np.float64]:
    """dB in third octaves, the mean over a second."""
    part = audio[round(second * rate) : round((second + 1) * rate)]
    frames = np.lib.stride_tricks.sliding_window_view(part, WINDOW)[:: WINDOW // 4] * np.hanning(WINDOW)
    power = (np.abs(np.fft.rfft(frames)) ** 2).mean(axis=0)
    octave = np.log2(np.maximum(np.fft.rfftfreq(WINDOW, 1 / rate), 1.0) / 60.0)
    bands = [power[(octave >= low) & (octave < low + 1 / 3)].sum() for low in np.arange(1.0, 8.0, 1 / 3)]
    return 10 * np.log10(np.array(bands) + 1e-12)


def distance(audio: Audio, rate: int, first: float, second: float) -> float:
    """Mean absolute difference in dB, both clipped 60 dB below the louder one's peak."""
    one, other = spectrum(audio, rate, first), spectrum(audio, rate, second)
    floor = max(one.max(), other.max()) - 60.0
    return float(np.abs(np.maximum(one, floor) - np.maximum(other, floor)).mean())


def level_db(audio: Audio, rate: int, second: float) -> float:
    """The level of half a second; what lies behind the sound's end is silent."""
    part = audio[round(second * rate) : round((second + 0.5) * rate)]
    return float(10 * np.log10(np.square(part, dtype=np.float64).sum() / (0.5 * rate) + 1e-12))


def own_variation(audio: Audio, rate: int) -> float:
    """How far seconds lie from one another while the note is the model's own."""
    return max(distance(audio, rate, first, first + 1) for first in (1.0, 1.5, 2.0))


def release_seconds(audio: Audio, rate: int, second: float) -> float:
    """How long after a moment the sound is softer by RELEASE_DB than at any time within the second before."""
    step = round(STEP_SECONDS * rate)

    def levels(part: Audio) -> npt.NDArray[np.float64]:
        windows = part[: len(part) // step * step].reshape(-1, step).astype(np.float64)
        smoothed = np.convolve(np.square(windows).mean(axis=1), np.full(3, 1 / 3), "valid")
        return 10 * np.log10(smoothed + 1e-12)

    end = round(second * rate)
    softest = levels(audio[end - rate : end]).min()
    below = np.flatnonzero(levels(audio[end:]) < softest - RELEASE_DB)
    return float((below[0] + 1) * STEP_SECONDS) if len(below) else float("inf")
