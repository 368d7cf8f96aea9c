"""`timbrel demo` on the tiny bundle: noise, but rendered, measured and drawn."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import soundfile
from requirements_gate import require_module

from timbrel.cli import main


@pytest.fixture(autouse=True)
def environment(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMBREL_BUNDLE", str(tiny_bundle))
    monkeypatch.setenv("TIMBREL_SERVER", "nowhere.invalid:1")  # the demo's server is its own
    monkeypatch.setenv("TIMBREL_CA", str(tmp_path / "nowhere.pem"))  # and speaks no TLS
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TIMBREL_TRACEBACK", raising=False)


def test_any_note_of_the_demo_can_be_rendered_again_from_its_figures(
    tmp_path: Path, tiny_bundle: Path
) -> None:
    require_module("matplotlib", "demo")
    require_module("swift_f0", "demo")
    arguments = ["demo", "--out", str(tmp_path), "--instruments", "1", "--pitches", "1"]
    assert main(arguments) == 0
    (note,) = json.loads((tmp_path / "notes.json").read_text())
    again = tmp_path / "again.wav"
    x, y = note["timbre"]
    values = {name: str(note[name]) for name in ("pitch", "velocity", "seconds", "seed")}
    options = [part for name, value in values.items() for part in (f"--{name}", value)]
    bundle = ["--bundle", str(tiny_bundle)]
    assert main(["render", "--timbre", f"{x},{y}", *options, *bundle, "--out", str(again)]) == 0
    assert again.read_bytes() == (tmp_path / note["file"]).read_bytes()


@pytest.mark.slow
def test_the_demo_writes_notes_a_picture_and_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module("matplotlib", "demo")
    require_module("swift_f0", "demo")
    require_module("mido", "midi")
    folder = tmp_path / "demo"
    assert main(["demo", "--out", str(folder)]) == 0

    notes = json.loads((folder / "notes.json").read_text())
    assert len(notes) >= 12
    assert len({note["instrument"] for note in notes}) >= 3
    for note in notes:
        assert {"file", "timbre", "pitch", "velocity", "seconds", "seed", "pitch_measured"} <= note.keys()
        assert f"{note['pitch']:03d}" in note["file"]
        assert 36 <= note["pitch"] <= 94
        assert soundfile.info(folder / note["file"]).subtype == "PCM_24"
    assert {path.name for path in folder.iterdir()} == {
        *(note["file"] for note in notes),
        "notes.json",
        "spectrograms.png",
        "oboe.wav",
        "song.mid",
    }
    monkeypatch.delenv("TIMBREL_SERVER")
    assert main(["locate", str(folder / "oboe.wav")]) == 0
    song = folder / "song.wav"
    assert main(["play", str(folder / "song.mid"), "--out", str(song), "--timbre", "Violin", "--fold"]) == 0
    assert soundfile.info(song).duration > 3.0
    out = capsys.readouterr().out
    assert all(note["file"] in out for note in notes)
    assert re.search(rf"^\d+ of {len(notes)} within 50 cents$", out, re.MULTILINE)


@pytest.mark.parametrize(
    "arguments", [["--pitches", "0"], ["--instruments", "many"], ["--bundle", "no-such-bundle"]]
)
def test_bad_input_is_one_line_status_2_and_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    require_module("matplotlib", "demo")
    require_module("swift_f0", "demo")
    try:
        status = main(["demo", "--out", str(tmp_path / "demo"), *arguments])
    except SystemExit as end:
        status = int(end.code or 0)
    assert status == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert not (tmp_path / "demo").exists()
