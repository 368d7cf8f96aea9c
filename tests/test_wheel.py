"""The distribution as a user gets it: the wheel, built from the sdist, in an empty environment elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from requirements_gate import require_module

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.slow
PACKAGES = (
    "timbrel",
    "timbrel_bundle",
    "timbrel_export",
    "timbrel_posttraining",
    "timbrel_protos",
    "timbrel_server",
    "timbrel_training",
)


def run(command: list[str | Path], folder: Path, home: Path | None = None) -> str:
    """What a command printed; fails the test with both its streams where it failed."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "TIMBREL_SERVER"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    if home is not None:
        environment |= {"XDG_CACHE_HOME": str(home / "cache"), "XDG_CONFIG_HOME": str(home / "config")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} gave {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel file, built from the sdist, so that the sdist is known to be complete."""
    require_module("build", "dev")
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT], folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def members(wheel: Path) -> dict[str, zipfile.ZipInfo]:
    """The wheel's files by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: info for info in archive.infolist()}


def test_the_wheel_holds_the_packages_and_nothing_else(members: dict[str, zipfile.ZipInfo]) -> None:
    tops = {name.partition("/")[0] for name in members}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    for package in PACKAGES:
        assert f"{package}/py.typed" in members
    assert "timbrel_training/configs/cpu.toml" in members


def test_the_wheel_carries_the_default_bundle(members: dict[str, zipfile.ZipInfo]) -> None:
    default = "timbrel_server/bundles/default"
    assert f"{default}/manifest.json" in members
    size = sum(info.file_size for name, info in members.items() if name.startswith(f"{default}/"))
    assert size <= 60_000_000, f"the default bundle has {size / 1e6:.1f} MB, 60 at most"


def test_the_base_brings_no_runtime_and_no_torch(wheel: Path, members: dict[str, zipfile.ZipInfo]) -> None:
    (name,) = (name for name in members if name.endswith(".dist-info/METADATA"))
    with zipfile.ZipFile(wheel) as archive:
        metadata = message_from_string(archive.read(name).decode())
    base = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert base
    unwanted = ("onnxruntime", "torch", "swift-f0", "grpcio-health", "grpcio-reflection")
    assert [line for line in base if line.startswith(unwanted)] == []


def test_the_demo_runs_from_the_wheel_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    venv.create(tmp_path / "venv", with_pip=False)  # pip installs from outside, which spares installing pip
    python = tmp_path / "venv" / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    requirement = f"timbrel[cpu,server,demo] @ {wheel.as_uri()}"
    pip = [sys.executable, "-m", "pip", "--python", python]
    run([*pip, "install", "--quiet", "--no-compile", "--constraint", constraints, requirement], elsewhere)

    run([python.with_name("timbrel"), "demo", "--out", "demo"], elsewhere, home=tmp_path)

    notes = json.loads((elsewhere / "demo" / "notes.json").read_text(encoding="utf-8"))
    assert len(notes) >= 12
    fields = {"file", "timbre", "pitch", "velocity", "seconds", "seed", "pitch_measured"}
    assert all(fields <= note.keys() for note in notes)
    assert len(list((elsewhere / "demo").glob("*.wav"))) >= 12
    assert list((elsewhere / "demo").glob("*.png"))
    where = "import timbrel, timbrel_server; print(timbrel.__file__, timbrel_server.__file__)"
    assert str(ROOT) not in run([python, "-c", where], elsewhere)
