"""`timbrel render` and `timbrel info` as a user types them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

import timbrel

pytestmark = pytest.mark.usefixtures("codecs_loaded_once")

RENDER = ["render", "--timbre", "-0.2,0.4", "--pitch", "60", "--seconds", "0.4"]


@pytest.fixture(autouse=True)
def environment(server_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is named by the environment, the cache and the working folder are the test's own."""
    monkeypatch.setenv("TIMBREL_SERVER", server_address)
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    for name in ("TIMBREL_TOKEN", "TIMBREL_BUNDLE", "TIMBREL_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


Run = Callable[..., tuple[int, str, str]]


def test_the_same_seed_writes_the_same_bytes_and_another_does_not(run: Run) -> None:
    for name, seed in (("one.wav", "1"), ("again.wav", "1"), ("other.wav", "2")):
        status, out, error = run(*RENDER, "--seed", seed, "--temperature", "1", "--out", name)
        assert (status, error) == (0, "")
        assert out.startswith(f"{name}: ") and f"seed {seed}" in out
    assert Path("one.wav").read_bytes() == Path("again.wav").read_bytes()
    assert Path("one.wav").read_bytes() != Path("other.wav").read_bytes()
    info = soundfile.info("one.wav")
    assert (info.format, info.subtype, info.channels) == ("WAV", "PCM_24", 1)


def test_a_bend_is_a_number_or_points(run: Run) -> None:
    for name, bend in (("plain.wav", "0"), ("tuned.wav", "-50"), ("slide.wav", "0:-50,0.4:200")):
        status, _, error = run(*RENDER, "--seed", "1", "--cents", bend, "--out", name)
        assert (status, error) == (0, "")
    assert len({Path(name).read_bytes() for name in ("plain.wav", "tuned.wav", "slide.wav")}) == 3
    status, out, _ = run(*RENDER, "--seed", "1", "--cents", "0:-50,0.4:200", "--out", "slide.wav", "--json")
    assert status == 0 and json.loads(out)["notes"][0]["cents"] == [[0.0, -50.0], [0.4, 200.0]]


def test_renders_an_instrument_by_name_to_flac(run: Run) -> None:
    status, out, _ = run("render", "--timbre", "violin", "--seconds", "0.4", "--out", "violin.flac")
    assert status == 0 and "seed " in out
    assert soundfile.info("violin.flac").format == "FLAC"


def test_a_pitch_is_a_number_or_a_note_and_several_are_a_chord(run: Run) -> None:
    same = ["--seed", "1", "--temperature", "1"]
    for name, pitch in (("number.wav", "66"), ("note.wav", "F#4"), ("flat.wav", "Gb4")):
        assert run(*RENDER, *same, "--pitch", pitch, "--out", name)[0] == 0
    assert Path("number.wav").read_bytes() == Path("note.wav").read_bytes() == Path("flat.wav").read_bytes()
    status, out, _ = run(*RENDER, *same, "--pitch", "48,F#4", "--out", "chord.wav", "--json")
    assert status == 0 and json.loads(out)["notes"][0]["pitch"] == [48, 66]
    with timbrel.Client() as client:
        low, high = (
            client.generate((-0.2, 0.4), pitch, seconds=0.4, seed=1, temperature=1.0).audio
            for pitch in (48, 66.0)  # as an array gives it
        )
    both = np.zeros(max(len(low), len(high)))
    both[: len(low)] += low
    both[: len(high)] += high
    chord = soundfile.read("chord.wav")[0]
    assert np.abs(chord).max() <= 1.0
    np.testing.assert_allclose(chord * (np.abs(both).max() / np.abs(chord).max()), both, atol=1e-4)


def test_a_note_that_moves_is_told_with_its_way(run: Run) -> None:
    command = [*RENDER, "--move", "0.2:Violin", "--out", "moving.wav", "--json"]
    status, out, _ = run(*command)
    (note,) = json.loads(out)["notes"]
    assert status == 0 and note["path"] == [[0.0, [-0.2, 0.4]], [0.2, [0.5, 0.5]]]


def test_what_a_note_becomes_may_be_a_guess_too(run: Run, served: str) -> None:
    command = ["render", "--timbre", "Violin", "--move", "0.2:Tuba", "--pitch", "84", "--seconds", "0.3"]
    status, _, error = run(*command, "--out", "moving.wav", "--server", served)
    assert status == 0 and error.startswith("timbrel: Tuba was trained on pitches ")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--timbre", "0.9,0.9"], "timbre"),
        (["--timbre", "-2,0"], "timbre"),
        (["--timbre", "nan,0"], "timbre"),
        (["--timbre", "1,2,3"], "timbre"),
        (["--timbre", "Violinn"], "Violin"),
        (["--pitch", "20"], "pitch"),
        (["--timbre", "Violin", "--pitch", "20"], "pitch"),
        (["--cents", "2401"], "cents"),
        (["--cents", "up"], "is neither a number nor points SECONDS:CENTS"),
        (["--cents", "0:1:2"], "is neither a number nor points SECONDS:CENTS"),
        (["--cents", "1:0,0.5:0"], "in order"),
        (["--pitch", "-1"], "pitch"),
        (["--pitch", "H4"], "a note such as C4"),
        (["--pitch", "C4,20"], "pitch"),
        (["--velocity", "0"], "velocity"),
        (["--velocity", "128"], "velocity"),
        (["--seconds", "nan"], "seconds"),
        (["--seconds", "-1"], "seconds"),
        (["--seconds", "1e9"], "seconds"),
        (["--seed", "-1"], "seed"),
        (["--seed", str(2**64)], "seed"),
        (["--temperature", "3"], "temperature"),
        (["--top-k", "0"], "top_k"),
        (["--top-p", "0"], "top_p"),
        (["--timeout", "0"], "timeout"),
        (["--server", "nowhere:99999"], "server"),
        (["--server", "127.0.0.1:1"], "127.0.0.1:1"),
        (["--server", "localhost:1", "--bundle", "x"], "bundle"),
        (["--out", "note.mp3"], "note.mp3"),
        (["--out", "missing/note.wav"], "missing"),
        (["--out", "."], "out"),
        (["--out", "/dev/null/note.wav"], "the folder /dev/null is a file"),
        (["--move", "0.5"], "move: must be SECONDS:TIMBRE"),
        (["--volume", "11"], "--volume"),
    ],
)
def test_bad_input_is_one_line_status_2_and_no_file(run: Run, arguments: list[str], word: str) -> None:
    status, out, error = run(*RENDER, "--out", "note.wav", *arguments)
    assert status == 2
    assert out == ""
    assert error.startswith("timbrel: ") and error.count("\n") == 1
    assert word in error
    assert list(Path().iterdir()) == []


