"""Additive notes for tests: harmonic tones that are made in no time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from timbrel_training.notes.note import Note, Source, draw_note, unit_interval
from timbrel_training.notes.recording import sounding_samples

MAX_HARMONICS = 12
PEAK = 0.5
ATTACK_SECONDS = 0.01
RELEASE_SECONDS = 0.03
TAIL_SECONDS = 0.3
"""The release is 87 dB down by then."""
FAMILIES = ("Plucked", "Blown")


class SyntheticSource(Source):
    """Harmonic tones: plucked ones die away by themselves, blown ones sound until the key is let go.

    Each instrument has its own spectrum; velocity changes level and brightness. One group per instrument.
    """

    name = "synthetic"
    licence = "CC0-1.0"

    def __init__(
        self,
        n_instruments: int = 4,
        pitches: Sequence[int] = range(48, 73),
        n_draws: int = 2,
        sample_rate: int = 24_000,
        max_held: float = 1.0,
    ) -> None:
        self.n_instruments = n_instruments
        self.pitches = tuple(pitches)
        self.n_draws = n_draws
        self.sample_rate = sample_rate
        self.max_held = max_held

    def settings(self) -> Mapping[str, object]:
        return {
            "n_instruments": self.n_instruments,
            "pitches": list(self.pitches),
            "n_draws": self.n_draws,
            "sample_rate": self.sample_rate,
            "max_held": self.max_held,
        }

    def groups(self) -> Sequence[str]:
        return [f"Synthetic {number}" for number in range(self.n_instruments)]

    def notes(self, group: str) -> Iterator[Note]:
        for pitch in self.pitches:
            for index in range(self.n_draws):
                yield self._note(group, pitch, index)

    def _note(self, instrument: str, pitch: int, index: int) -> Note:
        draw = draw_note(instrument, pitch, index, max_held=self.max_held)
        family = self.groups().index(instrument) % len(FAMILIES)
        decay = 0.2 + 0.4 * unit_interval("decay", instrument) if family == 0 else np.inf
        time = np.arange(int((draw.held_seconds + TAIL_SECONDS) * self.sample_rate)) / self.sample_rate
        tone = self._tone(time, instrument, pitch, draw.velocity)
        audio = (tone * _envelope(time, draw.held_seconds, decay)).astype(np.float32)
        return Note(
            audio=audio[: sounding_samples(audio, self.sample_rate)],
            sample_rate=self.sample_rate,
            instrument=instrument,
            family=FAMILIES[family],
            pitch=pitch,
            velocity=draw.velocity,
            held_seconds=draw.held_seconds,
            source=self.name,
        )

    def _tone(
        self, time: NDArray[np.float64], instrument: str, pitch: int, velocity: int
    ) -> NDArray[np.float64]:
        """Returns a steady tone [samples] at these times in seconds."""
        frequency = 440.0 * 2.0 ** ((pitch - 69) / 12)
        n_harmonics = min(MAX_HARMONICS, int(0.45 * self.sample_rate / frequency))
        slope = 3.0 - 2.0 * velocity / 127  # a harder touch is brighter
        levels = [
            (1.0 if h == 1 else unit_interval("harmonic", instrument, h)) / h**slope
            for h in range(1, n_harmonics + 1)
        ]
        # The harmonics of e^(iwt) are its powers: their sum is a polynomial, evaluated by Horner's rule.
        turn = np.exp(2j * np.pi * frequency * time)
        wave = np.zeros(len(time), np.complex128)
        for level in reversed(levels):
            wave = (wave + level) * turn
        tone: NDArray[np.float64] = wave.imag * (PEAK * velocity / 127 / max(sum(levels), 1e-9))
        return tone


def _envelope(time: NDArray[np.float64], held_seconds: float, decay: float) -> NDArray[np.float64]:
    rise = np.minimum(time / ATTACK_SECONDS, 1.0)
    fall = np.exp(-np.maximum(time - held_seconds, 0.0) / RELEASE_SECONDS)
    envelope: NDArray[np.float64] = rise * fall * np.exp(-time / decay)
    return envelope
