"""Health over gRPC: who watches is told of every change, whatever other watchers do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
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


def add_list(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What grpcio-health-checking has from 1.85 on, where the one that is installed is older: the messages of
    List, and a server that asks the servicer for the method. Returns the reply's class."""
    if hasattr(health_pb2, "HealthListResponse"):
        return health_pb2.HealthListResponse
    file = descriptor_pb2.FileDescriptorProto(name="list.proto", package="grpc.health.v1", syntax="proto3")
    file.dependency.append(health_pb2.DESCRIPTOR.name)
    reply = file.message_type.add(name="HealthListResponse")
    entry = reply.nested_type.add(name="StatusesEntry")
    entry.options.map_entry = True
    of = descriptor_pb2.FieldDescriptorProto
    entry.field.add(name="key", number=1, type=of.TYPE_STRING, label=of.LABEL_OPTIONAL)
    kind = {"type": of.TYPE_MESSAGE, "type_name": ".grpc.health.v1.HealthCheckResponse"}
    entry.field.add(name="value", number=2, label=of.LABEL_OPTIONAL, **kind)
    kind["type_name"] = ".grpc.health.v1.HealthListResponse.StatusesEntry"
    reply.field.add(name="statuses", number=1, label=of.LABEL_REPEATED, **kind)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(health_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    listed = message_factory.GetMessageClass(pool.FindMessageTypeByName("grpc.health.v1.HealthListResponse"))
    add_others = health_pb2_grpc.add_HealthServicer_to_server

    def add_all(servicer: Any, server: grpc.aio.Server) -> None:
        handler = grpc.unary_unary_rpc_method_handler(
            servicer.List, response_serializer=listed.SerializeToString
        )
        handlers = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"List": handler})
        server.add_generic_rpc_handlers((handlers,))
        add_others(servicer, server)

    monkeypatch.setattr(health_pb2, "HealthListResponse", listed, raising=False)
    monkeypatch.setattr(health_pb2_grpc, "add_HealthServicer_to_server", add_all)
    return listed


def test_all_services_are_listed_by_a_package_that_knows_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = add_list(monkeypatch)

    async def test() -> None:
        async with serving() as (health, _, address), grpc.aio.insecure_channel(address) as channel:
            health.set_ready()
            health.drain()
            ask = channel.unary_unary("/grpc.health.v1.Health/List", response_deserializer=listed.FromString)
            reply = await ask(b"")
            assert {name: status.status for name, status in reply.statuses.items()} == {
                LIVENESS: SERVING,
                READINESS: NOT_SERVING,
                "": NOT_SERVING,
                "timbrel.v1.Synthesizer": NOT_SERVING,
            }

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
