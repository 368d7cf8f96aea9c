"""Health: whether the server lives, and whether it is ready, by grpc.health.v1 and for other askers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

_aio: Any = health.aio  # type: ignore[attr-defined]  # grpc-stubs does not know it

LIVENESS = "liveness"
"""Service name: SERVING unless the process should be started anew."""

READINESS = "readiness"
"""Service name: SERVING while notes are written, as the server as a whole and each of its services."""

LONGEST_SILENCE_SECONDS = 15.0
"""An event loop that has not come round for so long is stuck."""


class Health:
    """Says that the server is alive but not ready, until told otherwise.

    Not ready while it loads, while it drains, and once an engine has failed; not alive in the last case only.
    """

    def __init__(self, server: grpc.aio.Server, service_names: Sequence[str]) -> None:
        self._names = (health.OVERALL_HEALTH, READINESS, *service_names)
        self._servicer: Any = _aio.HealthServicer()
        self._closed = False
        self._ready = False
        self._failed = False
        self._last_beat = time.monotonic()
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    @property
    def is_ready(self) -> bool:
        """Whether notes are written. From any thread, as the next."""
        return self._ready

    @property
    def is_alive(self) -> bool:
        """Whether the process need not be started anew: no engine failed, and the event loop comes round."""
        return not self._failed and time.monotonic() - self._last_beat < LONGEST_SILENCE_SECONDS

    def beat(self) -> None:
        """Says that the event loop comes round; to be called every second or so."""
        self._last_beat = time.monotonic()

    async def begin(self) -> None:
        """Says from now on: alive, not ready."""
        await self._state(LIVENESS, True)
        await self._set_ready(False)

    async def set_ready(self) -> None:
        """Says from now on: notes are written. Without effect once the server is draining or has failed."""
        if not self._closed:
            await self._set_ready(True)

    async def drain(self) -> None:
        """Says from now on: not ready, for good."""
        self._closed = True
        await self._set_ready(False)

    async def fail(self) -> None:
        """Says from now on: neither ready nor alive, for good."""
        self._failed = True
        await self.drain()
        await self._state(LIVENESS, False)

    async def _set_ready(self, ready: bool) -> None:
        self._ready = ready
        for name in self._names:
            await self._state(name, ready)

    async def _state(self, name: str, serving: bool) -> None:
        kind = health_pb2.HealthCheckResponse
        await self._servicer.set(name, kind.SERVING if serving else kind.NOT_SERVING)
