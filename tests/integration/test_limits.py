"""What one caller may take: each attack here, at a tenth of its size, once took a server down or all of its
memory. Strangers have no token on a server that asks for one; ann and bob have one each."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hostile_floods import FloodPeer, ServerMemory, gzip_bomb
from hostile_messages import METHODS, NOTE
from hostile_peer import PING, PREFACE, SETTINGS, connect, frame, message
from server_process import ServerProcess, hasty
from waiting import wait_for

from timbrel_protos.inference import grpc_service_pb2 as oip
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc

PATIENCE_SECONDS = 60.0
MIB = 1 << 20
SYNTHESIZER = "/timbrel.v1.Synthesizer"
HEALTH_CHECK = "/grpc.health.v1.Health/Check"
ANN, BOB = "token-of-ann", "token-of-bob"

StartServer = Callable[..., ServerProcess]


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text(f"ann:{ANN}\nbob:{BOB}\n")
    return file


@pytest.fixture
def server(start_server: StartServer, tokens: Path) -> Iterator[ServerProcess]:
    """A server that asks for tokens, and serves bob and its health when all is over."""
    running = start_server("--token-file", str(tokens), "--metrics-port", "0")
    with called(running) as stub:
        write_note(stub, BOB)  # what the first note loads is no attacker's doing
        yield running
        assert is_serving(running)
        assert write_note(stub, BOB).finish_reason


@contextlib.contextmanager
def called(server: ServerProcess) -> Iterator[Any]:
    with grpc.insecure_channel(server.address, (("grpc.use_local_subchannel_pool", 1),)) as channel:
        yield pb_grpc.SynthesizerStub(channel)


def bearer(token: str) -> tuple[tuple[str, str]]:
    return (("authorization", f"Bearer {token}"),)


def write_note(stub: Any, token: str) -> pb.GenerateResponse:
    """Asks for a note; returns its last reply."""
    *_, last = stub.Generate(NOTE, metadata=bearer(token), timeout=PATIENCE_SECONDS)
    return last  # type: ignore[no-any-return]


def is_serving(server: ServerProcess) -> bool:
    with grpc.insecure_channel(server.address, (("grpc.use_local_subchannel_pool", 1),)) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_SECONDS)
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def metric(server: ServerProcess, name: str) -> float:
    """A number of the server's /metrics."""
    with urllib.request.urlopen(f"http://{server.metrics_address}/metrics", timeout=PATIENCE_SECONDS) as page:
        lines = page.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(name)).rpartition(" ")[2])


@contextlib.contextmanager
def bounded_memory(server: ServerProcess, n_bytes: int) -> Iterator[ServerMemory]:
    """Holds a server to so many bytes more than it has now, however shortly it has them."""
    memory = ServerMemory(server.process.pid)
    memory.forget_peak()
    yield memory
    assert memory.peak - memory.before < n_bytes, f"{(memory.peak - memory.before) / MIB:.0f} MiB more"


