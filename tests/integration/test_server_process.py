"""A server as a process: its one line, its signals, its parent, its errors."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import grpc
import pytest
import without_posix
from faulty_server import LASTS, PROGRAM
from grpc_health.v1 import health_pb2, health_pb2_grpc
from server_process import ServerProcess, run_server, server_command

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

PATIENCE_SECONDS = 60.0
TOKEN = "0123456789abcdef0123456789abcdef"
READY = re.compile(r"timbrel ready on 127\.0\.0\.1:\d+ bundle=tiny provider=\w+ExecutionProvider\n")

StartServer = Callable[..., ServerProcess]


def request(seconds: float, seed: int = 1) -> pb.GenerateRequest:
    return pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=seconds, seed=seed)


def accepted_calls(stub: Any, n: int, seed: int = 1) -> list[Any]:
    """Long notes that the server has accepted, if not yet begun."""
    calls = [stub.Generate(request(seconds=2.4, seed=seed), timeout=PATIENCE_SECONDS) for _ in range(n)]
    for call in calls:
        call.initial_metadata()  # comes once a request is accepted
    return calls


def ends_well(call: Any) -> bool:
    try:
        return bool(list(call))
    except grpc.RpcError:
        return False


def n_frames(call: Any) -> int:
    return sum(reply.codes.n_frames for reply in call)


def assert_one_clear_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("timbrel: ")
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, without_posix.SIGBREAK])
def test_where_there_is_no_posix_a_server_serves_and_ends_in_order(
    start_server: StartServer, tmp_path: Path, number: int
) -> None:
    """As on Windows, whose event loop takes no signals."""
    (tmp_path / "tokens").write_text(f"me:{TOKEN}\n")
    server = start_server(
        "--token-file", str(tmp_path / "tokens"), program=(without_posix.__file__, "timbrel_server")
    )
    metadata = (("authorization", f"Bearer {TOKEN}"),)
    with grpc.insecure_channel(server.address) as channel:
        stub = pb_grpc.SynthesizerStub(channel)
        call = stub.Generate(request(seconds=0.2), timeout=PATIENCE_SECONDS, metadata=metadata)
        assert n_frames(call) > 0
        asked = pb.GetFileRequest(name="codec.safetensors", offset=8)
        pieces = stub.GetFile(asked, timeout=PATIENCE_SECONDS, metadata=metadata)
        assert sum(len(piece.data) for piece in pieces) > 0
        server.signal(number)
        assert server.wait() == 0
    assert "Traceback" not in server.log() and "Error" not in server.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_accepted_notes_finish(start_server: StartServer, number: int) -> None:
    server = start_server("--slots", "2")
    with grpc.insecure_channel(server.address) as channel:
        calls = accepted_calls(pb_grpc.SynthesizerStub(channel), 12)
        server.signal(number)
        assert [n_frames(call) for call in calls] == [94] * 12
    assert server.wait() == 0
    assert READY.fullmatch(server.ready_line + server.rest_of_output())
    assert "Traceback" not in server.log()


def test_a_second_signal_ends_it_at_once(start_server: StartServer) -> None:
    server = start_server("--slots", "1", "--grace", "3600", program=PROGRAM)
    with grpc.insecure_channel(server.address) as channel:
        calls = accepted_calls(pb_grpc.SynthesizerStub(channel), 30, seed=LASTS)  # half a minute's work
        server.signal(signal.SIGTERM)
        while health_status(channel) == health_pb2.HealthCheckResponse.SERVING:
            pass
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert not all(map(ends_well, calls))


def health_status(channel: grpc.Channel) -> int | None:
    """None where the server answers no more."""
    try:
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5.0)
    except grpc.RpcError:
        return None
    status: int = reply.status
    return status


def test_it_ends_with_its_parent(start_server: StartServer) -> None:
    server = start_server("--exit-with-parent", "--grace", "3600")
    assert server.process.stdin is not None
    with grpc.insecure_channel(server.address) as channel:
        accepted_calls(pb_grpc.SynthesizerStub(channel), 50)
        server.process.stdin.close()
        assert server.wait() == 0


def test_a_closed_standard_input_is_otherwise_no_reason_to_end(start_server: StartServer) -> None:
    server = start_server()
    assert server.process.stdin is not None
    server.process.stdin.close()
    with grpc.insecure_channel(server.address) as channel:
        assert n_frames(accepted_calls(pb_grpc.SynthesizerStub(channel), 1)[0]) == 94


def test_a_token_is_asked_for(start_server: StartServer) -> None:
    server = start_server(TIMBREL_TOKEN="right-one")
    with grpc.insecure_channel(server.address) as channel:
        stub = pb_grpc.SynthesizerStub(channel)
        for metadata in ((), (("authorization", "Bearer wrong"),), (("authorization", "right-one"),)):
            for call in (
                lambda m: stub.GetModel(pb.GetModelRequest(), metadata=m, timeout=PATIENCE_SECONDS),
                lambda m: list(stub.Generate(request(0.5), metadata=m, timeout=PATIENCE_SECONDS)),
            ):
                with pytest.raises(grpc.RpcError) as caught:
                    call(metadata)
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        right = (("authorization", "Bearer right-one"),)
        assert stub.GetModel(pb.GetModelRequest(), metadata=right, timeout=PATIENCE_SECONDS).manifest.name
        assert health_status(channel) == health_pb2.HealthCheckResponse.SERVING
    assert "right" not in server.log()


def test_a_port_in_use(tiny_bundle: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert_one_clear_line(run_server("--bundle", str(tiny_bundle), "--port", port), port, "in use")


def test_a_host_of_another_machine(tiny_bundle: Path) -> None:
    options = ("--host", "203.0.113.1", "--allow-anonymous")
    done = run_server("--bundle", str(tiny_bundle), "--port", "0", *options)
    assert_one_clear_line(done, "203.0.113.1", "cannot listen")


def test_an_unknown_provider(tiny_bundle: Path) -> None:
    done = run_server("--bundle", str(tiny_bundle), "--port", "0", "--provider", "tpu")
    assert_one_clear_line(done, "provider", "tpu")


def test_several_devices_where_there_is_one(tiny_bundle: Path) -> None:
    options = ("--bundle", str(tiny_bundle), "--port", "0", "--provider", "cpu")
    assert_one_clear_line(run_server(*options, "--device", "0", "--device", "1"), "CPU is one device", "cuda")


def test_options_out_of_range(tiny_bundle: Path) -> None:
    assert_one_clear_line(run_server("--port", "many"), "port", "many")
    assert_one_clear_line(run_server("--bundle", str(tiny_bundle), "--slots", "0"), "slots")


def test_an_error_does_not_go_to_the_standard_output_where_the_other_is_closed() -> None:
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *server_command("--slots", "many")]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=PATIENCE_SECONDS, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def test_an_unknown_option() -> None:
    assert_one_clear_line(run_server("--slot", "3"), "--slot", "did you mean --slots?")


def test_no_bundle(tmp_path: Path) -> None:
    done = run_server("--bundle", str(tmp_path / "none"), "--port", "0", is_forked=False)
    assert_one_clear_line(done, "none")
    assert_one_clear_line(run_server("--bundle", str(tmp_path), "--port", "0"), "manifest.json")


@pytest.mark.parametrize("damage", ["missing", "truncated", "altered"])
@pytest.mark.parametrize("name", ["model.safetensors", "codec_decoder.onnx", "timbre_map.json"])
def test_a_damaged_bundle(tiny_bundle: Path, tmp_path: Path, name: str, damage: str) -> None:
    copy = copytree(tiny_bundle, tmp_path / "bundle")
    file = copy / name
    content = bytearray(file.read_bytes())
    match damage:
        case "missing":
            file.unlink()
        case "truncated":
            file.write_bytes(content[: len(content) // 2])
        case "altered":
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
    assert_one_clear_line(run_server("--bundle", str(copy), "--port", "0"), name)


@pytest.mark.parametrize("change", [{"format_version": 99}, {"name": 7}, {"model": None}])
def test_a_damaged_manifest(tiny_bundle: Path, tmp_path: Path, change: dict[str, object]) -> None:
    copy = copytree(tiny_bundle, tmp_path / "bundle")
    manifest = copy / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **change}))
    assert_one_clear_line(run_server("--bundle", str(copy), "--port", "0"), "manifest.json")


def test_an_unreadable_token_file(tiny_bundle: Path, tmp_path: Path) -> None:
    done = run_server("--bundle", str(tiny_bundle), "--port", "0", "--token-file", str(tmp_path / "token"))
    assert_one_clear_line(done, "token")
