"""A library of the bundle that ships: rendered, checked, and played by sfizz."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import pytest
from library_kills import KilledJob, check_kills
from note_proxy import NoteProxy
from requirements_gate import require_sfizz, require_system
from server_process import ServerProcess

from timbrel.library.verify.samplers import FluidSynth, Sfizz
from timbrel.library.verify.scale_check import level
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
    require_sfizz("dev")
    (scale,) = run_json("verify", library)["scales"]
    assert scale["n_played"] == 4 and scale["n_judged"] >= 3
    assert scale["worst_cents"] <= 5.0
    assert scale["n_within_15"] >= 0.95 * scale["n_judged"]


def test_nothing_is_left_to_do(library: Path) -> None:
    notes = ["--pitches", "48-84:12", "--velocities", "40,120"]
    assert run_json("library", "--timbre", "Violin", *notes, "--out", library)["n_rendered"] == 0


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three instruments in all formats."""
    folder: Path = tmp_path_factory.mktemp("three") / "lib"
    named = [argument for name in INSTRUMENTS.values() for argument in ("--timbre", name)]
    notes = ["--pitches", "48-84:6", "--velocities", "40,80,120", "--sf2", "--chords", "min"]
    run_json("library", *named, *notes, "--out", folder)
    return folder


INSTRUMENTS = {"Acoustic-Grand-Piano": "Acoustic Grand Piano", "Violin": "Violin", "Trumpet": "Trumpet"}


def test_three_instruments_pass_in_both_samplers(three: Path) -> None:
    require_system("fluidsynth")
    require_sfizz("dev")
    report = run_json("verify", three)
    assert report["passed"], report["faults"]
    assert len(report["scales"]) == 9 and all(scale["worst_cents"] <= 5.0 for scale in report["scales"])


class DecentSamplerRules:
    """Plays a .dspreset as its format says, for want of a DecentSampler without a window: no envelopes."""

    def __init__(self, path: Path, sample_rate: int) -> None:
        self._folder, self._rate = path.parent, sample_rate
        held = ElementTree.parse(path).getroot().findall("groups/group[@ampVelTrack='0']")
        self._samples = [
            dict(each.attrib) for group in held if "trigger" not in group.attrib for each in group
        ]

    def __enter__(self) -> DecentSamplerRules:
        return self

    def __exit__(self, *_: object) -> None: ...

    def play(self, key: int, velocity: int, seconds: float) -> npt.NDArray[np.float32]:
        [each] = [
            each
            for each in self._samples
            if int(each["loNote"]) <= key <= int(each["hiNote"])
            and int(each["loVel"]) <= velocity <= int(each["hiVel"])
        ]
        audio, rate = read_audio(self._folder / each["path"])
        speed = rate / self._rate * 2.0 ** ((key - int(each["rootNote"]) + float(each["tuning"])) / 12)
        places = np.arange(round(seconds * self._rate)) * speed
        gain = 10.0 ** (float(each["volume"].removesuffix("dB")) / 20.0)
        return np.asarray(gain * np.interp(places, np.arange(len(audio)), audio), dtype=np.float32)


@pytest.mark.parametrize("slug", INSTRUMENTS)
@pytest.mark.parametrize(
    ("sampler", "ending"), [(Sfizz, ".sfz"), (FluidSynth, ".sf2"), (DecentSamplerRules, ".dspreset")]
)
def test_level_rises_over_127_velocities(
    three: Path,
    slug: str,
    sampler: type[Sfizz] | type[FluidSynth] | type[DecentSamplerRules],
    ending: str,
) -> None:
    """Strictly where samples were rendered; far beyond, where they are stretched, they differ a little."""
    require_system("fluidsynth")
    require_sfizz("dev")
    with sampler((three / slug).with_suffix(ending), 48_000) as player:
        for key, slack in ((49, 0.0), (60, 0.0), (72, 0.0), (40, 1.5), (92, 1.5)):
            levels = [level(player.play(key, velocity, 1.0), 48_000) for velocity in range(1, 128)]
            steps = np.diff(levels)
            low, high = steps.min(), steps.max()
            print(f"{slug}{ending}, key {key}: {low:+.2f} to {high:+.2f} dB from each velocity to the next")
            assert -0.05 - slack <= low and high <= 1.0 + slack, (key, low, high)


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
