"""SIGTERM: what was accepted is finished, what comes later is refused."""

from __future__ import annotations

import contextlib
import re
import signal
from collections import Counter
from collections.abc import Callable
from queue import Queue
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2
from hostile_floods import FloodPeer
from hostile_peer import message
from server_process import ServerProcess

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

PATIENCE_SECONDS = 60.0
N_STREAMS = 32

StartServer = Callable[..., ServerProcess]


def note(seed: int) -> pb.GenerateRequest:
    return pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=2.4, seed=seed)


@pytest.mark.parametrize("n_slots", [32, 4])
def test_every_stream_is_finished_and_no_new_one_begun(start_server: StartServer, n_slots: int) -> None:
    server = start_server("--slots", str(n_slots))
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        streams = [stub.Generate(note(seed), timeout=PATIENCE_SECONDS) for seed in range(N_STREAMS)]
        for stream in streams:
            stream.initial_metadata()
        server.signal(signal.SIGTERM)
        later = []
        # The signal is on its way; a call that comes in just as the server stops is cancelled by gRPC itself.
        while not later or later[-1].code() in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED):
            later.append(stub.Generate(note(99), timeout=PATIENCE_SECONDS))
            list_quietly(later[-1])
        assert later[-1].code() is grpc.StatusCode.UNAVAILABLE
        with grpc.insecure_channel(server.address, (("grpc.use_local_subchannel_pool", 1),)) as fresh:
            new: list[Any] = []
            while not new or new[-1].code() is grpc.StatusCode.CANCELLED:
                new.append(pb_grpc.SynthesizerStub(fresh).Generate(note(99), timeout=PATIENCE_SECONDS))
                list_quietly(new[-1])
            assert new[-1].code() is grpc.StatusCode.UNAVAILABLE
        assert [sum(reply.codes.n_frames for reply in stream) for stream in streams] == [94] * N_STREAMS
        assert {stream.code() for stream in streams} == {grpc.StatusCode.OK}
    assert server.wait() == 0


def test_a_watch_that_nobody_reads_does_not_hold_up_the_end(start_server: StartServer) -> None:
    server = start_server()
    with FloodPeer(server.address, own_window=0) as peer:
        peer.open("/grpc.health.v1.Health/Watch", body=message(b""), end=True)
        peer.pump(seconds=0.5)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_reflection_that_a_tool_keeps_open_does_not_hold_up_the_end(start_server: StartServer) -> None:
    server = start_server("--grace", "3600", "--log-format", "json")
    with grpc.insecure_channel(server.address) as channel:
        ask: Any = channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        asked: Queue[reflection_pb2.ServerReflectionRequest | None] = Queue()
        asked.put(reflection_pb2.ServerReflectionRequest(list_services=""))
        open_call = ask(iter(asked.get, None))
        next(open_call)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        asked.put(None)
        assert open_call.code() is grpc.StatusCode.UNAVAILABLE
    [told] = [entry for entry in server.log_entries() if "code" in entry]
    assert (told["method"], told["code"]) == ("ServerReflectionInfo", "UNAVAILABLE")


def test_a_call_that_never_sends_its_request_does_not_hold_up_the_end(start_server: StartServer) -> None:
    server = start_server("--grace", "3600")
    with grpc.insecure_channel(server.address) as channel:
        ask: Any = channel.stream_stream(
            "/timbrel.v1.Synthesizer/Generate",
            pb.GenerateRequest.SerializeToString,
            pb.GenerateResponse.FromString,
        )
        never: Queue[pb.GenerateRequest | None] = Queue()
        silent = ask(iter(never.get, None))
        pb_grpc.SynthesizerStub(channel).GetModel(pb.GetModelRequest(), timeout=PATIENCE_SECONDS)
        server.signal(signal.SIGTERM)
        assert silent.code() is grpc.StatusCode.UNAVAILABLE
        never.put(None)
        assert server.wait() == 0


def test_calls_that_outlast_the_grace_period_are_logged_with_the_status_that_their_callers_get(
    start_server: StartServer,
) -> None:
    server = start_server("--slots", "1", "--grace", "0", "--log-format", "json")
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        waiting = [stub.Generate(note(seed), timeout=PATIENCE_SECONDS) for seed in range(64)]
        for call in waiting:
            call.initial_metadata()
        server.signal(signal.SIGTERM)
        for call in waiting:
            list_quietly(call)
    assert server.wait() == 0
    calls = [entry for entry in server.log_entries() if entry.get("method") == "Generate"]
    codes = Counter(call["code"] for call in calls)
    told = Counter(call.code().name for call in waiting)
    assert codes.total() == told.total()
    assert codes["OK"] - told["OK"] in (0, 1)  # of the slot's own note the end may be cut off on its way
    assert codes["UNAVAILABLE"] > 0 and codes.keys() <= {"OK", "UNAVAILABLE"} >= told.keys()
    assert re.search(r"no more calls are taken; \d+ are in hand, and have 0 s to end", server.log())
    assert re.search(r"[1-9]\d* calls are cut, for they have not ended in time", server.log())


def list_quietly(call: Any) -> None:
    with contextlib.suppress(grpc.RpcError):
        list(call)
