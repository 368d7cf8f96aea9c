"""Tones whose pitch, noise and shape are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

Tone = Callable[..., NDArray[np.float32]]


def make_tone(
    pitch: float,
    seconds: float = 0.8,
    sample_rate: int = 48_000,
    n_harmonics: int = 8,
    amplitude: float = 0.3,
) -> NDArray[np.float32]:
    """Harmonics that fall by 1 / k, with phases of no particular order; those above 20 kHz are left out."""
    hertz = 440.0 * 2.0 ** ((pitch - 69.0) / 12.0)
    moments = np.arange(round(seconds * sample_rate)) / sample_rate
    harmonics = [k for k in range(1, n_harmonics + 1) if k * hertz < 20_000]
    wave = sum(np.sin(2 * np.pi * k * hertz * moments + k * k) / k for k in harmonics)
    return (amplitude * np.asarray(wave)).astype(np.float32)


@pytest.fixture(scope="session")
def tone() -> Tone:
    """Makes tones."""
    return make_tone


@pytest.fixture
def noise() -> NDArray[np.float32]:
    """White noise [48000], RMS 1."""
    return np.random.default_rng(0).standard_normal(48_000).astype(np.float32)
