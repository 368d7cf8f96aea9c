"""The explorer as one ASGI application: the page, what it asks over plain HTTP, and its WebSocket."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute

from timbrel.core.model import model_from_pb
from timbrel.core.timbre import point_of
from timbrel.errors import ServerError, TimbrelError
from timbrel.explore.access import AccessMiddleware, AllowedHosts
from timbrel.explore.http import EXCEPTION_HANDLERS, FRESH, cancel_on_disconnect, error_reply, read_body
from timbrel.explore.instruments import Instruments
from timbrel.explore.parameters import describe_fields, note_request, read_query
from timbrel.explore.recordings import Recordings
from timbrel.explore.session import Session
from timbrel.explore.static import WebFolder
from timbrel.explore.upstream import PROBE_SECONDS, Upstream
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

FORMATS = {"wav": pb.AUDIO_FORMAT_WAV, "flac": pb.AUDIO_FORMAT_FLAC}

MAX_BODY_BYTES = 1024
"""How large the body of a request that needs none may be."""


def make_app(upstream: Upstream, instruments: Instruments, web: Path, host: str) -> AccessMiddleware:
    """Makes the guarded application.

    Args:
        upstream, instruments: must have been entered when the application is asked.
        web: the page's folder.
        host: what is listened on, see `AllowedHosts`.
    """
    server, page, recordings = ServerRoutes(upstream), WebFolder(web), Recordings(upstream)

    starlette = Starlette(
        routes=[
            Route("/", page.index),
            Route("/favicon.ico", page.favicon),
            Route("/static/{path:path}", page.asset),
            Route("/api/health", server.health),
            Route("/api/model", server.model),
            Route("/api/map", server.timbre_map),
            Route("/api/note.wav", partial(server.note, "wav")),
            Route("/api/note.flac", partial(server.note, "flac")),
            Route("/api/locate", recordings.locate, methods=["POST"]),
            Route("/api/instruments", instruments.post, methods=["POST"]),
            Route("/api/instruments/{job_id}.zip", instruments.zip),
            Route("/api/instruments/{job_id}", instruments.get),
            Route("/api/instruments/{job_id}", instruments.delete, methods=["DELETE"]),
            WebSocketRoute("/api/play", lambda websocket: Session(websocket, upstream).run()),
        ],
        exception_handlers=dict(EXCEPTION_HANDLERS),
    )
    return AccessMiddleware(starlette, AllowedHosts(host))


class ServerRoutes:
    """Passes plain questions on to the server: the model, the map, its health, and a note as a file."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def model(self, _: Request) -> Response:
        found = await self._upstream.model()
        return JSONResponse(_model_json(found, self._upstream.backend.name), headers=FRESH)

    async def timbre_map(self, _: Request) -> Response:
        points = (await self._upstream.timbre_map()).points
        return JSONResponse({"points": [_point_json(each) for each in points]}, headers=FRESH)

    async def health(self, _: Request) -> Response:
        """Answers 200 also where the server is away: the bridge itself is well."""
        told: dict[str, str] = {"bridge": "ok", "server": "serving"}
        try:
            await self._upstream.model(PROBE_SECONDS)
        except TimbrelError as error:
            told |= {"server": "away", "message": error_reply(error).message}
        return JSONResponse(told, headers=FRESH)

    async def note(self, ending: str, request: Request) -> Response:
        """Sends a note as a file to keep: 24 bit, written by the server."""
        fields = read_query(request.query_params)
        asked = note_request(fields, await self._upstream.manifest(), FORMATS[ending])
        await read_body(request, MAX_BODY_BYTES, "the request's body")
        content = await cancel_on_disconnect(request, self._render(asked))
        disposition = f'attachment; filename="{file_name(asked, ending)}"'
        headers = {"content-disposition": disposition, **FRESH}
        return Response(content, headers=headers, media_type=f"audio/{ending}")

    async def _render(self, asked: pb.GenerateRequest) -> bytes:
        parts, is_finished = [], False
        async with contextlib.aclosing(self._upstream.generate(asked)) as replies:
            async for reply in replies:
                parts.append(reply.audio)
                is_finished = bool(reply.finish_reason)
        if not is_finished:
            raise ServerError("the server ended the stream before the note was finished")
        return b"".join(parts)


def file_name(asked: pb.GenerateRequest, ending: str) -> str:
    """Names a file by all that makes a note: "timbrel_x0.200_y-0.400_p060_v100_2s_seed7.wav"."""
    x, y = (0.0 if abs(value) < 5e-4 else value for value in (asked.timbre.x, asked.timbre.y))
    return (
        f"timbrel_x{x:.3f}_y{y:.3f}_p{asked.pitch:03d}_v{asked.velocity:03d}"
        f"_{asked.seconds:g}s_seed{asked.seed}.{ending}"
    )


def _model_json(found: pb.GetModelResponse, server: str) -> dict[str, Any]:
    model = model_from_pb(found)
    return {
        "name": model.name,
        "bundle_hash": model.bundle_hash,
        "sample_rate": model.sample_rate,
        "frame_rate": model.frame_rate,
        "pitch": list(model.pitch_range),
        "velocity": list(model.velocity_range),
        "seconds": list(model.seconds_range),
        "sampling": asdict(model.default_sampling),
        "n_slots": model.n_slots,
        "precision": model.precision,
        "provider": model.provider,
        "server": server,
        "version": version("timbrel"),
        "fields": describe_fields(found.manifest.ranges, model.default_sampling),
    }


def _point_json(point: pb.TimbrePoint) -> dict[str, Any]:
    x, y = point_of(point)
    pitches = {"pitch_min": point.pitch_min, "pitch_max": point.pitch_max}
    return {"instrument": point.instrument, "family": point.family, "x": x, "y": y, **pitches}