class TestWithoutAToken:
    @pytest.mark.parametrize("path", [HEALTH_CHECK, f"{SYNTHESIZER}/Locate"])
    def test_a_compressed_message_is_not_inflated(self, server: ServerProcess, path: str) -> None:
        body = gzip_bomb(128 * MIB)
        with bounded_memory(server, 96 * MIB), FloodPeer(server.address) as peer:
            bomb = peer.open(path, body=body, encoding="gzip", end=True)
            peer.pump(lambda: bomb in peer.ended or peer.is_closed, PATIENCE_SECONDS)
            assert bomb in peer.ended

    @pytest.mark.parametrize(("path", "token"), [(HEALTH_CHECK, ""), (f"{SYNTHESIZER}/Play", ANN)])
    def test_a_message_that_says_it_is_huge_is_not_waited_for(
        self, server: ServerProcess, path: str, token: str
    ) -> None:
        with bounded_memory(server, 32 * MIB), FloodPeer(server.address) as peer:
            call = peer.open(path, token, message(bytes(96 * MIB), announced=1 << 30))
            peer.pump(lambda: call in peer.ended, PATIENCE_SECONDS)
            assert b"larger than max" in peer.ended[call]

    def test_pings_cost_nothing(self, server: ServerProcess) -> None:
        with bounded_memory(server, 200 * MIB), FloodPeer(server.address) as peer:
            peer.write(frame(PING, 0, 0, b"8 bytes.") * 200_000)
            peer.pump(lambda: not peer.unsent, PATIENCE_SECONDS)

    def test_nothing_is_kept_of_what_a_stranger_sends(self, server: ServerProcess) -> None:
        with bounded_memory(server, 75 * MIB), FloodPeer(server.address) as peer:
            body = message(bytes(MIB), announced=MIB + 1)
            calls = [peer.open(f"{SYNTHESIZER}/Generate", body=body) for _ in range(100)]
            peer.pump(lambda: len(peer.ended) == len(calls), PATIENCE_SECONDS)
            assert len(peer.ended) == len(calls)

    def test_who_acknowledges_no_settings_is_hung_up_on(self, start_server: StartServer) -> None:
        """Until then gRPC takes a thousand times the headers that it allows: 100 MB of memory a call."""
        server = start_server(program=hasty("rpc.listener.SETTINGS_MILLIS = 1000"))
        with connect(server.address) as peer:
            peer.sendall(PREFACE + frame(SETTINGS, 0, 0))
            peer.settimeout(30.0)
            while peer.recv(1 << 16):
                pass

        def serves_who_acknowledges() -> bool:
            """A busy machine may not do so within a second each time."""
            with contextlib.suppress(grpc.RpcError):
                return is_serving(server)
            return False

        wait_for(serves_who_acknowledges, "it to serve")

    def test_unfinished_health_checks_make_room_for_others(self, server: ServerProcess) -> None:
        with bounded_memory(server, 75 * MIB), FloodPeer(server.address) as peer:
            body = message(bytes(MIB), announced=MIB + 1)
            calls = [peer.open(HEALTH_CHECK, body=body) for _ in range(70)]
            peer.pump(lambda: len(peer.ended) >= len(calls) - 16, PATIENCE_SECONDS)
            assert len(peer.ended) == len(calls) - 16
            assert is_serving(server)
            peer.pump(lambda: len(peer.ended) >= len(calls) - 15, PATIENCE_SECONDS)
            assert len(peer.ended) == len(calls) - 15

    def test_a_connection_of_unfinished_health_checks_is_cut(self, server: ServerProcess) -> None:
        with FloodPeer(server.address) as peer:
            for _ in range(200):
                peer.open(HEALTH_CHECK, body=message(b"", announced=1))
            peer.pump(lambda: peer.is_closed, PATIENCE_SECONDS)
            assert peer.is_closed
            assert is_serving(server)

    def test_a_connection_with_a_call_on_it_is_not_cut(self, server: ServerProcess) -> None:
        """A proxy's may carry strangers' checks beside it."""
        in_use = 'timbrel_limit_in_use{limit="max_item_streams"}'
        with FloodPeer(server.address) as peer:
            playing = peer.open(f"{SYNTHESIZER}/Play", ANN)
            peer.pump(lambda: metric(server, in_use) == 1, PATIENCE_SECONDS)
            for _ in range(200):
                peer.open(HEALTH_CHECK, body=message(b"", announced=1))
            peer.pump(lambda: len(peer.ended) >= 184, PATIENCE_SECONDS)
            assert len(peer.ended) == 184 and playing not in peer.ended
            assert is_serving(server)

    @pytest.mark.parametrize("method", ["Check", "Watch"])
    def test_health_that_nobody_reads_is_hung_up_on(self, start_server: StartServer, method: str) -> None:
        """gRPC itself keeps such calls for as long as their connections last."""
        server = start_server("--max-health-calls", "64")
        with FloodPeer(server.address, own_window=0) as peer:
            for _ in range(100):
                peer.open(f"/grpc.health.v1.Health/{method}", body=message(b""))
            peer.pump(lambda: peer.is_closed, PATIENCE_SECONDS)
            assert peer.is_closed
        assert is_serving(server)
        assert "Traceback" not in server.log()

    def test_a_crowd_of_addresses_of_one_network_is_one_caller(self, start_server: StartServer) -> None:
        server = start_server("--max-item-streams", "8")
        with contextlib.ExitStack() as peers:
            crowd = [
                peers.enter_context(FloodPeer(server.address, source=f"127.0.9.{number}"))
                for number in range(1, 21)
            ]
            opened = [peer.open(f"{SYNTHESIZER}/Play") for peer in crowd]
            end = time.monotonic() + PATIENCE_SECONDS
            while sum(len(peer.ended) for peer in crowd) < 18 and time.monotonic() < end:
                for peer, call in zip(crowd, opened, strict=True):
                    peer.pump(lambda peer=peer, call=call: call in peer.ended, 0.05)  # type: ignore[misc]
            assert sum(len(peer.ended) for peer in crowd) == 18
            with called(server) as stub:
                assert list(stub.Play(iter(()), timeout=PATIENCE_SECONDS)) == []

    def test_who_holds_all_connections_makes_room_for_other_networks(self, start_server: StartServer) -> None:
        server = start_server("--max-connections", "40", "--metrics-port", "0")
        in_use = 'timbrel_limit_in_use{limit="max_item_streams"}'
        refused = 'timbrel_limit_refused_total{limit="max_connections"}'
        with contextlib.ExitStack() as peers, called(server) as stub:
            crowd = [peers.enter_context(FloodPeer(server.address, source="127.0.9.1"))]
            playing = crowd[0].open(f"{SYNTHESIZER}/Play")
            crowd[0].pump(lambda: metric(server, in_use) == 1, PATIENCE_SECONDS)
            end = time.monotonic() + PATIENCE_SECONDS
            while not metric(server, refused) and time.monotonic() < end:
                n_more = 60 - sum(not peer.is_closed for peer in crowd)
                crowd += [
                    peers.enter_context(FloodPeer(server.address, source="127.0.9.1")) for _ in range(n_more)
                ]
                for peer in crowd:
                    peer.pump(seconds=0.01)
            assert metric(server, refused) >= 26, "of more than 35 the share of 10 is left"
            assert list(stub.Play(iter(()), timeout=PATIENCE_SECONDS)) == []
            crowd[0].pump(seconds=0.1)
            assert not crowd[0].is_closed and playing not in crowd[0].ended, "it had a call on it"


