"""`--processes N`: several servers, each a process, behind one address and one metrics page."""

from __future__ import annotations

import os
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families
from server_process import ServerProcess, hasty, run_server
from waiting import is_running, wait_for

import timbrel
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

PATIENCE_SECONDS = 60.0
FRESH = (("grpc.use_local_subchannel_pool", 1),)
TOKEN = "token-of-ann"

StartServer = Callable[..., ServerProcess]


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    program = hasty("processes.ANSWER_SECONDS = 1.0")  # of those that are stopped
    return start_server("--processes", "2", "--slots", "2", "--metrics-port", "0", program=program)


def page(server: ServerProcess, path: str) -> str:
    with urllib.request.urlopen(f"http://{server.metrics_address}{path}", timeout=PATIENCE_SECONDS) as reply:
        text: str = reply.read().decode()
        return text


def says_ok(server: ServerProcess, path: str) -> bool:
    try:
        return page(server, path) == "ok\n"
    except urllib.error.HTTPError:
        return False


def by_process(server: ServerProcess, name: str) -> dict[str, float]:
    """A figure of each process, by its number."""
    families = text_string_to_metric_families(page(server, "/metrics"))
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return {sample.labels["process"]: sample.value for sample in samples}


def of_both(server: ServerProcess, name: str) -> dict[str, float]:
    """The same once both have answered in time."""
    found: dict[str, float] = {}

    def both_answer() -> bool:
        found.update(by_process(server, name))
        return len(found) == 2

    wait_for(both_answer, "both to answer", seen=lambda: found)
    return found


def pids(server: ServerProcess) -> dict[str, int]:
    """By number, those that were started last; the log may come some time after the ready line."""
    found = re.compile(r"process (\d) is ready: pid (\d+)\n")
    wait_for(lambda: len(found.findall(server.log())) >= 2, "both to be in the log", seen=server.log)
    return {number: int(pid) for number, pid in found.findall(server.log())}


def note(seed: int = 1) -> pb.GenerateRequest:
    return pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=2.4, seed=seed)


class Connections:
    """A connection after the other, until each process has some."""

    def __init__(self, server: ServerProcess, token: str = "") -> None:
        self._until_closed = ExitStack()
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.stubs: list[Any] = []
        self.channels: list[grpc.Channel] = []

        def all_have_written() -> bool:
            channel = grpc.insecure_channel(server.address, FRESH)
            self.channels.append(self._until_closed.enter_context(channel))
            self.stubs.append(pb_grpc.SynthesizerStub(channel))
            assert self.write(self.stubs[-1])
            accepted = by_process(server, "timbrel_notes_accepted_total")  # of those that answer in time
            return len(accepted) == 2 and min(accepted.values()) > 0

        wait_for(all_have_written, "each process to have a connection")

    def write(self, stub: Any) -> bytes:
        replies = stub.Generate(note(), metadata=self.metadata, timeout=PATIENCE_SECONDS)
        return b"".join(reply.codes.data for reply in replies)

    def close(self) -> None:
        self._until_closed.close()


@pytest.fixture
def connected(server: ServerProcess) -> Iterator[Connections]:
    connections = Connections(server)
    yield connections
    connections.close()


