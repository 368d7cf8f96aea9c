"""grpc.health.v1 for the server as a whole and for its one service."""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

_aio: Any = health.aio  # type: ignore[attr-defined]  # grpc-stubs does not know it


class Health:
    """NOT_SERVING until told otherwise."""

    def __init__(self, server: grpc.aio.Server, service_name: str) -> None:
        self._names = (health.OVERALL_HEALTH, service_name)
        self._servicer: Any = _aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def set_serving(self, serving: bool) -> None:
        """States whether notes are written here. Without effect once the server is draining."""
        kind = health_pb2.HealthCheckResponse
        for name in self._names:
            await self._servicer.set(name, kind.SERVING if serving else kind.NOT_SERVING)

    async def drain(self) -> None:
        """NOT_SERVING for good."""
        await self._servicer.enter_graceful_shutdown()