class TestWithAToken:
    def test_requests_are_no_larger_than_they_need_be(self, server: ServerProcess) -> None:
        """Hundreds are kept while they wait; decoded, two million empty tensors take 180 MiB."""
        padding = b"\x2a\x00" * (120 << 10)  # of ModelInfer empty tensors, for others nothing they know
        padding += b"\xaa\x1f\x80\x80\xcc\x01" + bytes(0x330000)  # nor this: field 501
        options = (("grpc.use_local_subchannel_pool", 1),)
        with bounded_memory(server, 75 * MIB), grpc.insecure_channel(server.address, options) as channel:
            for method in METHODS:
                body = method.valid.SerializeToString() + padding
                replies = channel.stream_stream(method.path)(
                    iter([body]), metadata=bearer(ANN), timeout=PATIENCE_SECONDS
                )
                with pytest.raises(grpc.RpcError, match="bytes are too many") as caught:
                    list(replies)
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, method.path

    def test_unfinished_requests_are_read_a_few_at_a_time(self, server: ServerProcess) -> None:
        """And keep nobody up but who sends them."""
        with bounded_memory(server, 75 * MIB), FloodPeer(server.address) as peer:
            body = message(bytes(MIB), announced=MIB + 1)
            for _ in range(100):
                peer.open(f"{SYNTHESIZER}/Generate", ANN, body)
            peer.pump(seconds=1.0)
            assert not peer.ended
            with called(server) as stub:
                assert write_note(stub, BOB).finish_reason

    @pytest.mark.parametrize(
        "path",
        [f"{SYNTHESIZER}/Play", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"],
    )
    def test_streams_beyond_a_share_are_refused_and_others_are_not(
        self, start_server: StartServer, tokens: Path, path: str
    ) -> None:
        options = ("--max-item-streams", "8", "--metrics-port", "0")
        server = start_server("--token-file", str(tokens), *options)
        with FloodPeer(server.address) as peer:
            opened = [peer.open(path, ANN) for _ in range(5)]
            peer.pump(lambda: len(peer.ended) == 3, PATIENCE_SECONDS)
            assert len(peer.ended) == 3 and len(opened) == 5
            assert metric(server, 'timbrel_limit_in_use{limit="max_item_streams"}') == 2
            assert metric(server, 'timbrel_limit_refused_total{limit="max_item_streams"}') == 3
            with called(server) as stub:
                assert (
                    list(stub.GenerateBatch(iter(()), metadata=bearer(BOB), timeout=PATIENCE_SECONDS)) == []
                )

    def test_one_who_streams_all_it_can_keeps_nobody_up(self, server: ServerProcess) -> None:
        """20 streams of inference, 32 notes an item: more than a caller may have in hand, which is 512."""
        item = oip.ModelInferRequest(model_name="tiny")
        for name, datatype, width, number in (
            *(("TIMBRE", "FP32", 2, b"\0\0\0\0"), ("PITCH", "INT32", 1, b"\x3c\0\0\0")),
            *(("VELOCITY", "INT32", 1, b"\x64\0\0\0"), ("SECONDS", "FP32", 1, struct.pack("<f", 2.0))),
            ("SEED", "UINT64", 1, bytes(8)),
        ):
            item.inputs.add(name=name, datatype=datatype, shape=(32, width))
            item.raw_input_contents.append(32 * width * number)
        items = message(item.SerializeToString()) * 40
        waiting = 'timbrel_queue_notes{bundle="tiny"}'
        with FloodPeer(server.address) as peer, called(server) as stub:
            for _ in range(20):
                peer.open("/inference.GRPCInferenceService/ModelStreamInfer", ANN, items)
            peer.pump(lambda: metric(server, waiting) > 256, PATIENCE_SECONDS)
            for _ in range(5):
                assert write_note(stub, BOB).finish_reason
                assert is_serving(server)
                peer.pump(seconds=0.1)
                assert 0 < metric(server, waiting) <= 512
            assert not peer.ended

    def test_files_that_nobody_reads_hold_little_and_one_descriptor(self, server: ServerProcess) -> None:
        asked = message(pb.GetFileRequest(name="codec.safetensors").SerializeToString())
        with bounded_memory(server, 40 * MIB) as memory, FloodPeer(server.address, own_window=0) as peer:
            n_files = memory.n_files
            for _ in range(200):
                peer.open(f"{SYNTHESIZER}/GetFile", ANN, asked)
            peer.pump(seconds=1.0)
            assert memory.n_files <= n_files + 8
            with called(server) as stub:
                request = pb.GetFileRequest(name="codec.safetensors")
                replies = list(stub.GetFile(request, metadata=bearer(BOB), timeout=PATIENCE_SECONDS))
        assert sum(len(reply.data) for reply in replies) == replies[0].total_size
        assert max(len(reply.data) for reply in replies) <= 64 << 10

    def test_audio_that_nobody_reads_is_not_made(self, start_server: StartServer, tokens: Path) -> None:
        """Of what is asked for here it would take 140 MB."""
        options = ("--max-audio-bytes", str(32 * MIB), "--metrics-port", "0")
        server = start_server("--token-file", str(tokens), *options)
        note = pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=2.4, audio=pb.AUDIO_FORMAT_FLOAT32)
        items = b"".join(
            message(pb.GenerateBatchRequest(id=number, note=note).SerializeToString()) for number in range(40)
        )
        with called(server) as stub:  # loads the codec's decoder, which is no attacker's doing either
            assert sum(len(reply.audio) for reply in stub.Generate(note, metadata=bearer(BOB)))
        with bounded_memory(server, 80 * MIB), FloodPeer(server.address, own_window=0) as peer:
            for _ in range(8):
                peer.open(f"{SYNTHESIZER}/GenerateBatch", ANN, items)
            peer.pump(lambda: metric(server, "timbrel_slots_active") > 0, PATIENCE_SECONDS)
            idle = 0

            def has_come_to_rest() -> bool:
                nonlocal idle
                in_hand = metric(server, "timbrel_slots_active") + metric(server, "timbrel_queue_notes")
                idle = 0 if in_hand else idle + 1
                return idle > 10

            peer.pump(has_come_to_rest, PATIENCE_SECONDS)
            assert idle > 10, "notes are made on and on"
            with called(server) as stub:
                asked = pb.GenerateRequest(
                    timbre=pb.Timbre(), pitch=60, seconds=0.3, audio=pb.AUDIO_FORMAT_PCM16
                )
                *_, last = stub.Generate(asked, metadata=bearer(BOB), timeout=PATIENCE_SECONDS)
                assert last.finish_reason


