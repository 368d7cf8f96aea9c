"""`timbrel map`, and --json of the commands that answer something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from requirements_gate import require_module

from timbrel.cli import main


@pytest.fixture(autouse=True)
def environment(server_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is named by the environment, the working folder is the test's own."""
    monkeypatch.setenv("TIMBREL_SERVER", server_address)
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    for name in ("TIMBREL_TOKEN", "TIMBREL_BUNDLE", "TIMBREL_TRACEBACK", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def in_terminal(*arguments: str, **environment: str) -> bytes:
    """What the command writes to a terminal."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "timbrel", *arguments],
        stdout=theirs,
        env={**os.environ, "TERM": "xterm", **environment},
    ) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                part = os.read(ours, 65_536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            written += part
        assert process.wait(60) == 0
    os.close(ours)
    return written


def test_draws_the_map_as_text_without_colour_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", "--width", "60"]) == 0
    out, error = capsys.readouterr()
    assert error == "" and "\x1b" not in out
    assert all(len(line) <= 60 for line in out.splitlines())
    for name in ("Grand Piano", "Violin", "Flute", "Trumpet"):
        assert out.count(name) == 1


def test_a_terminal_gets_colour_and_its_width_unless_no_color_is_set() -> None:
    coloured = in_terminal("map", COLUMNS="70")
    assert b"\x1b[" in coloured
    plain = in_terminal("map", COLUMNS="70", NO_COLOR="1").decode()
    assert "\x1b" not in plain
    assert max(len(line) for line in plain.splitlines()) <= 70


def test_a_terminal_of_ascii_gets_ascii() -> None:
    command = [sys.executable, "-m", "timbrel", "map", "--width", "60"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert done.stdout.isascii() and b"Violin" in done.stdout


def test_draws_the_map_as_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    require_module("matplotlib", "demo")
    import matplotlib.image

    assert main(["map", "--out", "map.png"]) == 0
    assert capsys.readouterr().out == "map.png: 4 instruments\n"
    first = Path("map.png").read_bytes()
    picture = np.asarray(matplotlib.image.imread("map.png"))
    assert picture.shape[:2] == (1275, 1275)
    # Four families, four colours that are neither grey nor background, and the disc's ground.
    colours = {tuple(colour) for colour in (picture[::3, ::3, :3] * 255).astype(int).reshape(-1, 3)}
    assert len({colour for colour in colours if max(colour) - min(colour) > 100}) >= 4
    assert tuple((picture[700, 640, :3] * 255).round().astype(int)) == (246, 246, 244)
    assert main(["map", "--out", "map.png"]) == 0
    assert Path("map.png").read_bytes() == first


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--out", "map.svg"], ".png"),
        (["--out", "missing/map.png"], "missing"),
        (["--width", "3"], "width"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], word: str) -> None:
    require_module("matplotlib", "demo")
    assert main(["map", *arguments]) == 2
    out, error = capsys.readouterr()
    assert out == "" and word in error and error.count("\n") == 1
    assert list(Path().iterdir()) == []


def test_map_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in facts["instruments"]] == ["Grand Piano", "Violin", "Flute", "Trumpet"]
    assert facts["instruments"][1]["timbre"] == [0.5, 0.5]


def test_render_and_locate_as_json_fit_together(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["render", "--timbre", "Flute", "--seconds", "0.4", "--out", "flute.wav", "--json"]
    assert main(command) == 0
    out, error = capsys.readouterr()
    assert error == ""
    (note,) = json.loads(out)["notes"]
    assert note["file"] == "flute.wav" and note["pitch"] == 60 and note["held_seconds"] == 0.4
    assert note["seconds"] == pytest.approx(soundfile.info("flute.wav").duration, abs=1e-4)
    assert main([*command, "--seed", str(note["seed"])]) == 0
    capsys.readouterr()
    assert main(["locate", "flute.wav", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["file"] == "flute.wav" and len(found["timbre"]) == 2 and found["nearest"][0]["name"]


def test_render_morphs_between_two_timbres(capsys: pytest.CaptureFixture[str]) -> None:
    morph = ["render", "--morph", "Violin:-0.2,-0.7", "--steps", "3", "--seconds", "0.2", "--json"]
    assert main([*morph, "--out", "morph.ogg", "--sample-rate", "22050"]) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert [note["file"] for note in notes] == ["morph-1.ogg", "morph-2.ogg", "morph-3.ogg"]
    assert [note["timbre"] for note in notes] == [
        pytest.approx(point) for point in ([0.5, 0.5], [0.15, -0.1], [-0.2, -0.7])
    ]
    assert len({note["seed"] for note in notes}) == 1
    for note in notes:
        info = soundfile.info(note["file"])
        assert (info.format, info.samplerate) == ("OGG", 22_050)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--morph", "Violin"], "A:B"),
        (["--morph", "Violin:Nothing"], "Nothing"),
        (["--morph", "Violin:Flute", "--steps", "1"], "steps"),
        (["--morph", "Violin:Flute", "--timbre", "Flute"], "exclude"),
        (["--timbre", "Flute", "--steps", "3"], "--morph"),
        (["--timbre", "Flute", "--sample-rate", "1"], "sample_rate"),
    ],
)
def test_morphs_that_make_no_sense_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], word: str
) -> None:
    assert main(["render", *arguments, "--out", "x.wav"]) == 2
    out, error = capsys.readouterr()
    assert out == "" and word in error and error.count("\n") == 1
    assert list(Path().iterdir()) == []
