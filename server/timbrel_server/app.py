"""A server's life: listen, load, serve, drain."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Sequence

from timbrel_bundle.runtime import load_runtime
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.hangup_signal import HangupSignal
from timbrel_server.serving.engine_setup import EngineSetup, open_bundles
from timbrel_server.serving.reload import Reloader
from timbrel_server.serving.served_bundle import ServedBundle
from timbrel_server.serving.shelf import Shelf
from timbrel_server.settings.config import ServerConfig
from timbrel_server.stop_signal import StopSignal
from timbrel_server.watching.telemetry import Telemetry
from timbrel_server.watching.watchdog import Watchdog
from timbrel_server.wire.front import Front

_log = logging.getLogger(__name__)

FAILED_ENGINE_SECONDS = 1.0
"""How long to wait for the thread of an engine that has stalled."""


async def serve(config: ServerConfig, announce: Callable[[str], None]) -> bool:
    """Serves until told to stop, then finishes what is in hand. SIGHUP reads anew what can be read anew.

    Args:
        announce: takes the ready line, once notes are written.

    Returns:
        False where an engine failed.

    Raises:
        ConfigError: tokens or certificates make no sense.
        BundleError: a bundle is incomplete or damaged.
        ProviderError: the provider cannot be had.
        ListenError: an address cannot be listened on.
    """
    stop, hangup = StopSignal(), HangupSignal()
    stop.watch_signals()
    hangup.watch_signal()
    if config.exit_with_parent:
        stop.watch_standard_input()
    load_runtime()
    # What has been imported stays: looked through for garbage again and again, it would stop everything for
    # some 7 milliseconds each time. Bundles, which can be replaced, come later.
    gc.freeze()
    app = App(config, await asyncio.to_thread(open_bundles, config))
    try:
        await app.start()
        if not stop.is_set:
            announce(app.ready_line)
        await app.run(stop, hangup)
    finally:
        await app.drain(stop)
    return not app.has_failed


class App:
    """The parts of one server, and the order in which they start and stop."""

    def __init__(self, config: ServerConfig, bundles: Sequence[ServedBundle]) -> None:
        """
        Args:
            bundles: opened, without engines, in the order of the configuration's.
        """
        self._config = config
        self._shelf = Shelf(bundles)
        self._telemetry = Telemetry(config)
        self._front = Front(config, self._shelf, self._telemetry.calls, self._telemetry.tracer)
        self._failed = asyncio.Event()
        self._setup = EngineSetup(config, self._fail, self._telemetry.engine_observer)
        self._reloader = Reloader(
            self._front.doorkeeper,
            self._front.certificates,
            config.bundles,
            self._shelf,
            self._setup,
            self._telemetry.count_reload,
        )
        self._watchdog = Watchdog(self._shelf, self._front.health, config.stall_seconds, self._fail)
        self._watching: asyncio.Task[None] | None = None
        self._failing: asyncio.Task[None] | None = None  # says so

    @property
    def address(self) -> str:
        """HOST:PORT, once started."""
        return self._front.address

    @property
    def engine(self) -> EnginePool | None:
        """The first bundle's. None until it has warmed up."""
        return self._shelf.find().engine

    @property
    def has_failed(self) -> bool:
        """Whether an engine has died or stalled."""
        return self._failed.is_set()

    @property
    def ready_line(self) -> str:
        """What a started server says: where it is, what it serves, and what it really runs on."""
        names = ",".join(served.name for served in self._shelf)
        line = (
            f"timbrel ready on {self.address} bundle={names} provider={self._shelf.find().sessions.provider}"
        )
        return f"{line} metrics={self._telemetry.address}" if self._telemetry.address else line

    async def start(self) -> None:
        """Listens, then loads and warms up; only then says SERVING. Until then calls get UNAVAILABLE."""
        await self._front.start()
        self._telemetry.start(self._shelf, self._front.health)
        self._watching = asyncio.create_task(self._watchdog.run())
        for served in self._shelf:
            await self._setup.start(served)
        await self._front.health.set_ready()

    async def run(self, stop: StopSignal, hangup: HangupSignal) -> None:
        """Returns once told to stop, or when an engine has failed and everybody had time to notice."""
        reloading = asyncio.create_task(hangup.repeat(self._reloader.reload))
        stopping = asyncio.create_task(stop.wait())
        failing = asyncio.create_task(self._failed.wait())
        try:
            await asyncio.wait((stopping, failing), return_when=asyncio.FIRST_COMPLETED)
            if self._failing is not None:
                await self._failing
                await asyncio.wait((stopping,), timeout=self._config.failure_grace_seconds)
        finally:
            for task in (reloading, stopping, failing):
                task.cancel()
            await asyncio.gather(reloading, stopping, failing, return_exceptions=True)

    async def drain(self, stop: StopSignal) -> None:
        """Takes no more calls, gives those in hand the grace period, or none in a hurry; ends the engines."""
        await self._front.drain(stop)
        if self._watching is not None:
            self._watching.cancel()
        await self._reloader.close()
        for served in self._shelf:
            await asyncio.to_thread(served.close, FAILED_ENGINE_SECONDS if self.has_failed else None)
        await asyncio.to_thread(self._telemetry.close)

    def _fail(self, bundle: str) -> None:
        _log.critical("the engine of %s has failed: this server ends", bundle)
        self._failed.set()
        self._failing = asyncio.create_task(self._front.health.fail())
