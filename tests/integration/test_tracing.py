"""Traces, as a collector gets them."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from requirements_gate import require_module
from server_process import ServerProcess, hasty
from waiting import wait_for

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server.config import ServerConfig
from timbrel_server.observability.telemetry import Telemetry

if TYPE_CHECKING:
    from trace_collector import Received, TraceCollector

PATIENCE_SECONDS = 60.0
SERVICE = "timbrel.v1.Synthesizer"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"

OF_A_CALL = {"rpc.system.name", "rpc.method", "rpc.response.status_code"}
OF_NOTES = {"timbrel.notes", "timbrel.frames", "timbrel.queue_wait_seconds", "timbrel.first_chunk_seconds"}

StartServer = Callable[..., ServerProcess]


@pytest.fixture(autouse=True)
def extra() -> None:
    require_module("opentelemetry", "telemetry")


@pytest.fixture
def collector(extra: None) -> Iterator[TraceCollector]:
    from trace_collector import TraceCollector

    with TraceCollector() as running:
        yield running


def note(**fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(**{"timbre": pb.Timbre(), "pitch": 60, "seconds": 2.4, "seed": 1, **fields})


def outcome(call: Any) -> grpc.StatusCode:
    with contextlib.suppress(grpc.RpcError):
        list(call)
    code: grpc.StatusCode = call.code()
    return code


def of_method(method: str, code: str = "OK") -> Callable[[Received], bool]:
    def wanted(each: Received) -> bool:
        return each.span.name == f"{SERVICE}/{method}" and each.attributes["rpc.response.status_code"] == code

    return wanted


def test_every_call_is_a_span_that_says_how_it_went_and_not_who_asked_for_what(
    start_server: StartServer, collector: TraceCollector
) -> None:
    secrets = ("a-secret-token", "an-id-of-mine", "a-word-of-mine", "a-bundle-of-mine")
    server = start_server(
        *("--otlp-endpoint", collector.endpoint, "--log-format", "json", "--slots", "1"),
        TIMBREL_TOKEN=secrets[0],
        OTEL_BSP_SCHEDULE_DELAY="50",
    )
    own = (("authorization", f"Bearer {secrets[0]}"), ("x-request-id", secrets[1]))
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        traced = (*own, ("traceparent", TRACEPARENT), ("x-word", secrets[2]))
        for metadata in (traced, own, own):
            assert outcome(stub.Generate(note(), metadata=metadata)) is grpc.StatusCode.OK
        items = [pb.GenerateBatchRequest(id=n, note=note(seed=n + 1)) for n in range(3)]
        assert outcome(stub.GenerateBatch(iter(items), metadata=own)) is grpc.StatusCode.OK
        wrong = stub.Generate(note(pitch=999), metadata=own)
        assert outcome(wrong) is grpc.StatusCode.INVALID_ARGUMENT
        unknown = stub.Generate(note(bundle=secrets[3]), metadata=own)
        assert outcome(unknown) is grpc.StatusCode.NOT_FOUND
        assert outcome(stub.Generate(note())) is grpc.StatusCode.UNAUTHENTICATED
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())

    single = collector.wait_for(lambda each: each.trace_id == TRACE)
    assert of_method("Generate")(single) and single.span.parent_span_id.hex() == SPAN
    assert single.service == "timbrel"
    assert single.is_servers
    told = single.attributes
    assert set(told) == OF_A_CALL | OF_NOTES
    assert (told["rpc.system.name"], told["rpc.method"]) == ("grpc", f"{SERVICE}/Generate")
    assert (told["timbrel.notes"], told["timbrel.frames"]) == (1, 94)
    seconds = (single.span.end_time_unix_nano - single.span.start_time_unix_nano) / 1e9
    assert 0 < told["timbrel.queue_wait_seconds"] < told["timbrel.first_chunk_seconds"] < seconds

    several = collector.wait_for(of_method("GenerateBatch"))
    assert several.trace_id != TRACE
    assert not several.span.parent_span_id
    assert (several.attributes["timbrel.notes"], several.attributes["timbrel.frames"]) == (3, 3 * 94)

    for code in ("INVALID_ARGUMENT", "NOT_FOUND", "UNAUTHENTICATED"):
        refused = collector.wait_for(of_method("Generate", code))
        assert set(refused.attributes) == OF_A_CALL
        assert not refused.is_fault

    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert len(collector.received) == 7, "health checks are no part of any trace"
    # The third of several waited for two others: there is one slot. Of three by themselves one was in luck.
    singles = filter(of_method("Generate"), collector.received)
    waited = [each.attributes["timbrel.queue_wait_seconds"] for each in singles]
    assert len(waited) == 3 and several.attributes["timbrel.queue_wait_seconds"] > min(waited)
    everything = b"".join(each.span.SerializeToString() for each in collector.received)
    assert not [word for word in (*secrets, "127.0.0.1") if word.encode() in everything]

    entries = [json.loads(line) for line in server.log().splitlines()]
    [logged] = [entry for entry in entries if entry.get("trace_id") == TRACE]
    assert logged["request_id"] == secrets[1]
    assert logged["span_id"] == single.span.span_id.hex()


def test_otel_variables_ask_for_traces_too_and_the_last_ones_are_sent(
    start_server: StartServer, collector: TraceCollector
) -> None:
    server = start_server(
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
        OTEL_SERVICE_NAME="a-name-of-its-own",
        OTEL_BSP_SCHEDULE_DELAY="3600000",
    )
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        stub.GetModel(pb.GetModelRequest(), timeout=PATIENCE_SECONDS)
    assert collector.received == []
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    found = collector.wait_for(of_method("GetModel"))
    assert found.service == "a-name-of-its-own"
    assert set(found.attributes) == OF_A_CALL
    [line] = [line for line in server.log().splitlines() if "GetModel OK" in line]
    assert line.endswith(f" {found.trace_id}]")


def test_a_collector_that_is_away_holds_up_nothing(start_server: StartServer) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        program = hasty("observability.tracing.LAST_WORDS_SECONDS = 0.5")
        options = ("--otlp-endpoint", endpoint)
        server = start_server(*options, program=program, OTEL_BSP_SCHEDULE_DELAY="50")
        with grpc.insecure_channel(server.address) as channel:
            stub: Any = pb_grpc.SynthesizerStub(channel)
            calls = [stub.Generate(note(), timeout=PATIENCE_SECONDS) for _ in range(8)]
            assert {outcome(call) for call in calls} == {grpc.StatusCode.OK}
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert "Traceback" not in server.log()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_PROPAGATORS", "no-such-propagator"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "lzw"),
    ],
)
def test_otel_variables_that_make_no_sense_are_told_and_no_error(
    start_server: StartServer, variable: str, value: str
) -> None:
    collector = "http://127.0.0.1:1"
    server = start_server(**{"OTEL_EXPORTER_OTLP_ENDPOINT": collector, variable: value})
    told = "no traces: OpenTelemetry does not take its OTEL_* variables"
    wait_for(
        lambda: told in server.log(), "the log to tell", seen=server.log
    )  # it comes by a thread of its own
    assert "Traceback" not in server.log()


def test_nothing_is_traced_unless_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    collector = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    asked = ServerConfig(otlp_endpoint="http://127.0.0.1:1")
    assert Telemetry(ServerConfig(), {}).tracer is None
    assert Telemetry(ServerConfig(), {**collector, "OTEL_SDK_DISABLED": "true"}).tracer is None
    assert not caplog.text
    assert Telemetry(asked, {"OTEL_TRACES_EXPORTER": "none"}).tracer is None
    assert "otlp_endpoint" in caplog.text
    assert Telemetry(ServerConfig(), {**collector, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}).tracer is None
    assert "http/json" in caplog.text
    for config, environment in ((asked, {}), (ServerConfig(), collector)):
        telemetry = Telemetry(config, environment)
        assert telemetry.tracer is not None
        telemetry.close()
