"""Sounds that are no note of any instrument: the encoder learns that nothing on the map is near them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, lfilter, sosfilt

from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.timbre.recordings import Audio, as_recorded

FORMANTS = (
    ((700, 130), (1220, 70), (2600, 160)),
    ((530, 60), (1840, 90), (2480, 200)),
    ((270, 60), (2290, 90), (3010, 100)),
    ((570, 90), (840, 110), (2410, 170)),
    ((300, 65), (870, 110), (2240, 140)),
)
"""Centres and widths in Hz of the vowels in father, bet, beet, bought, boot (Peterson and Barney, 1952)."""


def foreign_sound(
    notes: NoteDataset, rows: NDArray[np.int64], seconds: float, rng: np.random.Generator
) -> Audio:
    """Draws a sound [S] of about so many seconds, a third of them at least: many notes of these rows at once,
    a drum loop, speech, or noise."""
    rate = notes.sample_rate
    length = round(rng.uniform(seconds / 3.0, seconds) * rate)
    kind = rng.choice(("chord", "song", "drums", "speech", "noise"), p=(0.2, 0.25, 0.2, 0.2, 0.15))
    if kind == "chord":
        sound = many_notes(notes, rows, length, 0.03, rng)
    elif kind == "song":
        sound = many_notes(notes, rows, length, 1.0, rng)
        if rng.random() < 0.5:
            sound = sound + rng.uniform(0.2, 1.0) * drum_loop(length, rate, rng)
    else:
        sound = {"drums": drum_loop, "speech": speech, "noise": noise}[str(kind)](length, rate, rng)
    return as_recorded(sound.astype(np.float32), rate, rng)


def many_notes(
    notes: NoteDataset, rows: NDArray[np.int64], length: int, spread: float, rng: np.random.Generator
) -> Audio:
    """Mixes 3 to 8 notes of different pitch classes, begun within a share `spread` of the time."""
    sound = np.zeros(length, np.float32)
    classes: set[int] = set()
    for row in rng.permutation(rows)[:40]:
        start = round(rng.uniform(0.0, spread) * length * 0.7) if classes else 0
        audio = notes.audio(int(row), 0, length - start)
        if int(notes.pitch[row]) % 12 in classes or not len(audio):
            continue
        classes.add(int(notes.pitch[row]) % 12)
        sound[start : start + len(audio)] += audio * rng.uniform(0.4, 1.0) / max(np.abs(audio).max(), 1e-6)
        if len(classes) == 8 or (len(classes) >= 3 and rng.random() < 0.2):
            break
    return sound


def drum_loop(length: int, rate: int, rng: np.random.Generator) -> Audio:
    """Plays hits of noise and of tones that fall in pitch, in a rhythm of sixteenths."""
    sound = np.zeros(length)
    step = round(rng.uniform(0.09, 0.2) * rate)
    kit = [_hit(rate, rng) for _ in range(rng.integers(2, 5))]
    for place in range(0, length, step):
        if place == 0 or rng.random() < 0.55:
            hit = kit[rng.integers(len(kit))][: length - place]
            sound[place : place + len(hit)] += rng.uniform(0.3, 1.0) * hit
    return sound.astype(np.float32)


def _hit(rate: int, rng: np.random.Generator) -> NDArray[np.float64]:
    time = np.arange(round(rng.uniform(0.05, 0.5) * rate)) / rate
    fall = np.exp(-time * rng.uniform(2.0, 6.0) / time[-1])
    low, sweep = np.exp(rng.uniform(np.log(40.0), np.log(300.0))), rng.uniform(0.0, 4.0)
    tone = np.sin(2 * np.pi * np.cumsum(low * (1.0 + sweep * np.exp(-time * 40.0))) / rate)
    low_end, high_end = np.sort(np.exp(rng.uniform(np.log(100.0), np.log(0.45 * rate), 2)))
    band = (low_end, min(high_end + 200.0, 0.49 * rate))
    filter = butter(2, band, "bandpass", fs=rate, output="sos")
    rattle = sosfilt(filter, rng.standard_normal(len(time)))
    share = rng.choice((0.0, 0.5, 1.0))
    return fall * ((1.0 - share) * tone + share * rattle / max(np.abs(rattle).max(), 1e-9))


def speech(length: int, rate: int, rng: np.random.Generator) -> Audio:
    """Babbles: syllables of a voice whose pitch moves, its vowels by formants, hisses between them."""
    pieces: list[NDArray[np.float64]] = []
    base, size = np.exp(rng.uniform(np.log(80.0), np.log(300.0))), rng.uniform(0.85, 1.25)
    while sum(map(len, pieces)) < length:
        n = round(rng.uniform(0.08, 0.3) * rate)
        pitch = base * 2.0 ** np.linspace(rng.uniform(-0.5, 0.5), rng.uniform(-0.5, 0.5), n)
        phase = np.cumsum(pitch) / rate
        buzz = np.diff(np.floor(phase), prepend=0.0) + 0.02 * rng.standard_normal(n)
        vowel = FORMANTS[rng.integers(len(FORMANTS))]
        voiced = sum(_resonance(buzz, size * f, 1.5 * width, rate) for f, width in vowel)
        rise = np.minimum(1.0, np.minimum(np.arange(n), np.arange(n)[::-1]) / (0.02 * rate))
        pieces.append(rise * voiced / max(np.abs(voiced).max(), 1e-9) * rng.uniform(0.3, 1.0))
        if rng.random() < 0.5:
            breath = rng.standard_normal(round(rng.uniform(0.03, 0.12) * rate))
            hiss = _resonance(breath, rng.uniform(2500.0, 7000.0), 2000.0, rate)
            pieces.append(rng.uniform(0.05, 0.4) * hiss / max(np.abs(hiss).max(), 1e-9))
        if rng.random() < 0.2:
            pieces.append(np.zeros(round(rng.uniform(0.02, 0.15) * rate)))
    return np.concatenate(pieces)[:length].astype(np.float32)


def _resonance(x: NDArray[np.float64], hertz: float, width: float, rate: int) -> NDArray[np.float64]:
    radius, angle = np.exp(-np.pi * width / rate), 2 * np.pi * hertz / rate
    return np.asarray(lfilter([1.0 - radius], [1.0, -2.0 * radius * np.cos(angle), radius**2], x))


def noise(length: int, rate: int, rng: np.random.Generator) -> Audio:
    """Makes noise of a random colour, steady or surging."""
    spectrum = np.fft.rfft(rng.standard_normal(length))
    hertz = np.maximum(np.fft.rfftfreq(length, 1.0 / rate), 20.0)
    octaves = np.log2(hertz / 1000.0)
    gain = -octaves * rng.uniform(-3.0, 9.0)
    if rng.random() < 0.4:
        gain = gain - rng.uniform(3.0, 20.0) * np.abs(octaves - rng.uniform(-2.0, 3.0))
    sound = np.fft.irfft(spectrum * 10.0 ** (gain / 20.0), length)
    if rng.random() < 0.6:
        levels = rng.normal(0.0, 8.0, rng.integers(3, 20))
        decibels = np.interp(np.linspace(0.0, 1.0, length), np.linspace(0.0, 1.0, len(levels)), levels)
        sound = sound * 10.0 ** (decibels / 20.0)
    return sound.astype(np.float32)
