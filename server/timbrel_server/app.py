"""The life of a server: listen, load, serve, drain."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Sequence

from timbrel_bundle.runtime import load_runtime
from timbrel_server.config import ServerConfig
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.grpc_server import GrpcServer
from timbrel_server.limits import return_memory
from timbrel_server.observability.telemetry import Telemetry
from timbrel_server.observability.watchdog import Watchdog
from timbrel_server.served_bundles.engine_loader import EngineLoader, open_bundles
from timbrel_server.served_bundles.reload import Reloader
from timbrel_server.served_bundles.served_bundle import BundleRegistry, ServedBundle
from timbrel_server.signals import HangupSignal, StopSignal

_log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
"""Threads have this time to end, once no call is in hand. A step that has stalled never does."""

SHORT_CLOSE_SECONDS = 1.0
"""The same where an engine has failed, which may have stalled, and where a second signal asks for a hurry."""


async def serve(
    config: ServerConfig, announce: Callable[[str], None], leave_at_once: Callable[[bool], None]
) -> bool:
    """Serves until told to stop, then finishes what is in hand. SIGHUP reads anew what can be read anew.

    Args:
        announce: takes the ready line, once notes are written.
        leave_at_once: ends the process, whatever its threads do; takes what this function would return.
            Called where some thread does not end in time, and soon after a second signal.

    Returns:
        False where an engine failed.

    Raises:
        ConfigError: tokens or certificates make no sense.
        BundleError: a bundle is incomplete or damaged.
        ProviderError: the provider cannot be had.
        ListenError: an address cannot be listened on.
    """
    stop, hangup = StopSignal(second_hurries=not config.has_parent), HangupSignal()
    stop.watch_signals()
    if config.exit_with_parent:
        stop.watch_standard_input()
    app: App | None = None

    async def leave_in_a_hurry() -> None:
        await stop.hurry.wait()
        await asyncio.sleep(SHORT_CLOSE_SECONDS)
        leave_at_once(app is None or not app.has_failed)

    leaving = asyncio.create_task(leave_in_a_hurry())
    load_runtime()
    # What has been imported stays: looked through for garbage again and again, it would stop everything for
    # some 7 milliseconds each time. Bundles, which can be replaced, come later.
    gc.freeze()
    try:
        app = App(config, await asyncio.to_thread(open_bundles, config))
        try:
            await app.start(stop)
            if not stop.asked.is_set():
                announce(app.ready_line)
            await app.run(stop, hangup)
        finally:
            await app.drain(stop)
        if not await _threads_end(SHORT_CLOSE_SECONDS):
            _log.warning("some thread does not end: this server ends without it")
            leave_at_once(not app.has_failed)
    finally:
        leaving.cancel()
    return not app.has_failed


async def _threads_end(seconds: float) -> bool:
    """Whether all that `asyncio.to_thread` has begun ends in so many seconds."""
    ending = asyncio.create_task(asyncio.get_running_loop().shutdown_default_executor())
    return bool((await asyncio.wait((ending,), timeout=seconds))[0])


class App:
    """The parts of one server, and the order in which they start and stop."""

    def __init__(self, config: ServerConfig, bundles: Sequence[ServedBundle]) -> None:
        """
        Args:
            bundles: opened, without engines, in the order of the configuration's.
        """
        self._config = config
        self._bundles = BundleRegistry(bundles)
        self._telemetry = Telemetry(config)
        self._server = GrpcServer(config, self._bundles, self._telemetry.calls, self._telemetry.tracer)
        self._failed = asyncio.Event()
        self._loader = EngineLoader(config, self._engine_failed, self._telemetry.engine_observer)
        self._reloader = Reloader(
            self._server.auth,
            self._server.certificates,
            config.bundles,
            self._bundles,
            self._loader,
            self._telemetry.count_reload,
        )
        self._watchdog = Watchdog(
            self._bundles, self._server.health, config.stall_seconds, self._engine_failed
        )
        self._watching: Sequence[asyncio.Task[None]] = ()

    @property
    def address(self) -> str:
        """HOST:PORT, once started."""
        return self._server.address

    @property
    def engine(self) -> EnginePool | None:
        """The first bundle's. None until it has warmed up."""
        return self._bundles.find().engine

    @property
    def has_failed(self) -> bool:
        """Whether an engine has died or stalled."""
        return self._failed.is_set()

    @property
    def ready_line(self) -> str:
        """The line that a started server says: where it is, what it serves, and what it really runs on."""
        names = ",".join(served.name for served in self._bundles)
        provider = self._bundles.find().sessions.provider
        line = f"timbrel ready on {self.address} bundle={names} provider={provider}"
        return f"{line} metrics={self._telemetry.address}" if self._telemetry.address else line

    async def start(self, stop: StopSignal) -> None:
        """Listens, then loads and warms up; only then says SERVING. Until then calls get UNAVAILABLE; where
        others listen on the port, too, they are to get all of them until then. Told to stop, it loads no
        further bundle."""
        if not self._config.reuse_port:
            await self._server.start()
        certificates = self._server.certificates
        self._telemetry.start(self._bundles, self._server.limits, self._server.health, certificates)
        self._watching = [asyncio.create_task(self._watchdog.run())]
        if certificates is not None:
            self._watching.append(asyncio.create_task(certificates.watch(self._reloader.renew_certificates)))
        for served in self._bundles:
            await self._loader.start(served)
            if stop.asked.is_set():
                return
        if self._config.reuse_port:
            await self._server.start()
        self._watching.append(asyncio.create_task(return_memory()))
        self._server.health.set_ready()

    async def run(self, stop: StopSignal, hangup: HangupSignal) -> None:
        """Returns once told to stop, or when an engine has failed and everybody had time to notice."""
        reloading = asyncio.create_task(hangup.repeat(self._reloader.begin))
        stopping = asyncio.create_task(stop.asked.wait())
        failing = asyncio.create_task(self._failed.wait())
        try:
            await asyncio.wait((stopping, failing), return_when=asyncio.FIRST_COMPLETED)
            if self.has_failed:
                await asyncio.wait((stopping,), timeout=self._config.failure_grace_seconds)
        finally:
            self._reloader.stop()
            for task in (reloading, stopping, failing):
                task.cancel()
            await asyncio.gather(reloading, stopping, failing, return_exceptions=True)

    async def drain(self, stop: StopSignal) -> None:
        """Takes no more calls, gives those in hand the grace period, or none in a hurry; ends the engines, as
        far as their threads end in time."""
        await self._server.drain(stop)
        for task in self._watching:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHORT_CLOSE_SECONDS if self.has_failed else CLOSE_SECONDS):
                await self._reloader.close()
                for served in self._bundles:
                    await asyncio.to_thread(served.close)
        await asyncio.to_thread(self._telemetry.close)

    def _engine_failed(self, served: ServedBundle) -> None:
        """One that another has taken the place of has failed its last notes, and nothing else."""
        if served in tuple(self._bundles):
            self._fail(served.name)
        else:
            _log.error("the engine of %s that was replaced has failed with its last notes", served.name)

    def _fail(self, bundle: str) -> None:
        _log.critical("the engine of %s has failed: this server ends", bundle)
        self._server.health.fail()
        self._failed.set()
