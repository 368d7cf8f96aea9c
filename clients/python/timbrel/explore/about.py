"""What the page asks before anything sounds: the model, the map, and whether all is well."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from timbrel.core.model import Model, model_from_pb
from timbrel.core.timbre import Instrument, instrument_from_pb
from timbrel.errors import TimbrelError
from timbrel.explore.faults import fault_of
from timbrel.explore.upstream import PROBE_SECONDS, Upstream

FRESH = {"cache-control": "no-store"}


class About:
    """/api/model, /api/map and /api/health."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def model(self, _: Request) -> Response:
        model = model_from_pb(await self._upstream.model())
        return JSONResponse(_model_json(model, self._upstream.backend.name), headers=FRESH)

    async def timbre_map(self, _: Request) -> Response:
        points = [instrument_from_pb(point) for point in (await self._upstream.timbre_map()).points]
        return JSONResponse({"points": [_point_json(each) for each in points]}, headers=FRESH)

    async def health(self, _: Request) -> Response:
        """200 also where the server is away: the bridge itself is well."""
        told: dict[str, str] = {"bridge": "ok", "server": "serving"}
        try:
            await self._upstream.model(PROBE_SECONDS)
        except TimbrelError as error:
            told |= {"server": "away", "message": fault_of(error).message}
        return JSONResponse(told, headers=FRESH)


def _model_json(model: Model, server: str) -> dict[str, Any]:
    sampling = model.default_sampling
    return {
        "name": model.name,
        "bundle_hash": model.bundle_hash,
        "sample_rate": model.sample_rate,
        "frame_rate": model.frame_rate,
        "pitch": list(model.pitch_range),
        "velocity": list(model.velocity_range),
        "seconds": list(model.seconds_range),
        "sampling": {
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
        },
        "n_slots": model.n_slots,
        "precision": model.precision,
        "provider": model.provider,
        "server": server,
        "version": version("timbrel"),
    }


def _point_json(instrument: Instrument) -> dict[str, Any]:
    x, y = instrument.timbre
    return {
        "instrument": instrument.name,
        "family": instrument.family,
        "x": x,
        "y": y,
        "pitch_min": instrument.pitch_min,
        "pitch_max": instrument.pitch_max,
    }
