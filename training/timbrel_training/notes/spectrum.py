"""Short-time spectra (windows of 1024 samples every 256, at 24 kHz), log-mel spectrograms, their distance."""

from __future__ import annotations

import functools

import numpy as np
import soxr
from numpy.typing import NDArray

SAMPLE_RATE = 24_000
"""Hz. What is above 12 kHz is not judged: a codec of any rate is compared on what all of them carry."""

WINDOW = 1024
"""Samples."""

HOP = 256
"""Samples."""

LOUD_DB = 20.0
"""A frame is loud where its energy is at most this far below the loudest frame's."""
N_MELS = 80
"""Bands, evenly spaced in mel from 0 Hz to 12 kHz."""
FLOOR_DB = -120.0
"""The level of silence; 0 dB is the peak of a sine of amplitude 1."""
RANGE_DB = 60.0
"""A level further below the reference's peak does not count: nobody hears it."""


def at_measuring_rate(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Returns the audio at 24 kHz."""
    if sample_rate == SAMPLE_RATE or not len(audio):
        return audio
    return np.asarray(soxr.resample(audio, sample_rate, SAMPLE_RATE), dtype=np.float32)


def frames_of(audio: NDArray[np.float32], length: int, hop: int) -> NDArray[np.float32]:
    """Returns the overlapping pieces [frames, length] that lie wholly inside the audio, as a view."""
    if len(audio) < length:
        return np.zeros((0, length), np.float32)
    return np.lib.stride_tricks.sliding_window_view(audio, length)[::hop]


def power_spectrum(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Returns power [frames, 513] of Hann windows centred every 256 samples; a full sine peaks at 1."""
    if not len(audio):
        return np.zeros((0, WINDOW // 2 + 1), np.float32)
    padded = np.pad(at_measuring_rate(audio, sample_rate), WINDOW // 2)
    window = hann(WINDOW)
    spectrum = np.fft.rfft(frames_of(padded, WINDOW, HOP) * (window * (2.0 / window.sum())))
    return np.asarray(spectrum.real**2 + spectrum.imag**2, dtype=np.float32)


def loud_frames(power: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Returns [frames]: which frames of power [frames, bins] are loud; none of silence is."""
    energy = power.sum(axis=1)
    peak = energy.max(initial=0.0)
    return np.asarray((energy > 0.0) & (energy >= peak * 10.0 ** (-LOUD_DB / 10.0)))


def hann(length: int) -> NDArray[np.float32]:
    """Returns a periodic Hann window [length]."""
    return np.hanning(length + 1)[:-1].astype(np.float32)


def log_mel(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Returns the log-mel spectrogram [frames, 80] in dB, at least -120; frames are 256 / 24000 s apart.

    No audio gives no frames.
    """
    return log_mel_of_power(power_spectrum(audio, sample_rate))


def log_mel_of_power(power: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the log-mel spectrogram [frames, 80] in dB of power [frames, 513]."""
    mel = power @ mel_filters()
    return np.asarray(10.0 * np.log10(mel + 10.0 ** (FLOOR_DB / 10.0)), dtype=np.float32)


def floor_below(mel: NDArray[np.floating]) -> float:
    """Returns the level in dB below which nothing counts beside a log-mel spectrogram [frames, 80]."""
    return float(np.max(mel, initial=FLOOR_DB)) - RANGE_DB


def log_mel_distance(
    reference: NDArray[np.floating], other: NDArray[np.floating], floor: float | None = None
) -> float:
    """Returns the mean absolute difference in dB of two log-mel spectrograms [frames, 80] in dB of any
    lengths.

    Both are clipped at the floor in dB, by default 60 below the reference's peak; the shorter one is followed
    by silence; nothing is warped and no level is matched. 0 where neither has a frame. Distances to several
    references can be compared only where all have one floor: the louder a reference, the less of the other it
    sees.
    """
    n_frames = max(len(reference), len(other))
    if not n_frames:
        return 0.0
    if floor is None:
        floor = floor_below(reference)
    a, b = (np.maximum(padded(mel, n_frames), floor) for mel in (reference, other))
    return float(np.abs(a - b).mean())


def padded(mel: NDArray[np.floating], n_frames: int) -> NDArray[np.float32]:
    """Returns the spectrogram [frames, 80] followed by silence up to `n_frames`."""
    missing = n_frames - len(mel)
    return np.pad(np.asarray(mel, dtype=np.float32), ((0, missing), (0, 0)), constant_values=FLOOR_DB)


@functools.cache
def mel_filters() -> NDArray[np.float32]:
    """Returns triangular filters [513, 80], each of which averages: its weights sum to 1."""
    bins = np.fft.rfftfreq(WINDOW, 1.0 / SAMPLE_RATE)
    edges = _hertz(np.linspace(0.0, _mel(SAMPLE_RATE / 2), N_MELS + 2))
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    rising = (bins[:, None] - low) / (centre - low)
    falling = (high - bins[:, None]) / (high - centre)
    weights = np.clip(np.minimum(rising, falling), 0.0, None)
    return np.asarray(weights / weights.sum(axis=0), dtype=np.float32)


def _mel(hertz: float) -> float:
    return float(2595.0 * np.log10(1.0 + hertz / 700.0))


def _hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(700.0 * (10.0 ** (mel / 2595.0) - 1.0), dtype=np.float64)
