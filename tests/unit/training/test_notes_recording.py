"""Finding the release of a recorded note."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from timbrel_training.notes.note import SourceError
from timbrel_training.notes.recording import (
    Hold,
    find_hold,
    read_recording,
    sounding_samples,
    trim_onset,
)

RATE = 22_050
TIME = np.arange(3 * RATE) / RATE
NEVER = np.inf


def release(at: float, seconds: float) -> NDArray[np.float64]:
    return np.exp(-np.maximum(TIME - at, 0.0) / seconds)


def held(envelope: NDArray[np.float64], noise: float = 0.0, hertz: float = 220.0) -> tuple[Hold, float]:
    """What is found for a tone of this envelope, and how long it sounds."""
    tone = envelope * np.sin(2 * np.pi * hertz * TIME)
    tone = tone + noise * np.random.default_rng(0).standard_normal(len(TIME))
    audio = tone.astype(np.float32)
    return find_hold(audio, RATE), sounding_samples(audio, RATE) / RATE


@pytest.mark.parametrize(
    ("envelope", "expected"),
    [
        pytest.param(release(2.0, 0.02), 2.0, id="organ"),
        pytest.param(np.minimum(TIME / 0.3, 1) * release(1.5, 0.2), 1.5, id="pad"),
        pytest.param(np.minimum(TIME / 1.5, 1) * release(2.0, 0.05), 2.0, id="swell"),
        pytest.param((1 + 0.5 * np.sin(2 * np.pi * 5 * TIME)) * release(2.0, 0.05), 2.0, id="tremolo"),
        pytest.param(np.exp(-TIME / 0.8) * release(1.0, 0.05), 1.0, id="damped piano"),
        pytest.param(1.0 * (TIME < 1.2), 1.2, id="no release"),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 1e-3])
@pytest.mark.parametrize("hertz", [55.0, 440.0])
def test_a_release_is_found(
    envelope: NDArray[np.float64], expected: float, noise: float, hertz: float
) -> None:
    hold, _ = held(envelope, noise, hertz)
    assert hold.seconds == pytest.approx(expected, abs=0.05)
    assert not hold.cut


@pytest.mark.parametrize(
    "envelope",
    [
        pytest.param(np.exp(-TIME / 0.3), id="pluck"),
        pytest.param(0.8 * np.exp(-TIME / 0.15) + 0.2 * np.exp(-TIME / 0.5), id="piano"),
        pytest.param(np.exp(-TIME / 0.01), id="click"),
    ],
)
def test_what_dies_away_by_itself_was_held(envelope: NDArray[np.float64]) -> None:
    hold, seconds = held(envelope)
    assert hold == Hold(seconds, cut=False)


def test_what_sounds_to_the_end_was_cut_off() -> None:
    hold, seconds = held(np.ones(len(TIME)))
    assert hold == Hold(seconds, cut=True)


@pytest.mark.parametrize("level_db", [-80.0, -55.0, -38.0])
@pytest.mark.parametrize("decay", [0.0, 3.0])
def test_the_noise_of_a_room_before_a_note_is_no_part_of_it(level_db: float, decay: float) -> None:
    room = np.random.default_rng(0).normal(0, 10 ** (level_db / 20), len(TIME))
    begin = RATE // 2
    room[begin:] += np.sin(2 * np.pi * 220 * TIME[:-begin]) * np.exp(-decay * TIME[:-begin])
    assert len(room) - len(trim_onset(room.astype(np.float32), RATE)) == pytest.approx(
        begin, abs=0.004 * RATE
    )


@pytest.mark.parametrize("seconds", [0.05, 0.3, 1.0])
def test_a_soft_attack_is_no_room(seconds: float) -> None:
    rise = np.minimum(1, TIME / seconds)
    for shape in (rise, rise**2):
        swell = (np.sin(2 * np.pi * 220 * TIME) * shape).astype(np.float32)
        assert len(swell) - len(trim_onset(swell, RATE)) <= np.flatnonzero(abs(swell) > 2e-3)[0]


def test_silence_and_clicks_are_no_fault() -> None:
    assert find_hold(np.zeros(0, np.float32), RATE) == Hold(0.0, cut=False)
    assert find_hold(np.ones(100, np.float32), RATE).seconds == pytest.approx(100 / RATE)


@pytest.mark.parametrize("form", ["WAV", "WAVEX", "AIFF", "RF64"])
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT"])
def test_recordings_that_are_cut_short_are_no_notes(tmp_path: Path, form: str, subtype: str) -> None:
    path = tmp_path / "060.wav"
    soundfile.write(path, np.full((1000, 2), 0.5), RATE, format=form, subtype=subtype)
    whole = path.read_bytes()
    for kept in (len(whole) // 2, len(whole) - 8):
        path.write_bytes(whole[:kept])
        with pytest.raises(SourceError, match=r"060\.wav: is cut short, .*; copy or load it again"):
            read_recording(path)
    path.write_bytes(whole + bytes(4))
    assert len(read_recording(path)[0]) == 1000


@pytest.mark.parametrize("size", [0x7FFF_F000, 0xFFFF_FFFF])
def test_recordings_written_to_a_pipe_are_whole(tmp_path: Path, size: int) -> None:
    path = tmp_path / "060.wav"
    soundfile.write(path, np.full(1000, 0.5), RATE, subtype="PCM_16")
    whole = path.read_bytes()
    at = whole.index(b"data") + 4
    path.write_bytes(whole[:at] + size.to_bytes(4, "little") + whole[at + 4 :])
    assert len(read_recording(path)[0]) == 1000
