"""A real server inside the test, so that its slots can be looked at: crowds, cancels, faults."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from in_process_server import PATIENCE_SECONDS, run, serving, slow_steps, wait_until_idle
from waiting import wait_for_async

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server.app import App
from timbrel_server.config import BundleSource, ServerConfig
from timbrel_server.decoder.runner import Runner
from timbrel_server.served_bundles.engine_loader import EngineLoader, open_bundles
from timbrel_server.served_bundles.served_bundle import BundleRegistry
from timbrel_server.signals import StopSignal

LIVELY = pb.Sampling(temperature=1.0, top_k=256, top_p=1.0)


def request(seed: int, seconds: float = 0.5) -> pb.GenerateRequest:
    return pb.GenerateRequest(
        timbre=pb.Timbre(x=0.1, y=0.2), pitch=48 + seed % 40, seconds=seconds, seed=seed, sampling=LIVELY
    )


async def generate(stub: Any, asked: pb.GenerateRequest) -> bytes:
    """All of a note's codes."""
    return b"".join([reply.codes.data async for reply in stub.Generate(asked)])


async def outcome(call: Any) -> grpc.StatusCode:
    """How a call ends, its replies read."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        async for _ in call:
            pass
    code: grpc.StatusCode = await call.code()
    return code


async def health_status(channel: grpc.aio.Channel) -> int:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    reply = await stub.Check(health_pb2.HealthCheckRequest())
    status: int = reply.status
    return status


def test_a_ragged_crowd_with_cancels_leaves_no_slot_used(tiny_bundle: Path) -> None:
    rng = random.Random(0)
    asked = [request(seed, seconds=rng.uniform(0.1, 2.0)) for seed in range(40)]
    patience = [rng.choice([None, None, 0, 1, 3]) for _ in asked]  # replies after which a caller leaves

    async def leave_early(stub: Any, one: pb.GenerateRequest, n_replies: int) -> None:
        call = stub.Generate(one)
        for _ in range(n_replies):
            await call.read()
        call.cancel()

    async def test() -> None:
        async with serving(tiny_bundle, n_slots=6) as (app, stub, _):
            calls = [
                generate(stub, one) if replies is None else leave_early(stub, one, replies)
                for one, replies in zip(asked, patience, strict=True)
            ]
            together = await asyncio.gather(*calls)
            await wait_until_idle(app)
            stayed = [(one, codes) for one, codes in zip(asked, together, strict=True) if codes is not None]
            assert len(stayed) > 10
            for one, codes in stayed:
                assert codes
                assert codes == await generate(stub, one)

    run(test)


def test_deadlines_free_their_slots(tiny_bundle: Path) -> None:
    async def test() -> None:
        async with serving(tiny_bundle, n_slots=2) as (app, stub, _):
            calls = [stub.Generate(request(seed, seconds=2.0), timeout=0.02) for seed in range(12)]
            codes = await asyncio.gather(*map(outcome, calls))
            assert grpc.StatusCode.DEADLINE_EXCEEDED in codes
            await wait_until_idle(app)
            assert await generate(stub, request(1))

    run(test)


def test_a_full_queue_refuses_and_says_when_to_retry(tiny_bundle: Path) -> None:
    async def test() -> None:
        async with serving(tiny_bundle, n_slots=1, queue_capacity=2) as (app, stub, channel):
            calls = [stub.Generate(request(seed, seconds=2.0)) for seed in range(12)]
            codes = await asyncio.gather(*map(outcome, calls))
            assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
            refused = calls[codes.index(grpc.StatusCode.RESOURCE_EXHAUSTED)]
            status: Any = await rpc_status.aio.from_call(refused)  # type: ignore[attr-defined]
            detail = error_details_pb2.RetryInfo()
            assert status.details[0].Unpack(detail)
            assert detail.retry_delay.ToMilliseconds() > 0
            assert await health_status(channel) == health_pb2.HealthCheckResponse.SERVING
            await wait_until_idle(app)

    with slow_steps(0.005):  # three notes outlast the asking for twelve
        run(test)


def test_a_full_queue_refuses_before_it_is_read_what_is_asked(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on, plain = threading.Event(), Runner.step

    def held_up(self: Runner, given: Any) -> Any:
        assert going_on.wait(PATIENCE_SECONDS)
        return plain(self, given)

    async def test() -> None:
        async with serving(tiny_bundle, n_slots=1, queue_capacity=2) as (app, stub, channel):
            monkeypatch.setattr(Runner, "step", held_up)
            calls = [stub.Generate(request(seed)) for seed in range(3)]
            engine = app.engine
            assert engine is not None
            await wait_for_async(
                lambda: (engine.n_occupied, engine.n_waiting) == (1, 2), "the queue to be full"
            )
            silent: Any = channel.stream_stream("/timbrel.v1.Synthesizer/Generate")
            assert await silent().code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            going_on.set()
            assert await asyncio.gather(*map(outcome, calls)) == [grpc.StatusCode.OK] * 3

    run(test)


def test_a_note_does_not_stand_in_line_with_the_calls_of_other_methods(tiny_bundle: Path) -> None:
    async def test() -> None:
        async with serving(tiny_bundle) as (_, stub, _channel):
            answered: list[str] = []

            async def ask_for_model() -> None:
                await stub.GetModel(pb.GetModelRequest())
                answered.append("model")

            async def ask_for_note() -> None:
                call = stub.Generate(request(1))
                await call.initial_metadata()
                answered.append("note")
                assert await outcome(call) is grpc.StatusCode.OK

            await asyncio.gather(*(ask_for_model() for _ in range(200)), ask_for_note())
            assert answered.index("note") < 100

    run(test)


def test_a_dead_engine_is_unavailable_and_not_serving(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: Runner, rows: object) -> list[list[int]]:
        raise RuntimeError("the device is gone")

    async def test() -> None:
        async with serving(tiny_bundle) as (_, stub, channel):
            assert await health_status(channel) == health_pb2.HealthCheckResponse.SERVING
            monkeypatch.setattr(Runner, "step", broken)
            for _ in range(2):  # the request in hand, and a later one
                call = stub.Generate(request(1))
                assert await call.code() is grpc.StatusCode.UNAVAILABLE
                assert "device" not in await call.details()
            while await health_status(channel) != health_pb2.HealthCheckResponse.NOT_SERVING:
                await asyncio.sleep(0.005)

    run(test)
    assert "the device is gone" in caplog.text


def test_an_unforeseen_error_is_internal_with_an_id_that_is_in_the_log(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: BundleRegistry, *arguments: str) -> None:
        raise KeyError("a secret of ours")

    ids: list[str] = []

    async def test() -> None:
        async with serving(tiny_bundle) as (_, stub, _channel):
            monkeypatch.setattr(BundleRegistry, "find", broken)
            for call in (stub.Generate(request(1)), stub.GetModel(pb.GetModelRequest())):
                assert await call.code() is grpc.StatusCode.INTERNAL
                assert "secret" not in await call.details()
                status: Any = await rpc_status.aio.from_call(call)  # type: ignore[attr-defined]
                assert b"secret" not in status.SerializeToString()
                detail = error_details_pb2.ErrorInfo()
                assert status.details[0].Unpack(detail)
                ids.append(detail.metadata["error_id"])

    with caplog.at_level(logging.ERROR):
        run(test)
    assert len(set(ids)) == 2
    assert all(error_id in caplog.text for error_id in ids)
    assert "a secret of ours" in caplog.text


def test_calls_are_unavailable_until_warm(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        loading = asyncio.Event()
        go_on = asyncio.Event()
        load = EngineLoader._load

        def slow_load(loader: EngineLoader, *args: Any, **options: Any) -> Any:
            loop.call_soon_threadsafe(loading.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(PATIENCE_SECONDS)
            return load(loader, *args, **options)

        monkeypatch.setattr(EngineLoader, "_load", slow_load)
        config = ServerConfig(bundles=(BundleSource(tiny_bundle),), port=0, n_threads=1)
        app = App(config, open_bundles(config))
        starting = asyncio.create_task(app.start(StopSignal()))
        await loading.wait()
        async with grpc.aio.insecure_channel(app.address) as channel:
            stub: Any = pb_grpc.SynthesizerStub(channel)
            assert await stub.Generate(request(1)).code() is grpc.StatusCode.UNAVAILABLE
            assert await health_status(channel) == health_pb2.HealthCheckResponse.NOT_SERVING
            go_on.set()
            await starting
            assert await health_status(channel) == health_pb2.HealthCheckResponse.SERVING
            assert await generate(stub, request(1))
        await app.drain(StopSignal())

    run(test)


def test_draining_finishes_what_is_in_hand_and_waits_for_no_watcher(tiny_bundle: Path) -> None:
    async def test() -> None:
        async with serving(tiny_bundle, n_slots=2) as (app, stub, channel):
            alone = await generate(stub, request(3, seconds=2.0))
            health: Any = health_pb2_grpc.HealthStub(channel)
            watch = health.Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            calls = [stub.Generate(request(3, seconds=2.0)) for _ in range(8)]
            await asyncio.gather(*(call.initial_metadata() for call in calls))  # sent once accepted
            drained = asyncio.create_task(app.drain(StopSignal()))
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            for call in calls:
                assert b"".join([reply.codes.data async for reply in call]) == alone
            # The grace period is as long as the test's patience: who waits for the watcher fails.
            await asyncio.wait_for(drained, PATIENCE_SECONDS / 2)

    run(test)


def test_the_codes_of_one_request_agree_between_servers_of_any_size(tiny_bundle: Path) -> None:
    notes: list[bytes] = []

    async def test(n_slots: int) -> None:
        async with serving(tiny_bundle, n_slots=n_slots) as (_, stub, _channel):
            notes.extend(await asyncio.gather(*(generate(stub, request(7)) for _ in range(n_slots))))

    for n_slots in (1, 3):
        run(lambda n=n_slots: test(n))  # type: ignore[misc]
    assert len(notes) == 4
    assert np.frombuffer(notes[0], "<u2").size > 20
    assert len(set(notes)) == 1