class TestMetricsPort:
    def test_slow_connections_hold_few_threads_and_keep_nobody_out(self, server: ServerProcess) -> None:
        assert server.metrics_address is not None
        threads = Path(f"/proc/{server.process.pid}/task")
        n_threads = len(list(threads.iterdir()))
        with contextlib.ExitStack() as peers:
            for _ in range(200):
                peers.enter_context(connect(server.metrics_address)).sendall(b"GET /metrics HTTP/1.1\r\n")
            assert metric(server, "timbrel_ready") == 1
            assert len(list(threads.iterdir())) <= n_threads + 100  # gRPC's own come and go

    def test_a_request_has_its_time_however_often_a_byte_comes(self, start_server: StartServer) -> None:
        program = hasty("observability.telemetry.TIMEOUT_SECONDS = 1")
        server = start_server("--metrics-port", "0", program=program)
        assert server.metrics_address is not None
        with connect(server.metrics_address) as peer:
            peer.sendall(b"GET /livez HTTP/1.1\r\nX: ")
            peer.settimeout(0.1)
            end = time.monotonic() + PATIENCE_SECONDS
            while time.monotonic() < end:
                try:
                    peer.sendall(b"x")
                    if not peer.recv(100):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
            assert time.monotonic() < end, "it is never cut"


