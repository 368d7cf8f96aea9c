"""A server that is told to end while one of its threads does not."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for_async

from timbrel_server import app
from timbrel_server.config import BundleSource, ServerConfig
from timbrel_server.served_bundles.engine_loader import EngineLoader
from timbrel_server.served_bundles.served_bundle import ServedBundle
from timbrel_server.signals import StopSignal

PATIENCE_SECONDS = 60.0


class Serving:
    """`serve` of two bundles, with a signal that the test sends, and a thread that ends once the process is
    left at once."""

    def __init__(self, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config = ServerConfig(
            bundles=(BundleSource(bundle, "one"), BundleSource(bundle, "two")), port=0, n_threads=1
        )
        self.left: list[bool] = []
        self.is_blocked = threading.Event()
        self.lines: list[str] = []
        self._may_end = threading.Event()
        self._stop: StopSignal | None = None
        monkeypatch.setattr(StopSignal, "watch_signals", lambda stop: setattr(self, "_stop", stop))
        monkeypatch.setattr(gc, "freeze", lambda: None)
        for name in ("CLOSE_SECONDS", "SHORT_CLOSE_SECONDS"):
            monkeypatch.setattr(app, name, 0.05)

    def blocked(self, action: Callable[..., Any]) -> Callable[..., Any]:
        """The same, but that it waits first until the process is left."""

        def wait(*given: Any, **named: Any) -> Any:
            self.is_blocked.set()
            assert self._may_end.wait(PATIENCE_SECONDS)
            return action(*given, **named)

        return wait

    def signal(self) -> None:
        assert self._stop is not None
        self._stop._ask()

    def run(self, test: Callable[[], Any]) -> bool:
        """What `serve` returns, with the test beside it."""

        async def both() -> bool:
            serving = asyncio.create_task(app.serve(self.config, self.lines.append, self._leave))
            await test()
            return await asyncio.wait_for(serving, PATIENCE_SECONDS)

        return asyncio.run(both())

    def _leave(self, well: bool) -> None:
        self.left.append(well)
        self._may_end.set()


@pytest.fixture
def serving(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> Serving:
    return Serving(tiny_bundle, monkeypatch)


def test_a_thread_that_does_not_end_is_left_behind(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServedBundle, "close", serving.blocked(ServedBundle.close))

    async def test() -> None:
        await wait_for_async(lambda: serving.lines, "the server to be ready")
        serving.signal()

    assert serving.run(test)
    assert serving.left == [True]


def test_told_to_end_while_it_loads_it_loads_no_further_bundle_and_told_again_is_gone(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EngineLoader, "_load", serving.blocked(EngineLoader._load))
    attached: list[str] = []
    attach = ServedBundle.attach
    monkeypatch.setattr(
        ServedBundle, "attach", lambda served, *made: (attached.append(served.name), attach(served, *made))
    )

    async def test() -> None:
        await wait_for_async(serving.is_blocked.is_set, "a bundle to be loaded")
        serving.signal()
        await asyncio.sleep(0.2)
        assert serving.left == []
        serving.signal()
        await wait_for_async(lambda: serving.left, "the server to be left at once")

    assert serving.run(test)
    assert serving.left == [True] and attached == ["one"] and serving.lines == []


def test_one_that_ends_in_order_is_not_left(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLOSE_SECONDS", "SHORT_CLOSE_SECONDS"):
        monkeypatch.setattr(app, name, PATIENCE_SECONDS)

    async def test() -> None:
        await wait_for_async(lambda: serving.lines, "the server to be ready")
        serving.signal()

    assert serving.run(test)
    assert serving.left == []
