"""Brightness over time: a shelf whose gain moves, beside a level that stays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from timbrel.performance.expression import brightened

RATE, HERTZ = 48_000, 220.0
SECONDS = np.arange(RATE) / RATE


def harmonic() -> npt.NDArray[np.float32]:
    """A second of thirty partials."""
    return sum(np.sin(2 * np.pi * HERTZ * k * SECONDS) / k for k in range(1, 31)).astype(np.float32)  # type: ignore[union-attr]


def level_db(audio: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The level at each sample, over two periods, without the ends."""
    n = 2 * round(RATE / HERTZ)
    power = np.convolve(np.square(audio, dtype=np.float64), np.full(n, 1 / n), "same")
    return np.asarray(10 * np.log10(power[RATE // 10 : -RATE // 10]))


def test_where_brightness_jumps_the_level_stays() -> None:
    tone = harmonic()
    jump = ((0.0, -12.0), (0.5, -12.0), (0.51, 12.0), (1.0, 12.0))
    changed = brightened(tone, RATE, SECONDS, jump, HERTZ)
    assert np.abs(level_db(changed) - level_db(tone)).max() < 1.0
    spectra = [
        np.abs(np.fft.rfft(changed[part] * np.hanning(RATE // 3)))
        for part in (slice(16_000), slice(-16_000, None))
    ]
    high = round(20 * HERTZ / 3)
    share = [20 * np.log10(spectrum[high - 2 : high + 3].max() / spectrum.max()) for spectrum in spectra]
    assert 12.0 < share[1] - share[0] < 24.5


@pytest.mark.parametrize("n_samples", [0, 1, 127, 129])
def test_the_shortest_sounds_are_changed_too(n_samples: int) -> None:
    tone = harmonic()[:n_samples]
    changed = brightened(tone, RATE, SECONDS[:n_samples], ((0.0, 6.0), (1.0, 6.0)), HERTZ)
    assert changed.shape == tone.shape and changed.dtype == np.float32 and np.isfinite(changed).all()
