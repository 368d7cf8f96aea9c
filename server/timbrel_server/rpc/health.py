"""Health: whether the server lives, and whether it is ready, by grpc.health.v1 and for other askers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from timbrel_server.errors import NotFoundError, shortened
from timbrel_server.rpc.handlers import Context

LIVENESS = "liveness"
"""Service name: SERVING unless the process should be started anew."""

READINESS = "readiness"
"""Service name: SERVING while notes are written, as the server as a whole and each of its services."""

WHOLE_SERVER = ""
"""The service name that stands for the server as a whole."""

LONGEST_SILENCE_SECONDS = 15.0
"""An event loop that has not come round for so long is stuck."""


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # has no types
    """The service grpc.health.v1.Health: says that the server is alive but not ready, until told otherwise.

    Not ready while it loads, while it drains, and once an engine has failed; not alive in the last case only.
    For one event loop, but for `is_ready` and `is_alive`.

    The servicer of grpcio-health-checking holds a lock while it writes to a watcher, and waits for the same
    lock to set a status: a single watcher who reads nothing would keep the server from draining. Its base has
    whatever methods the installed version registers.
    """

    def __init__(self, server: grpc.aio.Server, service_names: Sequence[str]) -> None:
        self._names = (WHOLE_SERVER, READINESS, *service_names)
        self._closed = False
        self.is_ready = False
        """Whether notes are written. From any thread."""
        self._failed = False
        self._last_beat = time.monotonic()
        self._statuses: dict[str, health_pb2.HealthCheckResponse.ServingStatus] = {}
        self._changed = asyncio.Event()  # another one after each change
        self._set_ready(False)
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    @property
    def is_alive(self) -> bool:
        """Whether the process need not be started anew: no engine failed, and the event loop comes round.
        From any thread."""
        return not self._failed and time.monotonic() - self._last_beat < LONGEST_SILENCE_SECONDS

    def beat(self) -> None:
        """Says that the event loop comes round; to be called every second or so."""
        self._last_beat = time.monotonic()

    def set_ready(self) -> None:
        """Says from now on: notes are written. Without effect once the server is draining or has failed."""
        if not self._closed:
            self._set_ready(True)

    def drain(self) -> None:
        """Says from now on: not ready, for good."""
        self._closed = True
        self._set_ready(False)

    def fail(self) -> None:
        """Says from now on: neither ready nor alive, for good."""
        self._failed = True
        self.drain()

    def _set_ready(self, ready: bool) -> None:
        """Says so of every service, and wakes all watchers."""
        self.is_ready = ready
        kind = health_pb2.HealthCheckResponse
        serving = {LIVENESS: not self._failed, **dict.fromkeys(self._names, ready)}
        self._statuses = {name: kind.SERVING if yes else kind.NOT_SERVING for name, yes in serving.items()}
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Answers with a service's status. Raises NotFoundError where there is no such service."""
        status = self._statuses.get(request.service)
        if status is None:
            raise NotFoundError(f"there is no service {shortened(request.service)!r}")
        return health_pb2.HealthCheckResponse(status=status)

    async def List(self, request: Any, context: Context) -> Any:
        """Answers with the status of every service. Asked for by grpcio-health-checking 1.85 and newer, which
        have its messages."""
        reply: Any = health_pb2.HealthListResponse()
        for name, status in self._statuses.items():
            reply.statuses[name].status = status
        return reply

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Answers with a service's status now, and again after each change, for good. A change and back that
        come while a reply is on its way are not told."""
        told = None
        while True:
            changed = self._changed  # looked up before the status is: a change meanwhile sets this one
            status = self._statuses.get(request.service, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
            if status != told:
                yield health_pb2.HealthCheckResponse(status=status)
                told = status
            await changed.wait()