def test_without_a_timbre_or_a_file_the_option_is_named(run: Run) -> None:
    status, _, error = run("render", "--pitch", "60")
    assert status == 2
    assert "--timbre" in error and "--out" in error and error.count("\n") == 1


def test_help_teaches_by_example(run: Run) -> None:
    for command in ("render", "info", "demo", "locate", "map", "play"):
        status, out, _ = run(command, "--help")
        assert status == 0
        assert "examples:" in out and f"timbrel {command}" in out
        assert command == "demo" or "--json | jq" in out
    assert "MIDI velocity, 1 to 127" in run("render", "--help")[1]


def test_info_tells_what_is_served(run: Run) -> None:
    status, out, error = run("info")
    assert (status, error) == (0, "")
    for word in ("CPUExecutionProvider", "Violin", "Strings", "36..96", "frames/s"):
        assert word in out


def test_info_as_json(run: Run) -> None:
    status, out, _ = run("info", "--json")
    assert status == 0
    facts = json.loads(out)
    assert facts["model"]["pitch_range"] == [36, 96]
    assert {"name", "family", "timbre", "pitch_min", "pitch_max"} == facts["instruments"][0].keys()


def test_a_private_server_serves_the_bundle_named(
    run: Run, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMBREL_SERVER", "nowhere.invalid:1")
    status, out, error = run("info", "--bundle", str(tiny_bundle))
    assert (status, error) == (0, "")
    assert "Violin" in out
    status, out, error = run(*RENDER, "--out", "note.wav", "--bundle", "nowhere")
    assert (status, out) == (2, "")
    assert "nowhere" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*RENDER, "--out", "note.wav"], ""),
        (["library", "--timbre", "Violin", "--out", "violin"], "the same command goes on"),
    ],
)
def test_an_interrupt_ends_with_status_130_and_says_what_goes_on(arguments: list[str], said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "timbrel", *arguments, "--server", address]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ.copy(),
            # A shell's background jobs ignore SIGINT, and hand that down to what they start.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            connection, _ = silent.accept()
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=60)
            connection.close()
    assert (process.returncode, out, error.count("\n")) == (130, "", int(bool(said)))
    assert said in error
    assert list(Path().iterdir()) == []
