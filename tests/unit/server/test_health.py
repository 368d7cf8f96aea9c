"""Health over gRPC: who watches is told of every change, whatever other watchers do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hostile_floods import FloodPeer
from hostile_peer import message

from timbrel_server.rpc.health import LIVENESS, READINESS, Health

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
WATCH = "/grpc.health.v1.Health/Watch"
PATIENCE_SECONDS = 60.0


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), PATIENCE_SECONDS)

    asyncio.run(bounded())


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[Health, Callable[[str], Any], str]]:
    """Health, served alone; what watches a service; and the server's address."""
    server = grpc.aio.server()
    health = Health(server, ["timbrel.v1.Synthesizer"])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        yield health, lambda name: stub.Watch(health_pb2.HealthCheckRequest(service=name)), address
        await server.stop(0)


async def told(watch: Any) -> int:
    return int((await watch.read()).status)


def test_every_change_is_told() -> None:
    async def test() -> None:
        async with serving() as (health, watch, _):
            ready, alive, unknown = watch(READINESS), watch(LIVENESS), watch("of another house")
            assert [await told(each) for each in (ready, alive, unknown)] == [
                NOT_SERVING,
                SERVING,
                SERVICE_UNKNOWN,
            ]
            health.set_ready()
            assert await told(ready) == SERVING
            health.fail()
            assert [await told(ready), await told(alive)] == [NOT_SERVING, NOT_SERVING]
            health.set_ready()
            assert not health.is_ready and not health.is_alive

    run(test)


def test_a_watcher_who_reads_nothing_holds_up_nobody() -> None:
    async def test() -> None:
        async with serving() as (health, watch, address):
            with FloodPeer(address, own_window=0) as peer:
                for name in ("", READINESS):
                    body = message(health_pb2.HealthCheckRequest(service=name).SerializeToString())
                    await asyncio.to_thread(peer.open, WATCH, body=body, end=True)
                await asyncio.to_thread(peer.pump, seconds=0.2)
                watching = watch(READINESS)
                assert await told(watching) == NOT_SERVING
                health.set_ready()
                assert await told(watching) == SERVING
                health.drain()
                assert await told(watching) == NOT_SERVING

    run(test)


def test_a_watcher_who_leaves_takes_nothing_from_the_others() -> None:
    async def test() -> None:
        async with serving() as (health, watch, _):
            stays, leaves = watch(READINESS), watch(READINESS)
            assert [await told(stays), await told(leaves)] == [NOT_SERVING, NOT_SERVING]
            leaves.cancel()
            await asyncio.sleep(0.1)
            health.set_ready()
            assert await told(stays) == SERVING

    run(test)
