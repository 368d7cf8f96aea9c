"""Loops: found where a sound lasts, joined without a click, refused where they would be heard."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from timbrel.library.finish.loop import (
    JOINT_DB,
    SHORTEST_SECONDS,
    Loop,
    LoopedSound,
    as_held,
    find_loop,
    joint_excess_db,
    level_step_db,
)

SAMPLE_RATE = 48_000
BEGIN = round(0.3 * SAMPLE_RATE)
Tone = Callable[..., npt.NDArray[np.float32]]


def repeated(sound: LoopedSound, times: int) -> npt.NDArray[np.float32]:
    """What a sampler plays."""
    body = sound.audio[sound.loop.start : sound.loop.end + 1]
    return np.concatenate([sound.audio[: sound.loop.end + 1], *[body] * times])


def vibrato(pitch_hertz: float, seconds: float) -> npt.NDArray[np.float32]:
    time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    phase = 2 * np.pi * pitch_hertz * time + 2.0 * np.sin(2 * np.pi * 5 * time)
    return (0.2 * (np.sin(phase) + 0.5 * np.sin(2 * phase))).astype(np.float32)


@pytest.mark.parametrize("pitch", [36, 49.3, 60, 72.7, 96])
def test_a_steady_tone_loops_without_a_click(pitch: float, tone: Tone) -> None:
    audio = tone(pitch, 2.0)
    sound = find_loop(audio, SAMPLE_RATE, BEGIN, len(audio))
    assert sound is not None
    assert BEGIN <= sound.loop.start < sound.loop.end < len(audio)
    assert sound.loop.end - sound.loop.start >= SHORTEST_SECONDS * SAMPLE_RATE
    played = repeated(sound, 3)
    assert np.abs(np.diff(played, 2)).max() <= 1.1 * np.abs(np.diff(audio, 2)).max()
    levels = [np.sqrt(np.mean(np.square(part))) for part in np.array_split(played, 40)]
    assert max(levels) / min(levels) < 1.12


def test_a_held_key_plays_the_loop_again_and_again(tone: Tone) -> None:
    audio = tone(60, 2.0)
    sound = find_loop(audio, SAMPLE_RATE, BEGIN, len(audio))
    assert sound is not None
    played = repeated(sound, 5)
    assert np.array_equal(as_held(sound.audio, sound.loop, len(played)), played)
    assert np.array_equal(as_held(audio, None, 3 * SAMPLE_RATE), audio)


def test_vibrato_loops(tone: Tone) -> None:
    audio = vibrato(440.0, 2.5)
    sound = find_loop(audio, SAMPLE_RATE, BEGIN, len(audio))
    assert sound is not None
    played = repeated(sound, 2)
    assert np.abs(np.diff(played, 2)).max() <= 1.2 * np.abs(np.diff(audio, 2)).max()


def test_straight_playing_has_no_click_either(tone: Tone) -> None:
    audio = tone(57.3, 2.0)
    sound = find_loop(audio, SAMPLE_RATE, BEGIN, round(1.6 * SAMPLE_RATE))
    assert sound is not None and sound.loop.end < 1.6 * SAMPLE_RATE
    assert np.abs(np.diff(sound.audio, 2)).max() <= 1.1 * np.abs(np.diff(audio, 2)).max()
    assert len(sound.audio) == len(audio)


def test_what_dies_away_is_not_looped(tone: Tone) -> None:
    audio = tone(60, 2.0, decay=40.0)
    assert find_loop(audio, SAMPLE_RATE, BEGIN, len(audio)) is None


def test_noise_is_not_looped() -> None:
    noise = (0.1 * np.random.default_rng(0).standard_normal(2 * SAMPLE_RATE)).astype(np.float32)
    assert find_loop(noise, SAMPLE_RATE, BEGIN, len(noise)) is None


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.31, 0.5])
def test_too_short_a_sound_is_not_looped(seconds: float, tone: Tone) -> None:
    audio = tone(60, seconds) if seconds else np.zeros(0, dtype=np.float32)
    assert find_loop(audio, SAMPLE_RATE, BEGIN, len(audio)) is None


def test_a_click_is_measured(tone: Tone) -> None:
    """Half a period too long: the wave turns round at the joint."""
    hertz = 480.0
    audio = tone(69 + 12 * np.log2(hertz / 440.0), 1.0, harmonics=(1.0,))
    period = round(SAMPLE_RATE / hertz)
    start = 10_010
    good = Loop(start, start + 50 * period - 1)
    bad = Loop(start, start + 50 * period + period // 2 - 1)
    assert joint_excess_db(audio, good) <= JOINT_DB
    assert joint_excess_db(audio, bad) > 10.0


def test_a_step_in_level_is_measured(tone: Tone) -> None:
    audio = tone(69, 1.0)
    audio[24_000:] *= 0.5
    assert level_step_db(audio, Loop(10_000, 40_000), SAMPLE_RATE) == pytest.approx(-6.0, abs=0.5)
