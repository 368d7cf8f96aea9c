"""Where a recording that was dropped on the map lies."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from timbrel.core.location import Location, locate_request, location_from_pb
from timbrel.errors import DeadlineExceededError
from timbrel.explore.attention import while_attended
from timbrel.explore.parameters import read_query
from timbrel.explore.recording import decode_recording
from timbrel.explore.upload import read_body
from timbrel.explore.upstream import Upstream
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MAX_BYTES = 32 * 2**20
MAX_AT_ONCE = 2
"""Recordings in hand; more wait."""

UPLOAD_SECONDS = 60.0
"""Who sends slowly keeps others waiting."""

N_NEAREST = 8


class Locating:
    """POST /api/locate."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._room = asyncio.Semaphore(MAX_AT_ONCE)

    async def locate(self, request: Request) -> Response:
        pitch = read_query(request.query_params, frozenset({"pitch"}), whole=frozenset())
        async with self._room:
            content = await self._receive(request)
            location = await while_attended(request, self._locate(content, pitch.get("pitch")))
        return JSONResponse({**_to_json(location), **pitch})

    async def _receive(self, request: Request) -> bytes:
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                return await read_body(request, MAX_BYTES, "the recording")
        except TimeoutError:
            raise DeadlineExceededError(
                f"the recording did not arrive within {UPLOAD_SECONDS:g} seconds"
            ) from None

    async def _locate(self, content: bytes, pitch: float | None) -> Location:
        manifest = await self._upstream.manifest()
        asked = await asyncio.to_thread(_prepare, content, pitch, manifest)
        found = await self._upstream.locate(asked)
        return location_from_pb(found, manifest.bundle_hash, N_NEAREST)


def _prepare(content: bytes, pitch: float | None, manifest: pb.Manifest) -> pb.LocateRequest:
    samples, rate = decode_recording(content)
    return locate_request(samples, rate, pitch, manifest)


def _to_json(location: Location) -> dict[str, object]:
    x, y = location.timbre
    nearest = [
        {
            "instrument": each.name,
            "family": each.family,
            "x": each.timbre[0],
            "y": each.timbre[1],
            "distance": round(each.distance, 6),
        }
        for each in location.nearest
    ]
    return {"x": x, "y": y, "nearest": nearest}
