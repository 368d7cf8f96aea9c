"""Sounds that are no note, made otherwise than those that encoders learn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

RATE = 48_000
Audio = npt.NDArray[np.float32]

VOWELS = ((650.0, 1080.0, 2650.0), (400.0, 1700.0, 2600.0), (290.0, 1870.0, 2800.0), (400.0, 750.0, 2400.0))


def speech(seed: int, seconds: float = 2.5) -> Audio:
    """A sentence: harmonics under formants that glide from vowel to vowel, pauses and hisses between."""
    rng = np.random.default_rng(seed)
    time = np.arange(round(seconds * RATE)) / RATE
    knots = np.arange(0.0, seconds + 0.2, 0.18)
    pitch = np.interp(time, knots, rng.choice((110.0, 200.0)) * 2.0 ** rng.uniform(-0.35, 0.35, len(knots)))
    path = np.array(VOWELS)[rng.integers(len(VOWELS), size=len(knots))]
    formants = [np.interp(time, knots, path[:, number]) for number in range(3)]
    turns = 2 * np.pi * np.cumsum(pitch) / RATE
    voice = np.zeros(len(time))
    for harmonic in range(1, 40):
        hertz = harmonic * pitch
        gain = sum(1.0 / (1.0 + ((hertz - peak) / (60.0 + 0.06 * peak)) ** 2) for peak in formants)
        voice += gain * (hertz < 5_000.0) / harmonic**0.5 * np.sin(harmonic * turns)
    spoken = np.interp(time, knots, rng.choice((0.05, 1.0), len(knots), p=(0.3, 0.7)))
    hiss = np.diff(rng.standard_normal(len(time) + 1)) * (1.0 - spoken) * 0.15
    return (spoken * voice / np.abs(voice).max() + hiss).astype(np.float32)


def drums(seed: int, seconds: float = 2.5) -> Audio:
    """A beat of kick, snare and hi-hat."""
    rng = np.random.default_rng(seed)
    sound = np.zeros(round(seconds * RATE))
    beat = round(60.0 / rng.uniform(90.0, 150.0) * RATE / 2)
    time = np.arange(beat) / RATE
    kick = np.sin(2 * np.pi * (50.0 * time + 4.0 * (1 - np.exp(-30 * time)))) * np.exp(-9 * time)
    for number, place in enumerate(range(0, len(sound) - beat, beat)):
        noise = rng.standard_normal(beat)
        hat = 0.2 * np.diff(noise, prepend=0.0) * np.exp(-60 * time)
        hit = (kick, 0.0, 0.5 * noise * np.exp(-18 * time), 0.3 * kick)[number % 4]
        sound[place : place + beat] += hit + hat
    return sound.astype(np.float32)


def noise(seed: int, seconds: float = 2.0) -> Audio:
    """White, pink or brown noise."""
    spectrum = np.fft.rfft(np.random.default_rng(seed).standard_normal(round(seconds * RATE)))
    spectrum /= np.maximum(np.arange(len(spectrum)), 1.0) ** (0.5 * (seed % 3))
    sound = np.fft.irfft(spectrum)
    return (sound / np.abs(sound).max()).astype(np.float32)


def song(seed: int, notes: Sequence[Audio]) -> Audio:
    """Eight of these notes begun a fifth of a second apart in pairs, over a beat."""
    rng = np.random.default_rng(seed)
    sound = 0.4 * drums(seed)
    for number, choice in enumerate(rng.permutation(len(notes))[:8]):
        start = round(0.2 * (number // 2) * RATE)
        note = notes[choice][: len(sound) - start]
        sound[start : start + len(note)] += note / max(np.abs(note).max(), 1e-6)
    return sound


FOREIGN: dict[str, Callable[[int], Audio]] = {"speech": speech, "drums": drums, "noise": noise}
"""Those that need no notes, by name; each is made of a seed."""
