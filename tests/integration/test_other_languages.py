"""The .proto files as they lie there, called from Node, Go and C++ by the lines of their README."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
import soundfile
from google.protobuf.descriptor import FileDescriptor
from requirements_gate import give_up, require_system

from timbrel_protos.inference import grpc_service_pb2
from timbrel_protos.timbrel.v1 import synthesizer_pb2

ROOT = Path(__file__).resolve().parents[2]
PROTOS = ROOT / "protos"
PACKAGES = ("@grpc/grpc-js@1.14.7", "@grpc/proto-loader@0.8.1")
PATIENCE_SECONDS = 300.0
NPM_SECONDS = 250.0
"""npm itself waits for minutes where no registry answers."""
WINDOWS_MACROS = {"cdecl", "far", "hyper", "interface", "near", "pascal", "small"}
"""Names in small letters that windows.h takes away, and that protobuf's C++ headers do not guard."""


@pytest.fixture(scope="module")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what grpc-js needs; the test ends here where that cannot be installed."""
    folder = tmp_path_factory.mktemp("node")
    if shutil.which("node") is None or shutil.which("npm") is None:
        give_up("needs node and npm")
    npm = [
        "npm",
        "install",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--prefix",
        str(folder),
        *PACKAGES,
    ]
    needed = f"needs {' and '.join(PACKAGES)}, and npm cannot get them"
    try:
        done = subprocess.run(npm, capture_output=True, text=True, timeout=NPM_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        give_up(f"{needed} within {NPM_SECONDS:g} s")
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["npm failed"]
        give_up(f"{needed}: {reason[0]}")
    return folder


def run(words: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Runs a command that has nothing to complain about."""
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def lines_for_node(server_address: str) -> str:
    """Returns the script of the README."""
    readme = (PROTOS / "README.md").read_text(encoding="utf-8")
    found = re.search(r"\n(    const grpc = require.*?\n)\n", readme, re.DOTALL)
    assert found is not None
    script = found[1].replace("localhost:50051", server_address)
    return script.replace('["."', f'["{PROTOS}"').replace('"third_party"', f'"{PROTOS / "third_party"}"')


def test_the_lines_for_node_write_a_note(server_address: str, node_folder: Path) -> None:
    run(["node", "-e", lines_for_node(server_address)], node_folder, {})
    info = soundfile.info(node_folder / "note.wav")
    assert info.frames > 0.5 * info.samplerate


def test_the_lines_for_node_tell_why_a_call_fails(server_address: str, node_folder: Path) -> None:
    (node_folder / "note.wav").unlink(missing_ok=True)
    script = lines_for_node(server_address).replace("pitch: 60", "pitch: 60, bundle_hash: 'other'")
    assert "bundle_hash 'other' was expected" in told_by_node(script, node_folder)
    told = told_by_node(lines_for_node(server_address).replace("pitch: 60", "pitch: 200"), node_folder)
    assert "INVALID_ARGUMENT: pitch: 200 is out of range" in told
    assert "field: 'pitch'" in told
    assert not (node_folder / "note.wav").exists()


def told_by_node(script: str, folder: Path) -> str:
    """Runs a script; returns what it has to complain about."""
    done = subprocess.run(
        ["node", "-e", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return done.stderr


@pytest.mark.slow
def test_the_lines_for_go_write_a_note(server_address: str, tmp_path: Path) -> None:
    """With Debian's packages: nothing is fetched."""
    require_system("go")
    readme = (PROTOS / "README.md").read_text(encoding="utf-8")
    command = re.search(r"\n    (protoc .*?)\n\n", readme, re.DOTALL)
    program = re.search(r"\n(    package main\n.*?\n    }\n)\n", readme, re.DOTALL)
    assert command is not None and program is not None
    module = tmp_path / "src" / "note"
    shutil.copytree(PROTOS, module)
    source = textwrap.dedent(program[1]).replace("localhost:50051", server_address)
    (module / "note.go").write_text(source, encoding="utf-8")
    workspace = {"GO111MODULE": "off", "GOPATH": f"{tmp_path}:/usr/share/gocode", "GOTOOLCHAIN": "local"}
    environment = {**workspace, "GOCACHE": str(tmp_path / "cache")}
    run(["sh", "-ec", command[1]], module, environment)
    run(["go", "run", "."], module, environment)
    info = soundfile.info(module / "note.wav")
    assert info.frames > 0.5 * info.samplerate


def test_the_lines_for_cpp_free_each_name_that_windows_takes() -> None:
    """grpc++ includes windows.h itself: a field of such a name cannot be compiled there."""

    def names(file: FileDescriptor) -> set[str]:
        return {field for message in file.message_types_by_name.values() for field in message.fields_by_name}

    taken = WINDOWS_MACROS & (names(synthesizer_pb2.DESCRIPTOR) | names(grpc_service_pb2.DESCRIPTOR))
    readme = (PROTOS / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\n    #undef (\w+)", readme)) == taken


@pytest.mark.slow
def test_the_lines_for_cpp_write_a_note_or_tell_why_not(server_address: str, tmp_path: Path) -> None:
    """As on Windows, whose macro is there once grpc++ is."""
    require_system("c++")
    readme = (PROTOS / "README.md").read_text(encoding="utf-8")
    command = re.search(r"\n    (protoc [^\n]*--cpp_out.*?)\n\n", readme, re.DOTALL)
    program = re.search(r"\n(    #include .*?\n    }\n)\n", readme, re.DOTALL)
    assert command is not None and program is not None
    folder = tmp_path / "protos"
    shutil.copytree(PROTOS, folder)
    source = textwrap.dedent(program[1]).replace("localhost:50051", server_address)
    source = source.replace("#undef near", "#define near\n#undef near")
    source = source.replace("pitch(60)", 'pitch(std::stoi(std::getenv("PITCH")))')
    (folder / "note.cc").write_text(source, encoding="utf-8")
    run(["sh", "-ec", command[1]], folder, {"PITCH": "60"})
    info = soundfile.info(folder / "note.wav")
    assert info.frames > 0.5 * info.samplerate
    environment = {**os.environ, "PITCH": "200"}
    done = subprocess.run(
        ["./note"], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3
    assert 'field: "pitch"' in done.stderr
    assert "pitch: 200 is out of range" in done.stderr
