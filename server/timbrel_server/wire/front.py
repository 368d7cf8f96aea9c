"""The gRPC server: its services, what stands around every call, and its address."""

from __future__ import annotations

import asyncio

import grpc
from grpc_reflection.v1alpha import reflection

from timbrel_server.access.certificates import Certificates
from timbrel_server.access.doorkeeper import Doorkeeper
from timbrel_server.api.service import SERVICE_NAME, SynthesizerService
from timbrel_server.inference.service import INFERENCE_SERVICE_NAME, InferenceService
from timbrel_server.serving.shelf import Shelf
from timbrel_server.settings.config import ServerConfig
from timbrel_server.stop_signal import StopSignal
from timbrel_server.wire.call_records import CallObserver, CallRecorder, CallTracer
from timbrel_server.wire.calls_in_progress import CallsInProgress
from timbrel_server.wire.failures import FailureGuard
from timbrel_server.wire.health import Health
from timbrel_server.wire.interceptors import GuardInterceptor
from timbrel_server.wire.listener import join_address, listen, server_options

LINGER_SECONDS = 1.0
"""For last bytes on their way, once every call has ended."""


class Front:
    """Answers calls from what stands on the shelf."""

    def __init__(
        self,
        config: ServerConfig,
        shelf: Shelf,
        observer: CallObserver | None,
        tracer: CallTracer | None = None,
    ) -> None:
        """
        Raises:
            ConfigError: tokens or certificates make no sense.
            OSError: they cannot be read.
        """
        self._config = config
        self._calls = CallsInProgress()
        self.doorkeeper = Doorkeeper(config)
        self.certificates = Certificates.of(config)
        guards = GuardInterceptor(
            (CallRecorder(observer, tracer), FailureGuard(self._calls), self.doorkeeper)
        )
        self._server = grpc.aio.server(interceptors=(guards,), options=server_options(config))
        self._service = SynthesizerService(shelf, config.max_in_flight)
        self._inference = InferenceService(shelf, config.max_batch, config.max_in_flight)
        self._server.add_generic_rpc_handlers((self._service.handler(), self._inference.handler()))
        names = (SERVICE_NAME, INFERENCE_SERVICE_NAME)
        self.health = Health(self._server, names)
        reflection.enable_server_reflection(
            (*names, "grpc.health.v1.Health", reflection.SERVICE_NAME), self._server
        )
        self.address = ""
        """HOST:PORT, once started."""

    async def start(self) -> None:
        """Listens; nothing is said to be served as yet.

        Raises:
            ListenError: the address cannot be listened on.
        """
        await self.health.begin()
        config = self._config
        credentials = self.certificates.credentials() if self.certificates is not None else None
        port = listen(self._server, config.host, config.port, credentials)
        self.address = join_address(config.host, port)
        await self._server.start()

    async def drain(self, stop: StopSignal) -> None:
        """Takes no more calls; gives those in hand the grace period, or none in a hurry."""
        await self.health.drain()
        self._calls.close()
        self._service.drain()
        self._inference.drain()
        ended = asyncio.create_task(self._calls.wait_for_none())
        hurry = asyncio.create_task(stop.wait_for_hurry())
        grace = self._config.grace_seconds
        await asyncio.wait((ended, hurry), timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        in_hurry = hurry.done() or not ended.done()
        for task in (ended, hurry):
            task.cancel()
        await asyncio.wait((ended, hurry))
        # Who watches the health service never hangs up: such calls are all that is left now, but for a hurry.
        await self._server.stop(0.0 if in_hurry else LINGER_SECONDS)
