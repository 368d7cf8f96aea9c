"""The start, the end and the level of a sample."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from timbrel.library.render.level import (
    CUT_FADE_SECONDS,
    FADE_SECONDS,
    LEAD_IN_SECONDS,
    PEAK_DB,
    TARGET_LUFS,
    decibels,
    fast_length,
    instrument_gain_db,
    loudness,
    trim,
    true_peak,
)

SAMPLE_RATE = 48_000
Tone = Callable[..., npt.NDArray[np.float32]]


def silence(seconds: float) -> npt.NDArray[np.float32]:
    return np.zeros(round(seconds * SAMPLE_RATE), dtype=np.float32)


@pytest.mark.parametrize("late_seconds", [0.0, 0.001, 0.05, 0.3])
def test_the_onset_lies_behind_the_lead_in(late_seconds: float, tone: Tone) -> None:
    sound = np.concatenate([silence(late_seconds), tone(60, 0.5), silence(0.5)])
    trimmed = trim(sound, SAMPLE_RATE)
    onset = int(np.argmax(np.abs(trimmed.audio) > 0.05)) / SAMPLE_RATE
    assert abs(onset - LEAD_IN_SECONDS) < 0.002
    assert abs(trimmed.removed / SAMPLE_RATE - (late_seconds - LEAD_IN_SECONDS)) < 0.002


def test_silence_behind_the_note_goes_and_the_end_is_silent(tone: Tone) -> None:
    trimmed = trim(np.concatenate([tone(60, 0.5), silence(2.0)]), SAMPLE_RATE).audio
    assert abs(len(trimmed) / SAMPLE_RATE - (0.5 + LEAD_IN_SECONDS + FADE_SECONDS)) < 0.01
    assert trimmed[0] == 0.0 and trimmed[-1] == 0.0
    assert np.abs(np.diff(trimmed[-20:])).max() < 1e-3


def test_a_note_cut_at_the_cap_fades_for_longer(tone: Tone) -> None:
    trimmed = trim(tone(60, 1.0), SAMPLE_RATE, truncated=True).audio
    middle = trimmed[-round(CUT_FADE_SECONDS / 2 * SAMPLE_RATE) :]
    assert trimmed[-1] == 0.0 and np.abs(middle).max() < 0.75 * np.abs(trimmed).max()


def test_silence_stays_silence() -> None:
    trimmed = trim(silence(0.2), SAMPLE_RATE)
    assert len(trimmed.audio) == round(0.2 * SAMPLE_RATE) and trimmed.removed == 0


def test_loudness_of_the_standards_reference_tone() -> None:
    """BS.1770-4: a sine of 997 Hz at full scale in one channel measures -3.01 LUFS."""
    for sample_rate in (44_100, 48_000, 96_000):
        time = np.arange(sample_rate) / sample_rate
        sine = np.sin(2 * np.pi * 997 * time).astype(np.float32)
        assert loudness(sine, sample_rate) == pytest.approx(-3.01, abs=0.05)
        assert loudness(0.1 * sine, sample_rate) == pytest.approx(-23.01, abs=0.05)


def test_low_notes_count_less_and_short_ones_are_padded(tone: Tone) -> None:
    assert loudness(tone(28, 1.0, harmonics=(1.0,)), SAMPLE_RATE) < loudness(
        tone(84, 1.0, harmonics=(1.0,)), SAMPLE_RATE
    )
    whole = loudness(tone(60, 0.4), SAMPLE_RATE)
    assert loudness(tone(60, 0.2), SAMPLE_RATE) == pytest.approx(whole - 3.0, abs=0.2)


def test_one_gain_for_an_instrument() -> None:
    assert instrument_gain_db([(-30.0, -20.0), (-26.0, -14.0)]) == pytest.approx(TARGET_LUFS + 26.0)
    assert instrument_gain_db([(-30.0, -5.0), (-26.0, -14.0)]) == pytest.approx(PEAK_DB + 5.0)
    assert instrument_gain_db([(-120.0, -120.0)]) == 0.0


def test_a_peak_between_samples_is_seen() -> None:
    """A sine of a quarter of the rate, sampled 45 degrees off its peaks."""
    sine = np.sin(np.pi / 2 * np.arange(4800) + np.pi / 4).astype(np.float32)
    assert np.abs(sine).max() < 0.71
    assert decibels(true_peak(sine, SAMPLE_RATE)) == pytest.approx(0.0, abs=0.3)


def largest_prime_factor(number: int) -> int:
    largest, factor = 1, 2
    while number > 1:
        while number % factor == 0:
            number, largest = number // factor, factor
        factor += 1
    return largest


def test_every_length_is_long_enough_quick_and_not_much_longer() -> None:
    for wanted in [*range(1, 3000), 110_077, 110_080, 2**17, 2**17 + 1]:
        length = fast_length(wanted)
        assert wanted <= length <= max(wanted + 1, 1.26 * wanted)
        assert largest_prime_factor(length) <= 7
