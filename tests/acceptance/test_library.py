"""A library of the bundle that ships: rendered, checked, and played by sfizz."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mido
import numpy as np
import pytest
from library_kills import KilledJob, check_kills
from note_proxy import NoteProxy
from requirements_gate import require_module, require_system
from server_process import ServerProcess

from timbrel.library.finish.manifest import read_rows
from timbrel.library.verify.sfizz_check import cents_beside
from timbrel_bundle.audio import read_audio
from timbrel_server.config import default_bundle_path

pytestmark = pytest.mark.acceptance

TIMBREL = Path(sys.executable).with_name("timbrel")


def run_json(*arguments: str | Path) -> dict[str, Any]:
    done = subprocess.run([TIMBREL, *arguments, "--json"], stdout=subprocess.PIPE, check=False)
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("library") / "lib"
    notes = ["--pitches", "48-84:12", "--velocities", "40,120"]
    summary = run_json("library", "--timbre", "Violin", *notes, "--out", folder)
    assert summary["n_notes"] == summary["n_rendered"] == 8
    return folder


def test_a_violin_passes_its_check(library: Path) -> None:
    report = run_json("verify", library)
    assert report["passed"], report["faults"]
    assert report["n_in_tune"] == 8
    assert report["n_looped"] >= 6, "a violin sounds for as long as it is bowed"


def test_sfizz_plays_a_scale_in_tune(library: Path) -> None:
    require_module("pysfizz", "dev")
    (scale,) = run_json("verify", library)["scales"]
    assert scale["n_played"] == 4 and scale["n_judged"] >= 3
    assert scale["worst_cents"] <= 5.0
    assert scale["n_within_15"] >= 0.95 * scale["n_judged"]


def test_nothing_is_left_to_do(library: Path) -> None:
    notes = ["--pitches", "48-84:12", "--velocities", "40,120"]
    assert run_json("library", "--timbre", "Violin", *notes, "--out", library)["n_rendered"] == 0


def test_polyphone_and_fluidsynth_play_each_key_as_its_sample(library: Path, tmp_path: Path) -> None:
    require_system("polyphone", "fluidsynth")
    notes = ["--pitches", "48-84:12", "--velocities", "40,120"]
    run_json("library", "--timbre", "Violin", *notes, "--sf2", "--out", library)
    rows = [row for row in read_rows(library / "manifest.jsonl") if row.velocity == 120]
    piece = mido.MidiFile(ticks_per_beat=480)  # a beat is half a second
    piece.tracks.append(track := mido.MidiTrack())
    for row in rows:
        track.append(mido.Message("note_on", note=row.pitch, velocity=row.velocity, time=960))
        track.append(mido.Message("note_off", note=row.pitch, time=960))
    piece.save(tmp_path / "scale.mid")
    options = ["-ni", "-q", "-R", "0", "-C", "0", "-r", "48000", "-T", "wav", "-F", "scale.wav"]
    subprocess.run(
        ["fluidsynth", *options, library / "Violin.sf2", "scale.mid"], check=True, cwd=tmp_path, timeout=120
    )
    audio, rate = read_audio(tmp_path / "scale.wav")
    for index, row in enumerate(rows):
        played = audio[(1 + 2 * index) * rate : (2 + 2 * index) * rate]
        cents = cents_beside(np.ascontiguousarray(played), read_audio(library / row.file)[0][:rate], rate)
        assert cents is not None and abs(cents - row.tune_cents) <= 5.0, row.file


def test_a_job_of_two_thousand_notes_killed_five_times(
    start_server: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = start_server("--threads", "0", bundle=default_bundle_path())
    timbres = ["Violin", "Flute", "Trumpet", "Harpsichord"]
    named = [argument for timbre in timbres for argument in ("--timbre", timbre)]
    notes = ["--pitches", "36-85", "--velocities", "40,60,80,100,120", "--round-robins", "2"]
    options = ["--seconds", "0.3", "--tries", "1"]
    with NoteProxy(server.address) as proxy:
        check_kills(KilledJob(tmp_path, proxy, [*named, *notes, *options]), 2000, 5, seed=6)
