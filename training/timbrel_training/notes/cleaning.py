"""Drops the notes that are not fit to train on, and takes out of the others what nobody hears."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, find_peaks, sosfilt

SILENCE_PEAK = 0.001
"""A note that never gets louder than this (-60 dB of full scale) counts as silent."""
CLIP_PEAK = 0.9995
"""A note whose peaks have a flat top at this level or more counts as clipped."""
FLAT_TOP = 3
"""Neighbouring samples of one value: a note that is only normalised to full scale has fewer there."""
DUPLICATE_STEP = 1e-4
"""Audio is rounded to this (-80 dB of full scale) before it is compared: copies that round alike are one."""


LOWEST_HZ = 20.0
"""Nobody hears what is below."""


class NoteFault(StrEnum):
    """A reason to drop a note."""

    NOT_FINITE = "not finite"
    SILENT = "silent"
    CLIPPED = "clipped"
    OFF_PITCH = "not at the pitch asked"
    DUPLICATE = "duplicate"
    SAME_CELL = "another instrument's sound"


SKIPPED_SECONDS = 0.04
PITCH_SECONDS, PITCH_PERIODS = 0.2, 8
"""A note's pitch is looked for after so much of its attack, in at least so many seconds and periods."""
SEMITONES = np.arange(-24, 25)
"""Pitches beside the one asked that a note is held against."""
HARMONICS = (1, 2, 3, 5, 7, 11, 13, 17, 19)
CLEARLY, LEAST_SALIENCE = 0.8, 0.1
"""A note is off where its pitch has less than this share of the best salience, which is at least this."""
STRIKE_PARTIALS, STRIKE_SEMITONES = (2, 3, 4), 0.6
"""A tubular bell has partials about so many times as high as what is heard of them, its strike tone, and none
there (Fletcher & Rossing, The Physics of Musical Instruments); they lie within so much of it."""
STRIKE_SHARE, STRIKE_OTHERS = 0.1, 0.25
"""Each has at least this share of the strongest partial's amplitude, and what lies between less than this."""


@dataclass
class Cleaner:
    """Drops notes that teach nothing, looking at one note at a time and remembering those it has seen."""

    silence_peak: float = SILENCE_PEAK
    clip_peak: float = CLIP_PEAK
    check_pitch: bool = False
    """Whether notes that clearly sound at another pitch are dropped."""
    _seen: set[bytes] = field(default_factory=set, repr=False)
    _cells: dict[tuple[int, bytes], str] = field(default_factory=dict, repr=False)

    def audio_fault(self, audio: NDArray[np.float32], sample_rate: int, pitch: int) -> NoteFault | None:
        """Returns what is wrong with the audio [samples] by itself."""
        if not np.isfinite(audio).all():
            return NoteFault.NOT_FINITE
        peak = float(np.abs(audio).max(initial=0.0))
        if peak < self.silence_peak:
            return NoteFault.SILENT
        if peak >= self.clip_peak and has_flat_top(audio, self.clip_peak):
            return NoteFault.CLIPPED
        off = self.check_pitch and abs(semitones_off(audio, sample_rate, pitch)) > 1
        return NoteFault.OFF_PITCH if off else None

    def repeat_fault(
        self, digest: bytes, instrument: str, pitch: int, cell_digest: bytes
    ) -> NoteFault | None:
        """Returns a fault if this sound has been seen before; if not, remembers it."""
        if cell_digest and self._cells.setdefault((pitch, cell_digest), instrument) != instrument:
            return NoteFault.SAME_CELL
        if digest in self._seen:
            return NoteFault.DUPLICATE
        self._seen.add(digest)
        return None


def has_flat_top(audio: NDArray[np.float32], level: float = CLIP_PEAK) -> bool:
    """Tells whether FLAT_TOP neighbours in audio [samples] have one value, at this level or beyond."""
    flat = (np.abs(audio[1:]) >= level) & (audio[1:] == audio[:-1])
    return bool(np.convolve(flat, np.ones(FLAT_TOP - 1), "valid").max(initial=0.0) >= FLAT_TOP - 1)