def test_all_are_one_server_and_drain_together(server: ServerProcess, connected: Connections) -> None:
    assert re.search(r"metrics=\S+ processes=2\n", server.ready_line)
    # They have a second to answer, which a busy machine may not give them at once.
    for path in ("/livez", "/readyz"):
        wait_for(lambda path=path: says_ok(server, path), f"{path} to be ok")  # type: ignore[misc]
    wait_for(lambda: by_process(server, "timbrel_ready") == {"0": 1.0, "1": 1.0}, "both to be ready")
    for channel in connected.channels:
        health: Any = health_pb2_grpc.HealthStub(channel)
        asked = health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_SECONDS)
        assert asked.status == health_pb2.HealthCheckResponse.SERVING
    assert len({connected.write(stub) for stub in connected.stubs}) == 1, "whoever writes it"
    began = pids(server)
    os.kill(began["1"], signal.SIGSTOP)
    with pytest.raises(urllib.error.HTTPError, match="503"):
        page(server, "/livez")
    wait_for(lambda: says_ok(server, "/readyz"), "the other, which writes notes")
    only_one = {"0": 1.0, "1": 0.0}  # who says nothing has not vanished
    wait_for(lambda: by_process(server, "timbrel_ready") == only_one, "one to be ready")
    os.kill(began["1"], signal.SIGCONT)
    wait_for(lambda: by_process(server, "timbrel_ready") == {"0": 1.0, "1": 1.0}, "both to answer again")
    # No call is to be refused, where the machine is slow, since its time would not do.
    patience = 4 * PATIENCE_SECONDS
    calls = [stub.Generate(note(), timeout=patience) for stub in connected.stubs for _ in range(16)]
    for call in calls:
        call.initial_metadata()  # comes once a request is accepted
    for pid in began.values():  # as systemd does: the parent's signal is their second one
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: server.log().count("no more calls are taken") == 2, "both to drain", seen=server.log)
    told = re.findall(r"\[(\d+)\]: .*no more calls are taken", server.log())
    assert {*map(int, told)} == {*began.values()}, "each line names its process"
    server.signal(signal.SIGTERM)
    assert [sum(reply.codes.n_frames for reply in call) for call in calls] == [94] * len(calls)
    assert server.wait() == 0
    assert server.rest_of_output() == ""
    assert not any(map(is_running, began.values()))


def test_one_that_is_killed_amid_a_batch_loses_no_note(server: ServerProcess) -> None:
    requests = [timbrel.NoteRequest((0.0, 0.0), 60, seconds=2.4, seed=seed) for seed in range(60)]
    with timbrel.Client(server.address) as client:
        alone = [client.generate((0.0, 0.0), 60, seconds=2.4, seed=seed).codes.tobytes() for seed in range(4)]
        before = of_both(server, "timbrel_notes_accepted_total")
        [busy] = [number for number, n_notes in before.items() if n_notes]
        killed = pids(server)[busy]
        notes = []
        for each in client.generate_many(requests, max_in_flight=8):
            notes.append(each)
            if len(notes) == 10:
                os.kill(killed, signal.SIGKILL)
        assert [each.seed for each in notes] == list(range(60)), "each once, in their order"
        assert [each.codes.tobytes() for each in notes[:4]] == alone
    wait_for(lambda: sum(by_process(server, "timbrel_ready").values()) == 2, "both to be there again")
    wait_for(lambda: pids(server)[busy] != killed, "the log to tell of the new one", seen=server.log)
    assert server.log().count("it is started again") == 1
    assert re.search(rf"process {busy} \(pid {killed}\) has ended with status -9: it is", server.log())
    assert of_both(server, "timbrel_notes_accepted_total")[busy] < 60, "its counters began anew"


def test_tokens_are_read_anew_by_all(start_server: StartServer, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann:{TOKEN}\n")
    server = start_server("--processes", "2", "--token-file", str(tokens), "--metrics-port", "0")
    connections = Connections(server, TOKEN)
    tokens.write_text("bob:token-of-bob\n")
    server.signal(signal.SIGHUP)
    wait_for(lambda: server.log().count("tokens: read anew") == 2, "both to have read", seen=server.log)
    for stub in connections.stubs:
        with pytest.raises(grpc.RpcError) as refused:
            connections.write(stub)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    connections.close()


def test_they_end_with_their_parent(start_server: StartServer) -> None:
    server = start_server("--processes", "2")
    began = pids(server)
    server.signal(signal.SIGKILL)
    wait_for(lambda: not any(map(is_running, began.values())), "both to end")


def test_a_second_signal_ends_one_that_is_stuck(start_server: StartServer) -> None:
    server = start_server("--processes", "2", program=hasty("processes.HURRY_SECONDS = 0.5"))
    stuck = pids(server)["0"]
    os.kill(stuck, signal.SIGSTOP)
    server.signal(signal.SIGTERM)
    server.signal(signal.SIGINT)
    try:
        assert server.wait() == 0
    except BaseException:
        os.kill(stuck, signal.SIGKILL)
        raise


def test_what_is_wrong_is_said_once(tiny_bundle: Path, tmp_path: Path) -> None:
    from integration.test_server_process import assert_one_clear_line

    nowhere = str(tmp_path / "nowhere")
    two = ("--processes", "2")
    assert_one_clear_line(run_server("--bundle", nowhere, "--port", "0", *two), nowhere)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert_one_clear_line(run_server("--bundle", str(tiny_bundle), "--port", port, *two), port, "in use")