@contextlib.contextmanager
def unread_pipe() -> Iterator[IO[str]]:
    """A pipe's end to write to, which holds 4 KiB that nobody ever reads."""
    reader, writer = os.pipe()
    try:
        fcntl = pytest.importorskip("fcntl")
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        with os.fdopen(writer, "w") as stderr:
            yield stderr
    finally:
        os.close(reader)


def test_a_log_that_nobody_reads_holds_nobody_up(start_server: StartServer, tiny_bundle: Path) -> None:
    with unread_pipe() as stderr:
        server = start_server("--metrics-port", "0", stderr=stderr)
        with called(server) as stub:
            for _ in range(150):  # 100 bytes a line: more than twice what the pipe holds
                assert stub.GetModel(pb.GetModelRequest(), timeout=PATIENCE_SECONDS).engine.n_slots
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def open_unreadable(peer: FloodPeer, n_calls: int) -> None:
    """Opens so many calls by a method that is none; returns once the server has looked at all of them."""
    for _ in range(n_calls):
        peer.open("/x/y")
    peer.unsent = peer.unsent.replace(b"POST", b"FROG")
    check = peer.open(HEALTH_CHECK, body=message(b""), end=True)
    peer.pump(lambda: check in peer.ended, PATIENCE_SECONDS)
    assert check in peer.ended


@pytest.mark.parametrize("program", [("timbrel_server",), ("timbrel", "serve")])
class TestHeadersThatGrpcCannotRead:
    """It tells of each on the standard error itself, past the log."""

    def test_no_line_tells_of_them(self, start_server: StartServer, program: Sequence[str]) -> None:
        server = start_server(program=("-m", *program))
        with FloodPeer(server.address) as peer:
            open_unreadable(peer, 20)
        assert [line for line in server.log().splitlines() if " INFO timbrel_server" not in line] == []

    def test_where_nobody_reads_the_log_they_hold_nobody_up(
        self, start_server: StartServer, program: Sequence[str]
    ) -> None:
        with unread_pipe() as stderr, contextlib.ExitStack() as peers:
            server = start_server(program=("-m", *program), stderr=stderr)
            for _ in range(16):  # a line of more than 100 bytes each would be told
                open_unreadable(peers.enter_context(FloodPeer(server.address)), 100)
            assert is_serving(server)
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
