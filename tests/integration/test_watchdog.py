"""An engine that dies or stalls: its requests fail, health turns, the process ends with status 1."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from faulty_server import DIES, LASTS, PROGRAM, STALLS
from grpc_health.v1 import health_pb2, health_pb2_grpc
from server_process import ServerProcess
from waiting import wait_for

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

PATIENCE_SECONDS = 60.0
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVING = health_pb2.HealthCheckResponse.SERVING

StartServer = Callable[..., ServerProcess]


def note(seed: int, bundle: str = "", seconds: float = 2.4) -> pb.GenerateRequest:
    return pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=seconds, seed=seed, bundle=bundle)


def health(channel: grpc.Channel, service: str = "") -> int:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    return int(stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE_SECONDS).status)


def code_of(call: Any) -> grpc.StatusCode:
    with contextlib.suppress(grpc.RpcError):
        list(call)
    code: grpc.StatusCode = call.code()
    return code


@pytest.mark.parametrize("seed", [DIES, STALLS])
def test_an_engine_that_fails(start_server: StartServer, seed: int) -> None:
    server = start_server("--slots", "2", "--stall", "4", "--failure-grace", "3600", program=PROGRAM)
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        assert code_of(stub.Generate(note(1), timeout=PATIENCE_SECONDS)) is grpc.StatusCode.OK
        assert health(channel, "liveness") == SERVING
        fatal = stub.Generate(note(seed), timeout=PATIENCE_SECONDS)
        waiting = [stub.Generate(note(2), timeout=PATIENCE_SECONDS) for _ in range(8)]
        assert {code_of(call) for call in (fatal, *waiting)} == {grpc.StatusCode.UNAVAILABLE}
        for service in ("", "readiness", "liveness", "timbrel.v1.Synthesizer"):
            wait_for(lambda name=service: health(channel, name) == NOT_SERVING, "health to turn")  # type: ignore[misc]
        assert code_of(stub.Generate(note(3), timeout=PATIENCE_SECONDS)) is grpc.StatusCode.UNAVAILABLE
        server.signal(signal.SIGTERM)
    assert server.wait() == 1
    assert "has failed" in server.log()


def test_the_other_bundles_notes_are_finished(start_server: StartServer, tiny_bundle: Path) -> None:
    options = ("--bundle", f"other={tiny_bundle}", "--slots", "2", "--failure-grace", "0.2")
    server = start_server(*options, program=PROGRAM)
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        others = [stub.Generate(note(1, "other"), timeout=PATIENCE_SECONDS) for _ in range(12)]
        for call in others:
            call.initial_metadata()
        assert code_of(stub.Generate(note(DIES), timeout=PATIENCE_SECONDS)) is grpc.StatusCode.UNAVAILABLE
        assert {code_of(call) for call in others} == {grpc.StatusCode.OK}
    assert server.wait() == 1


def test_a_second_signal_ends_it_at_once_though_a_step_never_ends(start_server: StartServer) -> None:
    server = start_server("--stall", "3600", "--grace", "3600", program=PROGRAM)
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        call = stub.Generate(note(STALLS), timeout=PATIENCE_SECONDS)  # dropped, it would be cancelled
        call.initial_metadata()
        server.signal(signal.SIGTERM)
        while health(channel) == SERVING:
            pass
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_a_long_step_is_no_stall(start_server: StartServer) -> None:
    server = start_server("--stall", "5", program=PROGRAM)
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        assert code_of(stub.Generate(note(LASTS), timeout=PATIENCE_SECONDS)) is grpc.StatusCode.OK
        time.sleep(0.5)
        assert health(channel) == SERVING
