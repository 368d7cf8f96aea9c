"""A real server inside the test, so that its slots can be looked at."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server.app import App
from timbrel_server.config import BundleSource, ServerConfig
from timbrel_server.served_bundles.engine_loader import open_bundles
from timbrel_server.signals import StopSignal

PATIENCE_SECONDS = 60.0


@contextlib.asynccontextmanager
async def serving(bundle: Path, **options: Any) -> AsyncIterator[tuple[App, Any, grpc.aio.Channel]]:
    """A running server, and a stub and channel to it."""
    sources = (BundleSource(bundle),)
    config = ServerConfig(bundles=sources, port=0, n_threads=1, grace_seconds=PATIENCE_SECONDS, **options)
    app = App(config, open_bundles(config))
    try:
        await app.start()
        async with grpc.aio.insecure_channel(app.address) as channel:
            yield app, pb_grpc.SynthesizerStub(channel), channel
    finally:
        await app.drain(StopSignal())


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Runs an asynchronous test, for a minute at most."""

    async def bounded() -> None:
        await asyncio.wait_for(test(), PATIENCE_SECONDS)

    asyncio.run(bounded())


async def wait_until_idle(app: App) -> None:
    assert app.engine is not None
    while app.engine.n_occupied or app.engine.n_waiting:
        await asyncio.sleep(0.005)
