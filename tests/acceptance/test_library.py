"""A library of the bundle that ships: rendered, checked, and played by sfizz."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from requirements_gate import require_module

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
