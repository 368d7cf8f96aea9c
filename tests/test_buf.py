"""The .proto files as `buf` sees them: their style, what was promised, and the service that they describe."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.rpc import error_details_pb2
from requirements_gate import give_up

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PROMISED = PROTOS / "timbrel.binpb"
SERVICE = "timbrel.v1.Synthesizer"


def buf(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs buf; the test ends here where it is not installed."""
    beside = Path(sys.executable).with_name("buf")
    program = str(beside) if beside.exists() else shutil.which("buf")
    if program is None:
        give_up("needs buf (pip install buf-bin)")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, **options)


def image(protos: Path, folder: Path) -> Path:
    """A descriptor image of the .proto files in a folder."""
    out = folder / "image.binpb"
    subprocess.run(
        ["sh", str(protos / "image.sh"), str(out)],
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
        check=True,
        timeout=120,
    )
    return out


def changed(tmp_path: Path, old: str, new: str) -> Path:
    """An image of the .proto files with this text replaced."""
    protos = tmp_path / "protos"
    shutil.copytree(PROTOS, protos, ignore=shutil.ignore_patterns("timbrel_protos"))
    file = protos / "timbrel" / "v1" / "synthesizer.proto"
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), encoding="utf-8")
    return image(protos, tmp_path)


def lint(path: Path) -> subprocess.CompletedProcess[str]:
    config = str(PROTOS / "buf.yaml")
    return buf("lint", str(path), "--config", config, "--path", "timbrel", "--path", "inference")


def breaking(path: Path) -> subprocess.CompletedProcess[str]:
    config = str(PROTOS / "buf.yaml")
    return buf("breaking", str(path), "--against", str(PROMISED), "--config", config)


def test_lint_finds_nothing(tmp_path: Path) -> None:
    done = lint(image(PROTOS, tmp_path))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_lint_would_find_an_undocumented_field(tmp_path: Path) -> None:
    text = (
        "  // MIDI velocity, within the bundle's velocity_min..velocity_max (1..127 at most). Default 100.\n"
        "  optional uint32 velocity = 3;"
    )
    done = lint(changed(tmp_path, text, "  optional uint32 velocity = 3;"))
    assert done.returncode != 0
    assert '"velocity" should have a non-empty comment' in done.stdout


def test_what_was_promised_still_holds(tmp_path: Path) -> None:
    """A change that fails here breaks callers. Where it is meant all the same: `sh protos/image.sh
    protos/timbrel.binpb`."""
    done = breaking(image(PROTOS, tmp_path))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("optional uint32 velocity = 3;", "optional uint32 velocity = 33;"),
        ("optional double seconds = 4;", "optional float seconds = 4;"),
        ("  rpc GetTimbreMap(GetTimbreMapRequest) returns (GetTimbreMapResponse);\n", ""),
    ],
)
def test_a_broken_promise_would_be_found(tmp_path: Path, old: str, new: str) -> None:
    done = breaking(changed(tmp_path, old, new))
    assert done.returncode == 100, done.stderr
    assert "synthesizer.proto" in done.stdout


def curl(address: str, method: str, *messages: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """`buf curl` of a method that it knows by the server's reflection alone."""
    return buf(
        "curl",
        "--protocol",
        "grpc",
        "--http2-prior-knowledge",
        f"http://{address}/{SERVICE}/{method}",
        "--data",
        "@-",
        input="\n".join(json.dumps(message) for message in messages),
    )


def parsed(output: str) -> list[dict[str, Any]]:
    """Each JSON object of a transcript."""
    decoder, objects = json.JSONDecoder(), []
    rest = output.strip()
    while rest:
        found, end = decoder.raw_decode(rest)
        objects.append(found)
        rest = rest[end:].strip()
    return objects


NOTE = {"timbre": {"x": 0.1, "y": 0.2}, "pitch": 60, "seconds": 0.3, "seed": "1"}


class TestCurl:
    def test_a_note_is_streamed(self, server_address: str) -> None:
        done = curl(server_address, "Generate", NOTE)
        assert done.returncode == 0, done.stderr
        replies = parsed(done.stdout)
        assert replies[0]["header"]["seed"] == "1"
        assert replies[-1]["finishReason"] in ("FINISH_REASON_EOS", "FINISH_REASON_CAP")
        n_frames = sum(reply.get("codes", {}).get("nFrames", 0) for reply in replies)
        data = b"".join(base64.b64decode(reply.get("codes", {}).get("data", "")) for reply in replies)
        assert n_frames > 10 and len(data) == 2 * 3 * n_frames

    def test_a_batch_answers_each_item(self, server_address: str) -> None:
        items = [
            {"id": "1", "note": NOTE},
            {"id": "2", "note": {**NOTE, "pitch": 5}},
            {"id": "3", "note": NOTE},
        ]
        done = curl(server_address, "GenerateBatch", *items)
        assert done.returncode == 0, done.stderr
        by_id = {response["id"]: response for response in parsed(done.stdout)}
        assert sorted(by_id) == ["1", "2", "3"]
        assert by_id["2"]["status"]["code"] == 3
        assert by_id["1"]["note"] == by_id["3"]["note"] and "status" in by_id["1"]

    def test_the_model_is_described(self, server_address: str) -> None:
        done = curl(server_address, "GetModel", {})
        assert done.returncode == 0, done.stderr
        (reply,) = parsed(done.stdout)
        assert reply["manifest"]["name"] == "tiny"
        assert reply["engine"]["maxInFlight"] == 64

    def test_an_error_names_its_fields(self, server_address: str) -> None:
        done = curl(server_address, "Generate", {**NOTE, "pitch": 5, "seconds": -1})
        assert done.returncode != 0
        (error,) = parsed(done.stderr)
        assert error["code"] == "invalid_argument"
        assert error["message"].startswith("pitch: 5 is out of range")
        (detail,) = error["details"]
        assert detail["type"] == "google.rpc.BadRequest"
        # base64 without its padding
        bad = error_details_pb2.BadRequest.FromString(base64.b64decode(detail["value"] + "=="))
        assert [violation.field for violation in bad.field_violations] == ["pitch", "seconds"]
