from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from timbrel import InvalidRequestError, Note

RATE = 8000


def make_note(audio: np.ndarray[Any, Any], calls: list[int] | None = None) -> Note:
    """A note whose decoder gives this sound, and counts into `calls`."""

    def decode(codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if calls is not None:
            calls.append(len(codes))
        return audio.astype(np.float32)

    return Note((0.5, 0.0), 60, 100, 1.0, 7, False, np.zeros((4, 2), np.uint16), RATE, decode)


TONE = 0.5 * np.sin(np.arange(4000) * 0.3)


def test_decodes_when_first_asked_and_then_keeps_it() -> None:
    calls: list[int] = []
    note = make_note(TONE, calls)
    assert calls == []
    assert note.audio.dtype == np.float32
    assert note.audio is note.audio
    assert note.duration == 0.5
    assert calls == [4]


@pytest.mark.parametrize(("name", "kind"), [("note.wav", "WAV"), ("note.FLAC", "FLAC")])
def test_saves_24_bits_and_the_same_bytes_each_time(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    assert make_note(TONE).save(path) == path
    first = path.read_bytes()
    make_note(TONE).save(str(path))
    assert path.read_bytes() == first

    info = soundfile.info(path)
    assert (info.format, info.subtype, info.samplerate, info.channels) == (kind, "PCM_24", RATE, 1)
    audio, _ = soundfile.read(path)
    assert np.abs(audio - TONE).max() < 2**-22
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_clips_what_is_too_loud(tmp_path: Path) -> None:
    audio, _ = soundfile.read(make_note(np.array([0.0, 2.0, -2.0])).save(tmp_path / "loud.wav"))
    assert audio[1] > 0.99 and audio[2] == -1.0


def test_an_empty_note_saves_an_empty_file(tmp_path: Path) -> None:
    path = make_note(np.zeros(0)).save(tmp_path / "empty.wav")
    assert soundfile.info(path).frames == 0


@pytest.mark.parametrize("name", ["note.mp3", "note", "missing/note.wav"])
def test_refuses_other_endings_and_missing_folders(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError):
        make_note(TONE).save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_shows_itself_without_its_codes() -> None:
    assert repr(make_note(TONE)) == (
        "Note(timbre=(0.500, 0.000), pitch=60, velocity=100, seconds=1, seed=7, truncated=False, frames=4)"
    )
