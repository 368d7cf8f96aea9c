"""One curve of level over velocity, to which the samples of an instrument are brought."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from timbrel.library import LibraryJob
from timbrel.library.finish.dynamics import Dynamics, SampleLevel, fit_curve, velocity_zones
from timbrel.library.finish.finisher import Finisher
from timbrel.library.plan.formats import SAMPLE_FORMATS
from timbrel.library.plan.notes import plan_voice
from timbrel.library.render.level import Audio, Trimmed, loudness, trim
from timbrel.library.render.measure import Measurement, measure
from timbrel.library.render.pitch import find_trackers
from timbrel.library.render.renderer import Attempt, ChosenNote
from timbrel.library.render.store import DecodedNote, RawNote
from timbrel_bundle.audio import read_audio

RATE = 48_000


def levels_of(*layers: tuple[int, float], pitches: tuple[int, ...] = (60, 72)) -> list[SampleLevel]:
    return [SampleLevel(pitch, velocity, level, level + 8) for pitch in pitches for velocity, level in layers]


@pytest.mark.parametrize("velocities", [[1], [100], [40, 80, 120], [1, 2, 127]])
def test_all_velocities_are_covered_once(velocities: list[int]) -> None:
    zones = velocity_zones(velocities)
    covered = [velocity for low, high in zones.values() for velocity in range(low, high + 1)]
    assert covered == list(range(1, 128))
    assert all(zones[velocity][0] <= velocity <= zones[velocity][1] for velocity in velocities)


@pytest.mark.parametrize(
    "knots",
    [
        {100: -20.0},
        {40: -35.0, 80: -23.0, 120: -16.0},
        {20: -60.0, 120: -16.0},
        {40: -16.0, 80: -20.0, 120: -18.0},  # softer the harder it is played
        {40: -20.0, 41: -10.0},
        {1: -20.0, 64: -20.0, 127: -20.0},
    ],
)
def test_level_rises_from_each_velocity_to_the_next_and_by_less_than_a_decibel(
    knots: dict[int, float],
) -> None:
    steps = np.diff(fit_curve(knots))
    assert steps.min() > 0.0 and steps.max() <= 0.8001


def test_where_it_may_the_curve_goes_through_the_layers() -> None:
    curve = fit_curve({40: -35.0, 80: -23.0, 120: -16.0})
    assert [curve[velocity - 1] for velocity in (40, 80, 120)] == pytest.approx(
        [-35.0, -23.0, -16.0], abs=0.2
    )


def test_every_sample_is_brought_to_the_curve_and_layers_meet() -> None:
    samples = [*levels_of((40, -34.0), (80, -24.0), (120, -17.0)), SampleLevel(66, 40, -39.0, -30.0)]
    samples += [SampleLevel(66, 80, -21.0, -13.0), SampleLevel(66, 120, -18.0, -10.0)]
    dynamics = Dynamics.fit(samples)
    for pitch in (60, 66):
        played: list[float] = []
        for sample in (each for each in samples if each.pitch == pitch):
            zone = dynamics.zones[sample.velocity]
            played += list(sample.loudness + dynamics.gain_db(sample) + dynamics.fall_db(zone))
        assert len(played) == 127
        assert all(0.0 < above - below <= 0.8001 for below, above in pairwise(played))


def test_takes_of_a_note_play_equally_loud() -> None:
    takes = [SampleLevel(60, 100, -20.0, -12.0), SampleLevel(60, 100, -17.0, -9.0)]
    dynamics = Dynamics.fit(takes)
    one, other = (take.loudness + dynamics.gain_db(take) for take in takes)
    assert one == pytest.approx(other)


def played_at(levels: dict[int, float]) -> list[float]:
    """Levels of an instrument's pitches at the velocity at which it was rendered, as they are played."""
    samples = [SampleLevel(pitch, 100, level, level + 8) for pitch, level in levels.items()]
    dynamics = Dynamics.fit(samples)
    fall = dynamics.fall_db((1, 127))[99]
    return [each.loudness + dynamics.gain_db(each) + fall for each in samples]


def test_a_pitch_that_stands_out_is_about_as_loud_as_its_neighbours() -> None:
    played = played_at({pitch: -33.0 if pitch == 69 else -40.0 for pitch in range(48, 85, 3)})
    assert np.abs(np.diff(played)).max() < 0.7
    assert np.median(played) == pytest.approx(-40.0, abs=1.0)


@pytest.mark.parametrize(
    "levels",
    [
        {60: -40.0},
        {60: -40.0, 67: -38.0},
        {36: -40.0, 48: -31.0, 60: -38.0, 72: -30.0},  # too far from one another to be compared
        {pitch: -40.0 - 0.5 * (pitch - 48) for pitch in range(48, 85)},
    ],
)
def test_level_goes_up_and_down_over_the_keyboard_as_it_was_rendered(levels: dict[int, float]) -> None:
    assert played_at(levels) == pytest.approx(list(levels.values()), abs=0.01)


