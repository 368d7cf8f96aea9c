"""NSynth in its published layout, written by the test."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from timbrel_training.notes.note import SourceError
from timbrel_training.notes.nsynth import NSynthSource

RATE = 16_000


def entry(instrument: str, family: str, pitch: int, velocity: int) -> dict[str, object]:
    key = f"{instrument}-{pitch:03d}-{velocity:03d}"
    return {
        "note": 1,
        "note_str": key,
        "instrument": 7,
        "instrument_str": instrument,
        "pitch": pitch,
        "velocity": velocity,
        "sample_rate": RATE,
        "qualities": [0] * 10,
        "qualities_str": [],
        "instrument_family": 0,
        "instrument_family_str": family,
        "instrument_source": 0,
        "instrument_source_str": "acoustic",
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    entries = [
        entry("flute_acoustic_002", "flute", 72, 100),
        entry("flute_acoustic_002", "flute", 60, 25),
        entry("guitar_electronic_001", "guitar", 45, 127),
    ]
    (tmp_path / "audio").mkdir()
    time = np.arange(4 * RATE) / RATE
    for e in entries:
        tone = 0.3 * np.sin(2 * np.pi * 440 * time) * np.exp(-time * (0.01 if e["pitch"] == 45 else 4))
        soundfile.write(tmp_path / "audio" / f"{e['note_str']}.wav", tone, RATE, subtype="PCM_16")
    (tmp_path / "examples.json").write_text(json.dumps({str(e["note_str"]): e for e in entries}))
    return tmp_path


def test_notes_are_grouped_by_instrument(folder: Path) -> None:
    source = NSynthSource(folder)
    assert source.groups() == ["flute_acoustic_002", "guitar_electronic_001"]
    flutes = list(source.notes("flute_acoustic_002"))
    assert [(n.pitch, n.velocity, n.family) for n in flutes] == [(60, 25, "Pipe"), (72, 100, "Pipe")]
    assert len(list(source)) == 3


def test_a_note_was_held_for_three_seconds_and_ends_where_it_dies_away(folder: Path) -> None:
    flute, _, guitar = NSynthSource(folder)
    assert flute.held_seconds == guitar.held_seconds == 3.0 and flute.sample_rate == RATE
    assert 1.6 < flute.seconds < 1.9 and not flute.cut  # -60 dB after 1.73 s
    assert guitar.seconds == 4.0 and guitar.cut


def test_what_is_not_nsynth_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"an NSynth folder has examples\.json and audio/"):
        NSynthSource(tmp_path)
    (tmp_path / "examples.json").write_text("{")
    with pytest.raises(SourceError, match="not valid JSON"):
        NSynthSource(tmp_path)
    (tmp_path / "examples.json").write_text("{}")
    with pytest.raises(SourceError, match="lists no notes"):
        NSynthSource(tmp_path)
    (tmp_path / "examples.json").write_text("[1]")
    with pytest.raises(SourceError, match="not a table of notes"):
        NSynthSource(tmp_path)
    (tmp_path / "examples.json").write_text('{"a": {"pitch": 60}}')
    with pytest.raises(SourceError, match="a has no instrument_str"):
        NSynthSource(tmp_path).groups()


def test_a_missing_or_corrupt_file_is_named(folder: Path) -> None:
    file = folder / "audio" / "guitar_electronic_001-045-127.wav"
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(
        SourceError, match=r"guitar_electronic_001-045-127\.wav: not a readable sound file"
    ) as error:
        list(NSynthSource(folder))
    assert "\n" not in str(error.value)
    file.unlink()
    with pytest.raises(SourceError, match=r"127\.wav: no such file"):
        list(NSynthSource(folder))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("pitch", "C4", "pitch must be a whole number, 0 to 127, got 'C4'"),
        ("pitch", None, "pitch must be a whole number, 0 to 127, got None"),
        ("velocity", 300, "velocity must be a whole number, 1 to 127, got 300"),
    ],
)
def test_a_number_that_is_none_is_named_before_anything_is_read(
    folder: Path, name: str, value: object, expected: str
) -> None:
    examples = json.loads((folder / "examples.json").read_text())
    examples["flute_acoustic_002-060-025"][name] = value
    (folder / "examples.json").write_text(json.dumps(examples))
    with pytest.raises(SourceError, match=rf"examples\.json: flute_acoustic_002-060-025: {expected}"):
        NSynthSource(folder).check()
