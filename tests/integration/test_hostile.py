"""Callers who mean harm, or are broken: each gets a proper status, and the server lives on and loses no slot.

What the transport itself answers (gRPC's own INTERNAL for a message that breaks off, say) is told apart from
what our handlers answer by the request id that every answer of ours carries.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from background_server import BackgroundServer
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hostile_messages import METHODS, NOTE, Method, bodies
from hostile_peer import attacks, call_headers, connect, frame, message, send_and_leave
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server.rpc.call_context import REQUEST_ID_KEY

TESTS = Path(__file__).resolve().parents[1]
PATIENCE_SECONDS = 60.0
NEVER = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)


@pytest.fixture(scope="module")
def server(tiny_bundle: Path) -> Iterator[BackgroundServer]:
    with BackgroundServer(tiny_bundle, n_slots=4, queue_capacity=64) as running:
        yield running


def is_grpcs_own(record: logging.LogRecord) -> bool:
    """Whether gRPC tells of itself: of a call that is gone as it is about to be answered, or of its waking an
    event loop of an earlier test, which is closed."""
    return any(word in record.getMessage() for word in ("ExecuteBatchError raised", "PollerCompletionQueue"))


@pytest.fixture(autouse=True)
def unharmed(server: BackgroundServer, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """After every attack the server is healthy, writes notes, holds no slot, and had no error of its own."""
    yield
    with grpc.insecure_channel(server.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        reply = health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_SECONDS)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
        stub: Any = pb_grpc.SynthesizerStub(channel)
        assert list(stub.Generate(NOTE, timeout=PATIENCE_SECONDS))[-1].finish_reason
    server.wait_until_idle()
    assert "internal error" not in caplog.text
    assert not [each for each in caplog.records if each.exc_info and not is_grpcs_own(each)]


class Tally:
    """The status of each call: of our handlers, and of the transport."""

    def __init__(self) -> None:
        self.ours: Counter[grpc.StatusCode] = Counter()
        self.transport: Counter[grpc.StatusCode] = Counter()

    def call(self, channel: grpc.Channel, method: Method, sent: Sequence[bytes]) -> None:
        """Makes a call and hears it to its end."""
        arity = f"{_arity(method.streams_in)}_{_arity(method.streams_out)}"
        make = getattr(channel, arity)(method.path, None, None)
        request = iter(sent) if method.streams_in else sent[0]
        try:
            if method.streams_out:
                replies = make(request, timeout=PATIENCE_SECONDS)
                for _ in replies:
                    pass
                answered = replies
            else:
                _, answered = make.with_call(request, timeout=PATIENCE_SECONDS)
        except grpc.RpcError as error:
            answered = error
        self._count(answered, method, sent)

    def _count(self, answered: Any, method: Method, sent: Sequence[bytes]) -> None:
        ours = _is_ours(answered.trailing_metadata())
        (self.ours if ours else self.transport)[answered.code()] += 1
        if ours:
            assert answered.code() not in NEVER, (method.path, sent, answered.details())
            assert len(answered.details() or "") <= 1000


def _is_ours(trailing_metadata: Any) -> bool:
    """Whether a call was answered by one of our handlers."""
    return any(key == REQUEST_ID_KEY for key, _ in trailing_metadata or ())


def _arity(streams: bool) -> str:
    return "stream" if streams else "unary"


def make_calls(server: BackgroundServer, method: Method, n_calls: int) -> Tally:
    """So many calls of made-up messages."""
    tally = Tally()
    with grpc.insecure_channel(server.address) as channel:

        @settings(
            max_examples=n_calls,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        @given(sent=bodies(method))
        def attack(sent: list[bytes]) -> None:
            tally.call(channel, method, sent)

        attack()
    return tally


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path.rpartition("/")[2])
def test_made_up_messages_are_answered(server: BackgroundServer, method: Method) -> None:
    tally = make_calls(server, method, 25)
    assert tally.ours.total() >= 15
    assert not tally.transport.keys() & set(NEVER)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path.rpartition("/")[2])
@pytest.mark.parametrize("body", [b"\xff\xff\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x02\xff\xfe\x12\x7f"])
def test_undecodable_bodies_are_invalid_on_every_rpc(
    server: BackgroundServer, method: Method, body: bytes
) -> None:
    tally = Tally()
    with grpc.insecure_channel(server.address) as channel:
        tally.call(channel, method, [body])
    assert tally.ours == {grpc.StatusCode.INVALID_ARGUMENT: 1}


def test_noise_and_half_messages_on_the_port_harm_nobody(server: BackgroundServer) -> None:
    chance = random.Random(1)
    for _ in range(3):
        for data in attacks(chance):
            send_and_leave(server.address, data)
            send_and_leave(server.address, data[: chance.randrange(len(data))], 0.001)


def test_a_flood_of_connections_that_say_nothing_harms_nobody(server: BackgroundServer) -> None:
    begun = (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + call_headers("/timbrel.v1.Synthesizer/Play")
    )
    with contextlib.ExitStack() as peers:
        for number in range(300):
            peer = peers.enter_context(connect(server.address))
            peer.sendall([b"", begun, begun + frame(0, 0, 1, message(b"\x08\x01", announced=50))][number % 3])
        with grpc.insecure_channel(server.address) as channel:
            stub: Any = pb_grpc.SynthesizerStub(channel)
            assert list(stub.Generate(NOTE, timeout=PATIENCE_SECONDS))[-1].finish_reason


def test_a_message_larger_than_allowed_is_refused_by_the_transport(server: BackgroundServer) -> None:
    tally = Tally()
    with grpc.insecure_channel(server.address) as channel:
        for method in METHODS:
            tally.call(channel, method, [bytes(5 << 20)])
    assert set(tally.ours + tally.transport) == {grpc.StatusCode.RESOURCE_EXHAUSTED}


def test_clients_that_are_killed_free_their_slots(server: BackgroundServer) -> None:
    command = [sys.executable, str(TESTS / "hostile_client.py"), server.address, "6"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) for _ in range(2)]
    for client in clients:
        assert client.stdout is not None
        assert client.stdout.readline() == b"sounding\n"
    for client in clients:
        client.send_signal(signal.SIGKILL)
        client.wait(PATIENCE_SECONDS)
        assert client.stdout is not None
        client.stdout.close()


class Canceller:
    """Begins calls of every kind that lasts, and cancels each at some moment."""

    def __init__(self, address: str, seed: int) -> None:
        self._address = address
        self._chance = random.Random(seed)
        self.codes: Counter[grpc.StatusCode] = Counter()

    async def run(self, n_calls: int, n_at_once: int = 16) -> None:
        places = asyncio.Semaphore(n_at_once)
        async with grpc.aio.insecure_channel(self._address) as channel, asyncio.TaskGroup() as tasks:
            for _ in range(n_calls):
                await places.acquire()
                task = tasks.create_task(self._one(pb_grpc.SynthesizerStub(channel), channel))
                task.add_done_callback(lambda _: places.release())

    async def _one(self, stub: Any, channel: grpc.aio.Channel) -> None:
        call = self._begin(stub, channel)
        reading = asyncio.ensure_future(self._read(call))
        await asyncio.sleep(self._chance.choice([0.0, 0.001, 0.01, 0.05]) * self._chance.random())
        call.cancel()
        await reading
        code = await call.code()
        self.codes[code] += 1
        assert not (code in NEVER and _is_ours(await call.trailing_metadata())), await call.details()

    def _begin(self, stub: Any, channel: grpc.aio.Channel) -> Any:
        note = pb.GenerateRequest()
        note.CopyFrom(NOTE)
        note.seconds = self._chance.choice([0.1, 0.5, 2.4])
        note.audio = self._chance.randrange(5)
        match self._chance.randrange(5):
            case 0 | 1:
                return stub.Generate(note)
            case 2:
                return stub.GenerateBatch(iter([pb.GenerateBatchRequest(id=n, note=note) for n in range(9)]))
            case 3:
                return stub.Play(iter([pb.PlayRequest(id=n, note_on=pb.NoteOn(note=note)) for n in range(5)]))
            case _:
                infer = METHODS[-3]
                assert infer.path.endswith("ModelStreamInfer")
                call: Any = channel.stream_stream(infer.path)
                return call(iter([infer.valid.SerializeToString()] * 5))

    async def _read(self, call: Any) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            async for _ in call:
                pass


def test_cancels_at_any_moment_lose_no_slot(server: BackgroundServer) -> None:
    canceller = Canceller(server.address, seed=1)
    asyncio.run(canceller.run(1000))
    assert canceller.codes[grpc.StatusCode.CANCELLED] > 500


@pytest.mark.acceptance
class TestAtLength:
    """The same, more than 20,000 times."""

    def test_made_up_messages_are_answered(self, server: BackgroundServer) -> None:
        tallies = [make_calls(server, method, 1300) for method in METHODS]
        ours: Counter[grpc.StatusCode] = sum((tally.ours for tally in tallies), Counter())
        transport: Counter[grpc.StatusCode] = sum((tally.transport for tally in tallies), Counter())
        print(f"ours: {_by_name(ours)}; the transport: {_by_name(transport)}")
        assert ours.total() + transport.total() >= 20_000

    def test_cancels_at_any_moment_lose_no_slot(self, server: BackgroundServer) -> None:
        canceller = Canceller(server.address, seed=2)
        asyncio.run(canceller.run(10_000, n_at_once=64))
        print(_by_name(canceller.codes))

    def test_noise_beside_made_up_messages(self, server: BackgroundServer) -> None:
        enough = threading.Event()

        def make_noise(seed: int) -> None:
            chance = random.Random(seed)
            while not enough.is_set():
                for data in attacks(chance):
                    send_and_leave(server.address, data, 0.005)
                    enough.wait(0.02)  # what floods beyond that get is the transport's to say

        peers = [threading.Thread(target=make_noise, args=(seed,)) for seed in range(2)]
        for peer in peers:
            peer.start()
        try:
            for method in METHODS:
                make_calls(server, method, 100)
        finally:
            enough.set()
            for peer in peers:
                peer.join()


def _by_name(codes: Counter[grpc.StatusCode]) -> dict[str, int]:
    return {code.name: count for code, count in codes.most_common()}


@given(sent=st.sampled_from(METHODS).flatmap(bodies))
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
def test_the_arsenal_makes_bodies(sent: list[bytes]) -> None:
    assert all(isinstance(body, bytes) for body in sent)