def test_nothing_clips_at_the_highest_velocity() -> None:
    dynamics = Dynamics.fit([SampleLevel(60, 64, -20.0, -1.5)])
    assert dynamics.headroom_db > 5.0
    assert max(dynamics.gain_db(SampleLevel(60, 64, -20.0, -1.5)) + dynamics.fall_db((1, 127))) - 1.5 <= -0.99


@pytest.mark.parametrize("silent", [[(66, 120)], [(66, 40), (66, 120)], [(60, 120), (66, 120), (72, 120)]])
def test_a_silent_sample_says_nothing_of_the_level_of_others(silent: list[tuple[int, int]]) -> None:
    samples = levels_of((40, -34.0), (80, -24.0), (120, -17.0), pitches=(60, 66, 72))
    sounding = [each for each in samples if (each.pitch, each.velocity) not in silent]
    quiet = [SampleLevel(pitch, velocity, -120.0, -120.0) for pitch, velocity in silent]
    dynamics, usual = Dynamics.fit([*sounding, *quiet]), Dynamics.fit(samples)
    assert dynamics.zones == usual.zones and [dynamics.gain_db(each) for each in quiet] == [0.0] * len(silent)
    for each in sounding:
        assert dynamics.gain_db(each) == pytest.approx(usual.gain_db(each), abs=1.0)


def test_slices_and_segments_follow_the_curve() -> None:
    dynamics = Dynamics.fit(levels_of((40, -34.0), (120, -17.0)))
    for zone in dynamics.zones.values():
        fall = dynamics.fall_db(zone)
        sliced = [level for (low, high), level in dynamics.slices[zone] for _ in range(low, high + 1)]
        assert np.abs(np.array(sliced) - fall).max() <= 0.3
        lines = [
            np.linspace(at_low, at_high, high - low + 1)
            for (low, high), at_low, at_high in dynamics.segments[zone]
        ]
        assert np.abs(np.concatenate(lines) - fall).max() <= 0.11


def test_a_short_sample_is_as_loud_as_a_held_key_plays_it(
    job: LibraryJob, tone: Callable[..., Audio], tmp_path: Path
) -> None:
    """Its loop begins anew within the second that is measured, and what follows the loop is not heard."""
    job = replace(job, voices=job.voices[:1], seconds=0.6, round_robins=1)
    held, released = tone(60, 0.6), tone(60, 0.5, level=0.6)
    sound = Trimmed(np.concatenate([held, released]), 0)
    raw = RawNote(np.zeros((4, 2), np.uint16), truncated=False)
    measured = Measurement(60.0, None, "yin", -20.0, -10.0, 0.0, 0.1, 0.0, 0.0, lasts=True)
    notes = [
        ChosenNote(planned, Attempt(0, "abc", measured), 1) for planned in plan_voice(job, job.voices[0])
    ]
    model: Any = SimpleNamespace(**vars(job.writer), sample_rate=RATE, codec_hash="c" * 64)
    finisher = Finisher(job, model, tmp_path, tmp_path, lambda _: DecodedNote(raw, sound), {}, sf2=False)
    instrument = finisher.instrument(notes, 0)
    row = finisher.write_sample(instrument, 0)
    assert row.loop is not None
    steady = loudness(tone(60, 1.0), RATE) + instrument.gain_db
    assert row.level_lufs == pytest.approx(steady, abs=0.2)


@pytest.mark.parametrize("file_format", SAMPLE_FORMATS)
def test_a_note_that_ends_at_once_is_a_silent_sample(
    job: LibraryJob, tone: Callable[..., Audio], tmp_path: Path, file_format: str
) -> None:
    """Of none at all there is no FLAC file, and no .sf2 file of the others."""
    job = replace(job, voices=job.voices[:1], round_robins=1, file_format=file_format)
    sounds = {"a": tone(60, 1.5), "none": np.zeros(0, np.float32)}
    raw = RawNote(np.zeros((0, 2), np.uint16), truncated=False)
    measured = {
        key: measure(audio, trim(audio, RATE), RATE, 60, 1.0, find_trackers())
        for key, audio in sounds.items()
    }
    notes = [
        ChosenNote(planned, Attempt(0, key := "none" if number == 2 else "a", measured[key]), 1)
        for number, planned in enumerate(plan_voice(job, job.voices[0]))
    ]
    model: Any = SimpleNamespace(**vars(job.writer), sample_rate=RATE, codec_hash="c" * 64)
    finisher = Finisher(
        job, model, tmp_path, tmp_path, lambda key: DecodedNote(raw, trim(sounds[key], RATE)), {}, sf2=True
    )
    instrument = finisher.instrument(notes, 0)
    rows = [finisher.write_sample(instrument, number) for number in range(len(notes))]
    assert finisher.write_instrument(instrument, rows) is None and (tmp_path / "Violin.sf2").exists()
    audio, _ = read_audio(tmp_path / rows[2].file)
    assert audio.tolist() == [0.0] and rows[2].n_samples == 1
