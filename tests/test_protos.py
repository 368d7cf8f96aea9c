"""The committed gRPC stubs are what the .proto files give."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from requirements_gate import give_up

PROTOS = Path(__file__).resolve().parent.parent / "protos"
GENERATOR = "1.80.0"
"""grpcio-tools of this version wrote the committed stubs; another one writes others."""


def generated(folder: Path) -> dict[str, str]:
    """The generated files of a protos folder by their path."""
    files = (*folder.rglob("*_pb2.py"), *folder.rglob("*_pb2.pyi"), *folder.rglob("*_pb2_grpc.py"))
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in files}


@pytest.fixture(autouse=True)
def generator() -> None:
    """Gives up where another version is installed, or none."""
    try:
        installed = version("grpcio-tools")
    except PackageNotFoundError:
        installed = "none"
    if installed != GENERATOR:
        give_up(f"needs grpcio-tools {GENERATOR}, found {installed} (pip install grpcio-tools=={GENERATOR})")


def test_generating_the_stubs_anew_changes_nothing(tmp_path: Path) -> None:
    fresh = tmp_path / "protos"
    shutil.copytree(PROTOS, fresh, ignore=shutil.ignore_patterns("*_pb2*", "__pycache__"))
    subprocess.run(
        ["sh", str(fresh / "generate.sh")],
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
        check=True,
    )
    assert generated(fresh) == generated(PROTOS)


def test_make_generates_them_in_a_folder_with_a_blank_in_its_name(tmp_path: Path) -> None:
    """By a make of its own: that of `make test VENV=...` would have it take another interpreter."""
    checkout = tmp_path / "my timbrel"
    fresh = checkout / "protos"
    shutil.copytree(PROTOS, fresh, ignore=shutil.ignore_patterns("*_pb2*", "__pycache__"))
    interpreter = checkout / ".venv/bin/python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n", encoding="utf-8")
    interpreter.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(PROTOS.parent / name, checkout)
    (checkout / ".venv/.created").touch()
    (checkout / ".venv/.installed").touch()
    path = "/usr/bin:/bin"
    if shutil.which("make", path=path) is None:
        give_up("needs make (apt-get install make)")
    subprocess.run(["make", "--silent", "protos"], cwd=checkout, env={"PATH": path}, check=True)
    assert generated(fresh) == generated(PROTOS)
