"""Notes as recordings have them: in rooms, by microphones, in noise, as lossy files, out of tune."""

from __future__ import annotations

import io

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.ndimage import map_coordinates

Audio = NDArray[np.float32]
"""[S], mono."""

CENTS = 60.0
"""A note is out of tune by this much at most."""
VIBRATO_CENTS = 40.0
"""Vibrato goes this far either way at most, 4 to 7 times a second."""
LATEST_START = 0.06
"""Seconds of a note that a recording misses at most."""
NOISE_DB = (20.0, 50.0)
"""How far noise lies below the note's mean level."""
ROOM_SECONDS = (0.1, 1.8)
"""A room's sound falls by 60 dB within this."""
ROOM_DB = (-24.0, 0.0)
"""Level of all that comes from the walls, relative to what comes straight."""
COLOUR_DB = 5.0
"""Deviation of the microphone's response from flat, at points two thirds of an octave apart or more."""
LOSSY_RATES = (22_050, 32_000, 44_100, 48_000)
"""Samples per second that lossy files have."""


def as_recorded(audio: Audio, sample_rate: int, rng: np.random.Generator) -> Audio:
    """Returns a note [S], S at least 1, as someone might have recorded it, float32 [about S]; each flaw comes
    or not, as `rng` draws it."""
    sound = audio
    if rng.random() < 0.7:
        sound = out_of_tune(sound, sample_rate, rng)
    if rng.random() < 0.3:
        sound = sound[min(round(rng.uniform(0.0, LATEST_START) * sample_rate), len(sound) // 2) :]
    if rng.random() < 0.9:
        sound = in_room(sound, sample_rate, rng)
    if rng.random() < 0.7:
        sound = in_noise(sound, sample_rate, rng)
    sound = sound * np.float32(10.0 ** (-rng.uniform(1.0, 24.0) / 20.0) / max(np.abs(sound).max(), 1e-6))
    if rng.random() < 0.15:
        sound = clipped(sound, rng)
    return lossy(sound, sample_rate, rng) if rng.random() < 0.4 else sound.astype(np.float32)


def out_of_tune(audio: Audio, sample_rate: int, rng: np.random.Generator) -> Audio:
    """Plays audio faster or slower by up to CENTS; one note in three has a vibrato."""
    cents = np.full(len(audio), rng.uniform(-CENTS, CENTS))
    if rng.random() < 0.33:
        depth, rate, start = (
            rng.uniform(5.0, VIBRATO_CENTS),
            rng.uniform(4.0, 7.0),
            rng.uniform(0.0, 2 * np.pi),
        )
        cents += depth * np.sin(2 * np.pi * rate / sample_rate * np.arange(len(audio)) + start)
    places = np.cumsum(2.0 ** (cents / 1200.0))
    places -= places[0]
    return map_coordinates(audio, places[places <= len(audio) - 1][None], order=3, mode="nearest")


def in_room(audio: Audio, sample_rate: int, rng: np.random.Generator) -> Audio:
    """Plays audio in a room before a microphone: early reflections, a decaying tail, a random response."""
    length = next_fast_len(2 * len(audio))
    spectrum = rfft(audio, length) * microphone(length, sample_rate, rng)
    if rng.random() < 0.7:
        # Longer ones would come round to where the note begins.
        spectrum *= rfft(room(sample_rate, rng)[: len(audio)], length)
    return irfft(spectrum, length)[: len(audio)].astype(np.float32)


def room(sample_rate: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draws an impulse response: the direct sound, reflections within 40 ms, noise that dies away."""
    seconds = np.exp(rng.uniform(*np.log(ROOM_SECONDS)))
    time = np.arange(round(seconds * sample_rate)) / sample_rate
    # High frequencies die away sooner: the same noise, smoothed, takes over.
    noise = rng.standard_normal(len(time))
    smooth = np.convolve(noise, np.hanning(rng.integers(4, 24)), mode="same")
    smooth *= noise.std() / max(smooth.std(), 1e-9)
    share = np.exp(-time / (seconds * rng.uniform(0.1, 0.6)))
    walls = (share * noise + (1.0 - share) * smooth) * 10.0 ** (-3.0 * time / seconds)
    walls[: round(rng.uniform(0.002, 0.03) * sample_rate)] = 0.0
    walls *= 1.0 / max(np.sqrt((walls**2).sum()), 1e-9)
    for _ in range(rng.integers(0, 8)):
        walls[min(round(rng.uniform(0.001, 0.04) * sample_rate), len(walls) - 1)] += rng.normal(0.0, 0.3)
    walls *= 10.0 ** (rng.uniform(*ROOM_DB) / 20.0)
    walls[0] = 1.0
    return walls


def microphone(length: int, sample_rate: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draws a response, [length // 2 + 1]: smooth colour, and sometimes an end at the bottom or the top."""
    hertz = np.maximum(np.arange(length // 2 + 1) * (sample_rate / length), 10.0)
    octaves = np.log2(hertz)
    at = np.linspace(np.log2(40.0), np.log2(20_000.0), rng.integers(4, 14))
    decibels = np.interp(octaves, at, rng.normal(0.0, rng.uniform(0.0, COLOUR_DB), len(at)))
    decibels += rng.normal(0.0, 1.0) * (octaves - 10.0)
    if rng.random() < 0.3:
        decibels -= rng.uniform(6, 24) * np.maximum(np.log2(rng.uniform(50.0, 200.0)) - octaves, 0.0)
    if rng.random() < 0.4:
        low, high = np.log2(3_000.0), np.log2(16_000.0)
        decibels -= rng.uniform(6, 48) * np.maximum(octaves - rng.uniform(low, high), 0.0)
    return 10.0 ** (decibels / 20.0)


def in_noise(audio: Audio, sample_rate: int, rng: np.random.Generator) -> Audio:
    """Adds noise of a random colour, and sometimes the hum of the mains."""
    spectrum = rfft(rng.standard_normal(len(audio)))
    spectrum *= np.maximum(np.arange(len(spectrum)), 1.0) ** -rng.uniform(0.0, 1.0)
    noise = irfft(spectrum, len(audio)) if len(audio) > 1 else np.zeros(1)
    noise /= max(noise.std(), 1e-9)
    if rng.random() < 0.2:
        mains = 2 * np.pi * rng.choice((50.0, 60.0)) / sample_rate * np.arange(len(audio))
        noise += sum(rng.normal(0.0, 1.0 / k) * np.sin(k * mains) for k in range(1, 6))
    level = np.sqrt(np.mean(np.square(audio))) * 10.0 ** (-rng.uniform(*NOISE_DB) / 20.0)
    return (audio + level * noise).astype(np.float32)


def clipped(audio: Audio, rng: np.random.Generator) -> Audio:
    """Cuts audio off above a random share of its peak, sharply or softly."""
    limit = float(np.abs(audio).max()) * rng.uniform(0.3, 0.95)
    if rng.random() < 0.5:
        return np.clip(audio, -limit, limit)
    return (limit * np.tanh(audio / limit)).astype(np.float32)


def lossy(audio: Audio, sample_rate: int, rng: np.random.Generator) -> Audio:
    """Writes audio as MP3 or Ogg Vorbis at a random sample rate and quality, and reads it again."""
    rate = int(rng.choice(LOSSY_RATES))
    format = str(rng.choice(("MP3", "OGG")))
    file = io.BytesIO()
    sound = soxr.resample(audio, sample_rate, rate, quality="HQ")
    soundfile.write(file, sound, rate, format=format, compression_level=float(rng.uniform(0.0, 0.95)))
    file.seek(0)
    decoded = soundfile.read(file, dtype="float32")[0]
    return np.asarray(soxr.resample(decoded, rate, sample_rate, quality="HQ"), np.float32)[: len(audio)]