def without_offset(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Returns audio [samples] without its DC offset and what else is below 20 Hz.

    An offset is never heard, but a codec of partials and noise would play it as a rumble. One note in six of
    FluidR3's and MuseScore General's has one less than 30 dB below its sound.
    """
    return np.asarray(sosfilt(_high_pass(sample_rate), audio), dtype=np.float32) if len(audio) else audio


@functools.cache
def _high_pass(sample_rate: int) -> NDArray[np.float64]:
    return np.asarray(butter(2, LOWEST_HZ, "highpass", fs=sample_rate, output="sos"))


def audio_digest(audio: NDArray[np.float32]) -> bytes:
    """Returns sixteen bytes that are equal for two recordings [samples] that round to the same values."""
    rounded = np.rint(audio / DUPLICATE_STEP).astype("<i4")
    return hashlib.sha256(rounded.tobytes()).digest()[:16]


def semitones_off(audio: NDArray[np.float32], sample_rate: int, pitch: int) -> int:
    """Returns how many semitones from its pitch a note [samples] clearly sounds: -24 to 24; 0 where unclear.

    After SWIPE' (Camacho & Harris, 2008): salience is how well the spectrum fits that of a tone whose prime
    harmonics are as high as the valleys between all of them are deep.
    """
    start = int(SKIPPED_SECONDS * sample_rate)
    length = int(sample_rate * max(PITCH_SECONDS, PITCH_PERIODS / _hertz(pitch)))
    piece = audio[start : start + length]
    if len(piece) < length // 2:
        return 0
    n_points = 1 << 16
    spectrum = np.abs(np.fft.rfft(piece * np.hanning(len(piece)), n_points))
    hertz = np.fft.rfftfreq(n_points, 1 / sample_rate)
    loudness = np.sqrt(np.interp(_auditory_hertz(), hertz, spectrum))
    salience = _tones(pitch) @ loudness / max(float(np.linalg.norm(loudness)), 1e-12)
    best, asked = int(salience.argmax()), salience[len(SEMITONES) // 2]
    off = int(SEMITONES[best])
    if salience[best] < LEAST_SALIENCE or asked >= CLEARLY * salience[best]:
        return 0
    # Partials that are no harmonics, a bell's, fit best beside the pitch of the one that is heard.
    strongest = 12 * np.log2(max(float(hertz[spectrum.argmax()]), 1.0) / _hertz(pitch))
    return 0 if off % 12 and (abs(strongest) < 0.5 or _has_strike_tone(hertz, spectrum, pitch)) else off


def _has_strike_tone(hertz: NDArray[np.floating], spectrum: NDArray[np.floating], pitch: int) -> bool:
    """Tells whether a spectrum [n] at frequencies [n] is of a bell whose strike tone is this pitch."""
    peaks, _ = find_peaks(spectrum, height=STRIKE_SHARE * spectrum.max())
    semitones = 12 * np.log2(hertz[peaks] / _hertz(pitch))
    away = np.abs(semitones - 12 * np.log2(np.array(STRIKE_PARTIALS))[:, None])  # [partials, peaks]
    near = away < STRIKE_SEMITONES
    octaves = (semitones > 6) & (semitones < 12 * np.log2(STRIKE_PARTIALS[-1] + 0.5))
    others = octaves & ~near.any(axis=0) & (spectrum[peaks] >= STRIKE_OTHERS * spectrum.max())
    return bool(near.any(axis=1).all() and not others.any())


def _hertz(pitch: float) -> float:
    return float(440.0 * 2.0 ** ((pitch - 69) / 12))


@functools.cache
def _auditory_hertz() -> NDArray[np.float64]:
    """Returns 1,500 frequencies from 25 Hz to 12 kHz, evenly spaced to the ear."""
    low, high = (21.4 * np.log10(1.0 + 0.00437 * hertz) for hertz in (25.0, 12_000.0))
    return np.asarray((10.0 ** (np.linspace(low, high, 1_500) / 21.4) - 1.0) / 0.00437)


@functools.lru_cache(maxsize=128)
def _tones(pitch: int) -> NDArray[np.float64]:
    """Returns what the spectra of tones at SEMITONES from a pitch are like: [49, 1500]."""
    hertz = _auditory_hertz()
    tones = []
    for semitones in SEMITONES:
        harmonic = hertz / _hertz(pitch + int(semitones))
        tone = np.zeros_like(hertz)
        for number in HARMONICS:
            away = np.abs(harmonic - number)
            wave = np.cos(2 * np.pi * away)
            tone += np.where(away < 0.25, wave, np.where(away < 0.75, 0.5 * wave, 0.0))
        tone /= np.sqrt(hertz)
        tones.append(tone / max(float(np.linalg.norm(tone[tone > 0])), 1e-12))
    return np.array(tones)
