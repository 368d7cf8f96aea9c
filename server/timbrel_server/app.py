"""A server's life: listen, load, serve, drain."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import grpc
from grpc_reflection.v1alpha import reflection

from timbrel_bundle.bundle import Bundle
from timbrel_server.config import ServerConfig
from timbrel_server.convert import frame_rate, token_layout
from timbrel_server.engine_pool import EnginePool
from timbrel_server.grpc_types import Interceptor
from timbrel_server.health import Health
from timbrel_server.interceptors import CallsInProgress, ErrorInterceptor, TokenInterceptor
from timbrel_server.listener import SERVER_OPTIONS, join_address, listen
from timbrel_server.metronome import Metronome
from timbrel_server.note_stream import post_to
from timbrel_server.runner import Runner
from timbrel_server.service import SERVICE_NAME, SynthesizerService
from timbrel_server.sessions import DecoderSessions, open_sessions
from timbrel_server.stop_signal import StopSignal

_log = logging.getLogger(__name__)

LINGER_SECONDS = 1.0
"""For last bytes on their way, once every call has ended."""


async def serve(config: ServerConfig, announce: Callable[[str], None]) -> None:
    """Serves until told to stop, then finishes what is in hand.

    Args:
        announce: takes the ready line, once notes are written.

    Raises:
        BundleError: the bundle is incomplete or damaged.
        ProviderError: the provider cannot be had.
        ListenError: the address cannot be listened on.
    """
    stop = StopSignal()
    stop.watch_signals()
    if config.exit_with_parent:
        stop.watch_standard_input()
    bundle = await asyncio.to_thread(_open_bundle, config)
    app = App(config, bundle)
    try:
        await app.start()
        if not stop.is_set:
            announce(app.ready_line)
        await stop.wait()
    finally:
        await app.drain(stop)


class App:
    """The parts of one server, and the order in which they start and stop."""

    def __init__(self, config: ServerConfig, bundle: Bundle) -> None:
        self._config = config
        self._bundle = bundle
        self._calls = CallsInProgress()
        guards: list[Interceptor] = [ErrorInterceptor(self._calls)]
        if config.token is not None:
            guards.append(TokenInterceptor(config.token))
        self._server = grpc.aio.server(interceptors=guards, options=SERVER_OPTIONS)
        self._service = SynthesizerService(bundle)
        self._server.add_generic_rpc_handlers((self._service.handler(),))
        self._health = Health(self._server, SERVICE_NAME)
        names = (SERVICE_NAME, "grpc.health.v1.Health", reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        self._engine: EnginePool | None = None
        self._address = ""
        self._provider = ""

    @property
    def address(self) -> str:
        """HOST:PORT, once started."""
        return self._address

    @property
    def engine(self) -> EnginePool | None:
        """None until it has warmed up."""
        return self._engine

    @property
    def ready_line(self) -> str:
        """What a started server says: where it is, what it serves, and what it really runs on."""
        return (
            f"timbrel ready on {self._address} bundle={self._bundle.manifest.name} provider={self._provider}"
        )

    async def start(self) -> None:
        """Listens, then loads and warms up; only then says SERVING. Until then calls get UNAVAILABLE."""
        await self._health.set_serving(False)
        port = listen(self._server, self._config.host, self._config.port)
        self._address = join_address(self._config.host, port)
        await self._server.start()
        sessions, runners = await asyncio.to_thread(self._load)
        self._provider = sessions.provider
        self._engine = self._start_engine(runners)
        self._service.attach(self._engine, sessions)
        await self._health.set_serving(True)

    async def drain(self, stop: StopSignal) -> None:
        """Takes no more calls, gives those in hand the grace period, or none in a hurry; ends the engine."""
        await self._health.drain()
        self._service.drain()
        closing = asyncio.create_task(self._server.stop(self._config.grace_seconds))
        enough = [
            closing,
            asyncio.create_task(self._calls.wait_for_none()),
            asyncio.create_task(stop.wait_for_hurry()),
        ]
        await asyncio.wait(enough, return_when=asyncio.FIRST_COMPLETED)
        in_hurry = enough[2].done()
        for task in enough:
            task.cancel()
        await asyncio.wait(enough)
        # Who watches the health service never hangs up: such calls are all that is left now, but for a hurry.
        await self._server.stop(0.0 if in_hurry else LINGER_SECONDS)
        await self._service.close()
        if self._engine is not None:
            await asyncio.to_thread(self._engine.stop)

    def _load(self) -> tuple[DecoderSessions, list[Runner]]:
        """The graphs, and a runner for each device: one."""
        sessions = open_sessions(self._bundle, self._config.provider, self._config.n_threads)
        return sessions, [Runner(sessions, self._bundle.manifest, self._config.n_slots)]

    def _start_engine(self, runners: list[Runner]) -> EnginePool:
        loop = asyncio.get_running_loop()

        def on_death() -> None:
            asyncio.run_coroutine_threadsafe(self._health.set_serving(False), loop)

        manifest = self._bundle.manifest
        engine = EnginePool(
            runners,
            token_layout(manifest),
            self._config.queue_capacity,
            post_to(loop),
            on_death,
            metronome=Metronome(frame_rate(manifest)),
        )
        engine.start()
        return engine


def _open_bundle(config: ServerConfig) -> Bundle:
    """A server hands out any of the bundle's files, so it wants them all there."""
    bundle = Bundle.open(config.bundle)
    bundle.require()
    _ = bundle.timbre_map  # read now, so that a damaged one is told now
    return bundle
