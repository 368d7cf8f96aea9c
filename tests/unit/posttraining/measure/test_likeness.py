"""Likeness of a note to its source, where both are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from timbrel_posttraining.evaluate.measure.likeness import (
    attack_seconds,
    likeness,
    masked_log_mel,
    moved,
    partials_of,
    peakedness,
)
from timbrel_posttraining.evaluate.measure.masked_spectrum import SAMPLE_RATE, MaskedSpectrum, from_onset

RATE = 48_000
Audio = NDArray[np.float32]


def sines(*partials: tuple[float, float], seconds: float = 1.5) -> Audio:
    """Sines of (Hz, dB), one on top of the other, that fade in and out for 5 ms."""
    moments = np.arange(round(seconds * RATE)) / RATE
    wave = sum(10 ** (level / 20) * np.sin(2 * np.pi * hertz * moments + hertz) for hertz, level in partials)
    fade = np.clip(np.minimum(moments, seconds - moments) / 0.005, 0, 1)
    return (0.1 * fade * wave).astype(np.float32)


BAR = ((262.0, 0.0), (723.0, -6.0), (1048.0, -12.0), (2620.0, -20.0))
"""Partials that lie off the harmonic series, as a bar's do."""


def with_partial(number: int, factor: float = 1.0, gain: float = 0.0) -> Audio:
    partials = list(BAR)
    partials[number] = (partials[number][0] * factor, partials[number][1] + gain)
    return sines(*partials)


def test_a_note_is_like_itself_at_any_level_and_with_any_delay() -> None:
    source = sines(*BAR)
    late = np.concatenate([np.zeros(480, np.float32), 0.25 * source])
    found = likeness(source, late, RATE, 60)
    assert found.log_mel_db < 0.05 and max(found.moved_db[:2]) < 0.05
    assert np.nanmax(found.cents) < 0.1 and np.nanmax(found.partial_db) < 0.05
    assert found.third_octave_db < 0.05 and abs(found.valley_db) < 0.5 and found.attack_ms == 0.0
    assert found.level_db == pytest.approx(-12.04, abs=0.05)


def test_partials_are_found_where_they_are() -> None:
    found = partials_of(from_onset(sines(*BAR), RATE), 60)
    assert found == pytest.approx([hertz for hertz, _ in BAR], abs=0.2)


def test_a_partial_that_moved_or_fell_is_told() -> None:
    source = sines(*BAR)
    sharp = likeness(source, with_partial(1, factor=2 ** (20 / 1200)), RATE, 60)
    assert sharp.cents[:4] == pytest.approx([0, 20, 0, 0], abs=0.5)
    weak = likeness(source, with_partial(2, gain=-6), RATE, 60)
    assert weak.partial_db[:4] == pytest.approx([0, 0, 6, 0], abs=0.2)
    assert np.isnan(weak.cents[4:]).all()


def test_noise_fills_the_valleys() -> None:
    source = sines(*((220.0 * k, -3.0 * k) for k in range(1, 9)))
    hiss = (1e-2 * np.random.default_rng(1).normal(size=len(source))).astype(np.float32)
    assert likeness(source, source + hiss, RATE, 57).valley_db < -3
    assert likeness(source + hiss, source, RATE, 57).valley_db > 3


def test_a_pulse_is_told_from_the_same_partials_in_other_phases() -> None:
    """Which all that looks at levels takes for the same: a sawtooth, and one that is late by much."""
    moments = np.arange(RATE) / RATE
    number = np.arange(1, 61)[:, None]
    phases = np.random.default_rng(3).uniform(0, 1, (60, 1))
    pulse, late, drawn = (
        (0.1 * np.sin(2 * np.pi * (number * 110 * moments + turned)) / number).sum(axis=0).astype(np.float32)
        for turned in (0.0, 0.37 * number, phases)
    )
    assert abs(likeness(pulse, late, RATE, 45).peaked_db) < 0.3
    told = likeness(pulse, drawn, RATE, 45)
    assert told.peaked_db < -4 and told.log_mel_db < 0.3
    assert np.isnan(peakedness(pulse[: RATE // 20])) and np.isnan(peakedness(0 * pulse))


def test_flicker_is_movement_of_what_stands_still() -> None:
    source = sines(*((220.0 * k, -3.0 * k) for k in range(1, 9)))
    rng = np.random.default_rng(2)
    knots = rng.normal(0.0, 1.5, len(source) // 1280 + 2)  # dB, every 27 ms
    gain = 10 ** (np.interp(np.arange(len(source)) / 1280, np.arange(len(knots)), knots) / 20)
    flickering = (source * gain).astype(np.float32)
    steps, counts = moved(*(MaskedSpectrum.of(from_onset(each, RATE)) for each in (source, flickering)))
    assert counts[:2].min() > 100 and 0.2 < steps[0] < 1.5
    found = likeness(source, flickering, RATE, 57)
    assert found.modulation_db[0] > 1.0 and likeness(source, source, RATE, 57).modulation_db[0] == 0.0


def test_what_nobody_hears_makes_no_difference() -> None:
    source = sines((220.0, 0.0), (440.0, -10.0))
    quiet = (10 ** (-94 / 20) * np.random.default_rng(3).normal(size=len(source))).astype(np.float32)
    a, b = (MaskedSpectrum.of(from_onset(each, RATE)) for each in (source, source + quiet))
    assert masked_log_mel(a, b) < 0.1
    neighbour = sines((220.0, 0.0), (440.0, -10.0), (250.0, -40.0))  # under the first one's skirt
    assert masked_log_mel(a, MaskedSpectrum.of(from_onset(neighbour, RATE))) < 0.4


def test_the_attack_is_measured_from_the_onset() -> None:
    moments = np.arange(RATE) / RATE
    tone = np.sin(2 * np.pi * 880 * moments)
    slow = (0.5 * tone * np.clip(moments / 0.06, 0, 1)).astype(np.float32)
    sharp = (0.5 * tone).astype(np.float32)
    seconds = [attack_seconds(from_onset(each, RATE)) for each in (sharp, slow)]
    assert seconds[0] < 0.012 and 0.03 < seconds[1] < 0.06
    assert likeness(sharp, slow, RATE, 81).attack_ms == pytest.approx(1000 * (seconds[1] - seconds[0]))


def test_a_faster_decay_is_told_in_db_a_second() -> None:
    partials = [(220.0 * k, -2.0 * k) for k in range(1, 30)]
    moments = np.arange(round(1.5 * RATE)) / RATE
    notes = [(sines(*partials) * 10 ** (-rate * moments / 20)).astype(np.float32) for rate in (6, 10)]
    found = likeness(*notes, RATE, 57)
    assert found.decay_db_per_s[0] == pytest.approx(-4.0, abs=0.5)


@pytest.mark.parametrize("n", [1, 500, 3000, 20_000])
def test_silence_and_scraps_can_be_compared_and_kept(n: int) -> None:
    silence = np.zeros(n, np.float32)
    noise = (0.1 * np.random.default_rng(4).normal(size=n)).astype(np.float32)
    for a, b in ((silence, noise), (noise, silence), (silence, silence), (noise, noise[: n // 2 + 1])):
        found = likeness(a, b, RATE, 60)
        assert math.isfinite(found.level_db) and len(found.cents) == 16


def test_the_onset_does_not_depend_on_the_rate() -> None:
    late = np.concatenate([np.zeros(RATE // 10, np.float32), sines((440.0, 0.0))])
    assert len(from_onset(late, RATE)) == pytest.approx(1.5 * SAMPLE_RATE, abs=64)
