"""A real server inside the test, so that its slots can be looked at."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from waiting import PATIENCE_SECONDS, wait_for_async

from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server.app import App
from timbrel_server.config import BundleSource, ServerConfig
from timbrel_server.decoder.runner import Runner
from timbrel_server.served_bundles.engine_loader import open_bundles
from timbrel_server.signals import StopSignal


@contextlib.asynccontextmanager
async def serving(bundle: Path, **options: Any) -> AsyncIterator[tuple[App, Any, grpc.aio.Channel]]:
    """A running server, and a stub and channel to it."""
    sources = (BundleSource(bundle),)
    config = ServerConfig(bundles=sources, port=0, n_threads=1, grace_seconds=PATIENCE_SECONDS, **options)
    app = App(config, open_bundles(config))
    try:
        await app.start(StopSignal())
        async with grpc.aio.insecure_channel(app.address) as channel:
            yield app, pb_grpc.SynthesizerStub(channel), channel
    finally:
        with pytest.MonkeyPatch.context() as patched:
            # Nobody calls any more, who would be kept away for a moment.
            patched.setattr(app._server._calls, "wait_for_quiet", partial(asyncio.sleep, 0.0))
            await app.drain(StopSignal())


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Runs an asynchronous test, for two minutes at most: what it waits for in vain is told before that."""

    async def bounded() -> None:
        await asyncio.wait_for(test(), 2 * PATIENCE_SECONDS)

    asyncio.run(bounded())


@contextlib.contextmanager
def slow_steps(seconds: float = 0.25) -> Iterator[None]:
    """In it a step takes so long: a note of the tiny bundle, of 94, outlasts what is done beside it."""
    step = Runner.step

    def slow(self: Runner, *arguments: Any, **options: Any) -> Any:
        time.sleep(seconds)
        return step(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Runner, "step", slow)
        yield


async def reload(app: App) -> None:
    """Reads everything anew, as at SIGHUP, and returns once bundles are loaded."""
    await app._reloader.begin()
    assert app._reloader._loading is not None
    await app._reloader._loading


async def wait_until_idle(app: App) -> None:
    engine = app.engine
    assert engine is not None
    await wait_for_async(
        lambda: engine.n_occupied == engine.n_waiting == 0,
        "every slot to be free",
        seen=lambda: f"{engine.n_occupied} in use, {engine.n_waiting} requests wait",
    )
