"""Sounds whose pitch, level and shape are known, and jobs to render them for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from timbrel.library import LibraryJob, ModelIdentity, SamplingSettings, Voice
from timbrel.pitch import frequency

SAMPLE_RATE = 48_000

Tone = Callable[..., npt.NDArray[np.float32]]

VIOLIN = Voice("Violin", "Violin", (0.5, 0.5), "Violin", "Strings")
FLUTE = Voice("Flute", "Flute", (0.6, -0.4), "Flute", "Winds")


@pytest.fixture
def tone() -> Tone:
    """`tone(pitch, seconds)`: harmonics falling as 1/k, at a level of 0.2."""

    def make(
        pitch: float,
        seconds: float = 1.0,
        *,
        level: float = 0.2,
        harmonics: tuple[float, ...] = tuple(1 / k for k in range(1, 9)),
        decay: float = 0.0,
        sample_rate: int = SAMPLE_RATE,
    ) -> npt.NDArray[np.float32]:
        time = np.arange(round(seconds * sample_rate)) / sample_rate
        hertz = frequency(pitch)
        partials = [
            amplitude * np.sin(2 * np.pi * hertz * number * time + number * number)
            for number, amplitude in enumerate(harmonics, start=1)
            if hertz * number < sample_rate / 2
        ]
        return (level * np.sum(partials, axis=0) * 10 ** (-decay * time / 20)).astype(np.float32)

    return make


@pytest.fixture
def job() -> LibraryJob:
    """Two instruments, three pitches, two velocities, two round robins."""
    return LibraryJob(
        writer=ModelIdentity("b" * 64, "timbrel-notes-2", "fp32", "CPUExecutionProvider"),
        voices=(VIOLIN, FLUTE),
        pitches=(60, 64, 67),
        velocities=(40, 120),
        round_robins=2,
        seconds=1.0,
        sampling=SamplingSettings(1.0, 256, 0.95),
    )
