"""What a server tells of itself: metrics, probes, and its log."""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, RemoteDisconnected
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from bundle_variants import holding
from certificates import Authority
from faulty_server import LASTS, PROGRAM
from prometheus_client.parser import text_string_to_metric_families
from requirements_gate import require_module
from server_process import ServerProcess
from waiting import wait_for

import timbrel
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server import cli, own_version
from timbrel_server.config import ServerConfig
from timbrel_server.observability.metrics import NOTES_BUCKETS
from timbrel_server.observability.telemetry import StatusPage
from timbrel_server.options import options_of

PATIENCE_SECONDS = 60.0
DEPLOY = Path(__file__).resolve().parents[2] / "server" / "deploy"
DASHBOARD = DEPLOY / "grafana" / "timbrel.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
SERVICE = "timbrel.v1.Synthesizer"

StartServer = Callable[..., ServerProcess]


def note(**fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(**{"timbre": pb.Timbre(), "pitch": 60, "seconds": 2.4, "seed": 1, **fields})


def get(server: ServerProcess, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(
            f"http://{server.metrics_address}{path}", timeout=PATIENCE_SECONDS
        ) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(server: ServerProcess) -> dict[str, list[tuple[Mapping[str, str], float]]]:
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in text_string_to_metric_families(get(server, "/metrics")[1]):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def value(server: ServerProcess, name: str, **labels: str) -> float:
    return sum(
        number
        for found, number in samples(server).get(name, [])
        if all(found.get(label) == wanted for label, wanted in labels.items())
    )


def wait_until(server: ServerProcess, condition: Callable[[], bool]) -> None:
    wait_for(condition, "a figure to be reached", seen=lambda: get(server, "/metrics")[1])


def handled(server: ServerProcess, code: str, method: str = "Generate") -> float:
    return value(
        server, "grpc_server_handled_total", grpc_service=SERVICE, grpc_method=method, grpc_code=code
    )


def test_what_is_counted(start_server: StartServer) -> None:
    server = start_server("--slots", "1", "--queue", "2", "--metrics-port", "0", program=PROGRAM)
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        assert len(list(stub.Generate(note(), timeout=PATIENCE_SECONDS))) > 1
        wait_until(server, lambda: handled(server, "OK") == 1)
        assert value(server, "timbrel_frames_total", bundle="tiny") == 94
        wait_until(server, lambda: value(server, "timbrel_notes_finished_total") == 1)
        assert value(server, "timbrel_step_seconds_count") >= 94
        assert value(server, "timbrel_batch_notes_sum") == value(server, "timbrel_batch_notes_count")
        assert value(server, "timbrel_first_chunk_seconds_count") == 1
        assert value(server, "timbrel_queue_wait_seconds_count") == 1
        assert value(server, "timbrel_slots") == 1

        seeds = (LASTS, *range(20))  # the first has the slot for a second
        calls = [stub.Generate(note(seed=seed), timeout=PATIENCE_SECONDS) for seed in seeds]
        outcomes = [outcome(call) for call in calls]
        n_refused = outcomes.count(grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert n_refused > 0
        wait_until(server, lambda: handled(server, "ResourceExhausted") == n_refused)
        wait_until(server, lambda: value(server, "timbrel_notes_refused_total") == n_refused)

        def one_more_is_cancelled() -> bool:
            """Of a second: one of some 20 ms might end while the word that it is not wanted is on its way."""
            gone = stub.Generate(note(seed=LASTS), timeout=PATIENCE_SECONDS)
            gone.initial_metadata()
            gone.cancel()
            return handled(server, "Cancelled") >= 1

        wait_until(server, one_more_is_cancelled)
        wait_until(
            server, lambda: value(server, "timbrel_notes_cancelled_total") == handled(server, "Cancelled")
        )
        assert outcome(stub.Generate(note(pitch=999))) is grpc.StatusCode.INVALID_ARGUMENT
        wait_until(server, lambda: handled(server, "InvalidArgument") == 1)
        # The queue is short, so no deadline is refused at once: this one passes while the note is written.
        late = outcome(stub.Generate(note(), timeout=0.004))  # its steps take three times as long or more
        assert late in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)
        [(info, one)] = samples(server)["timbrel_engine_info"]
        assert one == 1
        assert info["bundle"] == "tiny"
        assert info["precision"] == "fp32"
        assert info["provider"] == "CPUExecutionProvider"
        model = stub.GetModel(pb.GetModelRequest(), timeout=PATIENCE_SECONDS)
        assert info["bundle_hash"] == model.manifest.bundle_hash
        assert info["version"] == model.engine.server_version
        wait_until(server, lambda: value(server, "timbrel_queue_notes") == 0)
        wait_until(server, lambda: value(server, "timbrel_slots_active") == 0)


def test_a_step_of_every_slot_that_there_may_be_is_within_a_bucket() -> None:
    slots = next(option for option in options_of(ServerConfig) if option.field == "n_slots")
    assert slots.within is not None
    assert NOTES_BUCKETS[-1] >= slots.within[1]


def test_a_note_that_moves_is_one_note(start_server: StartServer) -> None:
    server = start_server("--metrics-port", "0")
    moving = note(path=[pb.TimbreAt(seconds=0.1 * n, timbre=pb.Timbre(x=0.03 * n)) for n in range(20)])
    with grpc.insecure_channel(server.address) as channel:
        replies = list(pb_grpc.SynthesizerStub(channel).Generate(moving, timeout=PATIENCE_SECONDS))
        wait_until(server, lambda: handled(server, "OK") == 1)
        wait_until(server, lambda: value(server, "timbrel_slots_active") == 0)
    names = ("accepted", "finished", "cancelled", "failed")
    assert [value(server, f"timbrel_notes_{name}_total") for name in names] == [1, 1, 0, 0]
    for name in ("queue_wait", "first_chunk"):
        assert value(server, f"timbrel_{name}_seconds_count") == 1
    assert value(server, "timbrel_frames_total") == sum(reply.codes.n_frames for reply in replies)


def test_a_key_that_is_held_on_is_in_no_step(
    start_server: StartServer, tiny_bundle: Path, tmp_path: Path
) -> None:
    server = start_server(
        "--metrics-port", "0", bundle=holding(tiny_bundle, tmp_path / "bundle", hold_frames=4)
    )
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        requests: queue.Queue[pb.PlayRequest | None] = queue.Queue()
        call = stub.Play(iter(requests.get, None))
        requests.put(pb.PlayRequest(id=1, note_on=pb.NoteOn(note=note(seconds=60.0))))
        n_frames = 0
        while n_frames < 20:
            n_frames += next(call).reply.codes.n_frames
        before = [value(server, f"timbrel_batch_notes_{part}") for part in ("sum", "count")]
        list(stub.Generate(note(), timeout=PATIENCE_SECONDS))
        wait_until(server, lambda: value(server, "timbrel_slots_active") == 1)  # the key's own
        after = [value(server, f"timbrel_batch_notes_{part}") for part in ("sum", "count")]
        assert after[0] - before[0] == after[1] - before[1] > 0
        call.cancel()
        requests.put(None)


def outcome(call: Any) -> grpc.StatusCode:
    with contextlib.suppress(grpc.RpcError):
        list(call)
    code: grpc.StatusCode = call.code()
    return code


def test_many_notes_that_came_are_no_cancelled_call(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path))
    server = start_server("--metrics-port", "0")
    with timbrel.Client(server.address) as client:
        notes = [timbrel.NoteRequest((0.0, 0.0), seconds=0.1)]
        for _ in range(10):
            assert len(list(client.generate_many(notes))) == 1
        wait_until(server, lambda: handled(server, "OK", "GenerateBatch") == 10)
        long = [timbrel.NoteRequest((0.0, 0.0), seconds=2.4)] * 2000
        assert len(list(zip(client.generate_many(long), range(2), strict=False))) == 2
        wait_until(server, lambda: handled(server, "Cancelled", "GenerateBatch") == 1)  # given up midway


def test_no_caller_is_named(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("ann-the-caller:a-secret-token")
    server = start_server("--token-file", str(tmp_path / "tokens"), "--metrics-port", "0")
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        who = (("authorization", "Bearer a-secret-token"),)
        assert outcome(stub.Generate(note(), metadata=who)) is grpc.StatusCode.OK
        assert outcome(stub.Generate(note())) is grpc.StatusCode.UNAUTHENTICATED
    # The caller hears of its end before it is counted.
    wait_for(lambda: 'grpc_code="Unauthenticated"' in get(server, "/metrics")[1], "the call to be counted")
    text = get(server, "/metrics")[1]
    assert "ann" not in text
    assert "secret" not in text
    assert "127.0.0.1" not in text


def test_probes_tell_life_from_readiness(start_server: StartServer) -> None:
    server = start_server("--slots", "1", "--metrics-port", "0", "--grace", "60", program=PROGRAM)
    assert get(server, "/livez")[0] == get(server, "/readyz")[0] == 200
    assert get(server, "/elsewhere")[0] == 404
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        streams = [stub.Generate(note(seed=LASTS), timeout=PATIENCE_SECONDS) for _ in range(30)]
        for stream in streams:
            stream.initial_metadata()
        server.signal(signal.SIGTERM)
        wait_for(lambda: get(server, "/readyz")[0] == 503, "the server not to be ready")
        assert get(server, "/livez")[0] == 200  # it drains: no reason to kill it
        server.signal(signal.SIGTERM)
    assert server.wait() == 0


def test_the_dashboard_and_the_alerts_ask_for_what_there_is(
    start_server: StartServer, tmp_path: Path
) -> None:
    require_module("yaml", "dev")
    import yaml

    authority = Authority(tmp_path)
    pair = authority.sign("server")
    encrypted = ("--tls-cert", str(pair.certificate), "--tls-key", str(pair.key))
    server = start_server("--metrics-port", "0", *encrypted)
    trusting = grpc.ssl_channel_credentials(authority.certificate.read_bytes())
    with grpc.secure_channel(server.address, trusting) as channel:
        assert outcome(pb_grpc.SynthesizerStub(channel).Generate(note())) is grpc.StatusCode.OK
    found = samples(server)
    assert ({"part": "bundle", "outcome": "failed"}, 0.0) in found["timbrel_reloads_total"]
    names = set(found) | {"up"}
    targets = [
        target["expr"]
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel.get("targets", [])
    ]
    rules = [
        rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]
    assert targets and rules
    for expression in (*targets, *rules):
        asked = {
            word for word in words(expression) if word.startswith(("timbrel_", "grpc_", "process_", "up"))
        }
        assert asked - LABELS, expression
        assert asked - LABELS <= names, expression
        if any(name.startswith(("grpc_", "process_")) for name in asked - LABELS):
            # Other servers have them, too.
            assert "and on (job, instance) timbrel_ready" in expression or '{job="timbrel"}' in expression
        for asked_for in re.findall('grpc_code=~?"([^"]*)"', expression):
            assert {*asked_for.split("|")} <= CODES, expression


CODES = {"".join(part.capitalize() for part in code.name.split("_")) for code in grpc.StatusCode}
"""But for OK, as the server and others' servers spell them."""

LABELS = {"grpc_code", "grpc_method", "grpc_service", "grpc_type"}


def words(expression: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in expression).split())


def test_the_log_as_json(start_server: StartServer) -> None:
    server = start_server("--log-format", "json", TIMBREL_TOKEN="a-secret-token")
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        who = (("authorization", "Bearer a-secret-token"),)
        chosen = stub.Generate(note(), metadata=(*who, ("x-request-id", "chosen-by-the-caller")))
        assert outcome(chosen) is grpc.StatusCode.OK
        assert dict(chosen.trailing_metadata())["x-request-id"] == "chosen-by-the-caller"
        forged = stub.Generate(note(), metadata=(*who, ("x-request-id", 'a"} {"level": "error')))
        outcome(forged)
        refused = stub.Generate(note(pitch=999), metadata=who)
        assert outcome(refused) is grpc.StatusCode.INVALID_ARGUMENT
        given = dict(refused.trailing_metadata())["x-request-id"]
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    entries = [json.loads(line) for line in server.log().splitlines()]
    assert all({"time", "level", "logger", "pid", "message"} <= set(entry) for entry in entries)
    [begun] = [entry["message"] for entry in entries if "slots = 32 (default)" in entry["message"]]
    assert begun.startswith(f"timbrel {own_version()}, options: ")
    ended = {entry["request_id"]: entry for entry in entries if "code" in entry}
    assert ended["chosen-by-the-caller"]["code"] == "OK"
    assert ended["chosen-by-the-caller"]["method"] == "Generate"
    assert ended["chosen-by-the-caller"]["caller"] == "token:default"
    assert ended["chosen-by-the-caller"]["seconds"] > 0
    assert ended[given]["code"] == "INVALID_ARGUMENT"
    assert len(ended) == 3
    assert "a-secret-token" not in server.log()


def test_a_log_that_cannot_be_written_stops_nothing(start_server: StartServer) -> None:
    with open("/dev/full", "w") as full:
        server = start_server("--metrics-port", "0", stderr=full)
        with grpc.insecure_channel(server.address) as channel:
            stub: Any = pb_grpc.SynthesizerStub(channel)
            for _ in range(3):
                assert outcome(stub.Generate(note())) is grpc.StatusCode.OK
        wait_for(lambda: value(server, "timbrel_log_lines_lost_total") > 3, "lost lines to be counted")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_closed_standard_streams_stop_nothing(start_server: StartServer) -> None:
    begin = "os.execv(sys.executable, [sys.executable, '-m', 'timbrel_server', *sys.argv[1:]])"
    server = start_server(program=("-c", f"import os, sys; os.close(0); os.close(2); {begin}"))
    assert os.readlink(f"/proc/{server.process.pid}/fd/2") == os.devnull  # and no connection
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    leave = (
        "import sys; sys.stdout = sys.stderr = None; from timbrel_server import cli; cli._leave_at_once(True)"
    )
    assert (
        subprocess.run([sys.executable, "-c", leave], timeout=PATIENCE_SECONDS, check=False).returncode == 0
    )


def test_a_bundles_name_is_said_in_whatever_letters_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.BytesIO()
    with monkeypatch.context() as process:
        process.setattr(sys, "stdout", io.TextIOWrapper(said, "ascii"))
        cli._print("timbrel ready on 127.0.0.1:1 bundle=\u010dembalo")
        assert said.getvalue() == b"timbrel ready on 127.0.0.1:1 bundle=\\u010dembalo\n"


def test_the_page_asks_no_name_server_what_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(socket, "getfqdn", lambda name="": asked.append(name) or name)
    health: Any = SimpleNamespace(is_alive=True, is_ready=True)
    page = StatusPage("127.0.0.1", 0, health, lambda: b"")
    try:
        with urllib.request.urlopen(f"http://{page.address}/livez", timeout=PATIENCE_SECONDS) as reply:
            assert reply.status == 200
    finally:
        page.close()
    assert asked == []


def test_the_page_tells_who_asks_for_no_body() -> None:
    health: Any = SimpleNamespace(is_alive=True, is_ready=False)
    page = StatusPage("127.0.0.1", 0, health, lambda: b"")
    try:
        for path, status in (("/livez", 200), ("/readyz", 503)):
            asking = HTTPConnection(page.address, timeout=PATIENCE_SECONDS)
            asking.request("HEAD", path)
            reply = asking.getresponse()
            assert (reply.status, reply.read()) == (status, b"")
            asking.close()
    finally:
        page.close()


def test_what_keeps_the_page_from_answering_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def exposition() -> bytes:
        raise ValueError("nobody foresaw this")

    health: Any = SimpleNamespace(is_alive=True, is_ready=True)
    page = StatusPage("127.0.0.1", 0, health, exposition)
    try:
        asking = HTTPConnection(page.address, timeout=PATIENCE_SECONDS)
        asking.request("GET", "/metrics")
        with pytest.raises(RemoteDisconnected):
            asking.getresponse()
        wait_for(lambda: "nobody foresaw this" in caplog.text, "a line in the log")
    finally:
        page.close()


def test_a_host_is_looked_up_in_any_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name may have an IPv6 address alone."""

    def resolve(host: str, port: int, family: int = 0, **how: Any) -> Any:
        assert (host, family) == ("elsewhere", 0)
        return look_up("127.0.0.1", port, **how)

    look_up = socket.getaddrinfo
    health: Any = SimpleNamespace(is_alive=True, is_ready=True)
    with monkeypatch.context() as names:
        names.setattr(socket, "getaddrinfo", resolve)
        page = StatusPage("elsewhere", 0, health, lambda: b"")
    page.close()
    assert page.address.startswith("elsewhere:")


def test_a_metrics_port_in_use(start_server: StartServer, tiny_bundle: Path) -> None:
    first = start_server("--metrics-port", "0")
    assert first.metrics_address is not None
    taken = first.metrics_address.rpartition(":")[2]
    with pytest.raises(AssertionError, match=f"port {taken} on 127.0.0.1 is in use.*--metrics-port"):
        start_server("--metrics-port", taken)
