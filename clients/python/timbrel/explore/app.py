"""The explorer as one ASGI application: the page, what it asks over plain HTTP, and its WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute

from timbrel.core.location import Location, location_from_pb
from timbrel.core.model import model_from_pb
from timbrel.core.timbre import instrument_from_pb
from timbrel.errors import OverloadedError, ServerError, TimbrelError
from timbrel.explore.access import AccessMiddleware, AllowedHosts
from timbrel.explore.http_common import (
    ERROR_HANDLERS,
    FRESH,
    Uploads,
    cancel_on_disconnect,
    error_reply,
    read_body,
)
from timbrel.explore.instruments import Instruments
from timbrel.explore.options import ExploreOptions
from timbrel.explore.parameters import (
    describe_fields,
    note_request,
    read_object,
    read_query,
    read_text,
    recording_request,
    refuse_unknown,
)
from timbrel.explore.session import Session
from timbrel.explore.static import WebFolder
from timbrel.explore.upstream import PROBE_SECONDS, Upstream
from timbrel.performance.instrumentation import programs_played
from timbrel.scala import parse_tuning
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

FORMATS = {"wav": pb.AUDIO_FORMAT_WAV, "flac": pb.AUDIO_FORMAT_FLAC}

MAX_BODY_BYTES = 1024
"""How large the body of a request that needs none may be."""

MAX_RECORDING_BYTES = 32 * 2**20
MAX_TUNING_BYTES = 2**19
"""A scale and its keyboard map, as JSON."""

MAX_UPLOADS = 8
"""How many recordings are on their way; the slowest makes room for one more."""

MAX_RECORDINGS = 2
"""How many are being read and located; more wait."""

MAX_WAITING_RECORDINGS = 6
"""How many wait, each held whole; one more is refused."""

UPLOAD_SECONDS = 60.0

N_NEAREST = 8


def make_app(upstream: Upstream, instruments: Instruments, options: ExploreOptions) -> AccessMiddleware:
    """Makes the guarded application: the page of these options, for the hosts that they allow.

    `upstream` and `instruments` must have been entered when it is asked.
    """
    page = WebFolder(options.web)
    server = ServerRoutes(upstream, page)

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
            Route("/api/locate", server.locate, methods=["POST"]),
            Route("/api/tuning", tuning, methods=["POST"]),
            Route("/api/instruments", instruments.post, methods=["POST"]),
            Route("/api/instruments/{job_id}.zip", instruments.zip),
            Route("/api/instruments/{job_id}", instruments.get),
            Route("/api/instruments/{job_id}", instruments.delete, methods=["DELETE"]),
            WebSocketRoute("/api/play", lambda websocket: Session(websocket, upstream, page).run()),
        ],
        exception_handlers=dict(ERROR_HANDLERS),
    )
    return AccessMiddleware(starlette, AllowedHosts(options.host, options.allowed_hosts))


async def tuning(request: Request) -> Response:
    """Reads a Scala scale, and perhaps its keyboard map: each key's cents above equal temperament."""
    given = read_object(await read_body(request, MAX_TUNING_BYTES, "the scale"))
    refuse_unknown(given, frozenset(("scale", "scale_name", "map", "map_name")))
    scale, scale_name, placed, map_name = (
        read_text(given, name) for name in ("scale", "scale_name", "map", "map_name")
    )
    scale_content = scale.encode(errors="replace")
    map_content = placed.encode(errors="replace") if placed else None
    cents = await asyncio.to_thread(
        parse_tuning, scale_name or "the scale", scale_content, map_name or "the map", map_content
    )
    return JSONResponse({"cents": cents})


class ServerRoutes:
    """Passes plain questions on to the server: its health, model and map, a note as a file, a recording."""

    def __init__(self, upstream: Upstream, page: WebFolder) -> None:
        self._upstream = upstream
        self._page = page
        self._uploads = Uploads(MAX_UPLOADS)
        self._room_for_recordings = asyncio.Semaphore(MAX_RECORDINGS)
        self._n_recordings = 0
        """How many are there whole, and not located."""

    async def model(self, _: Request) -> Response:
        found = await self._upstream.model()
        return JSONResponse(
            {**_model_json(found, self._upstream), "page": self._page.identity()}, headers=FRESH
        )

    async def timbre_map(self, _: Request) -> Response:
        instruments = [instrument_from_pb(each) for each in (await self._upstream.timbre_map()).points]
        programs = programs_played(instruments)
        points = [
            {
                "instrument": each.name,
                "family": each.family,
                "x": each.timbre[0],
                "y": each.timbre[1],
                "pitch_min": each.pitch_min,
                "pitch_max": each.pitch_max,
                "programs": programs.get(each.name, []),
            }
            for each in instruments
        ]
        return JSONResponse({"points": points}, headers=FRESH)

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

    async def locate(self, request: Request) -> Response:
        """Finds where a recording lies that was dropped on the map."""
        content = await self._uploads.read(request, MAX_RECORDING_BYTES, "the recording", UPLOAD_SECONDS)
        if self._n_recordings >= MAX_RECORDINGS + MAX_WAITING_RECORDINGS:
            raise OverloadedError(
                f"{self._n_recordings} recordings are being located or wait already; try again later"
            )
        self._n_recordings += 1
        try:
            async with self._room_for_recordings:
                location = await cancel_on_disconnect(request, self._locate(content))
        finally:
            self._n_recordings -= 1
        return JSONResponse(_location_json(location))

    async def _locate(self, content: bytes) -> Location:
        manifest = await self._upstream.manifest()
        decoding = asyncio.create_task(asyncio.to_thread(recording_request, content, manifest))
        try:
            asked = await asyncio.shield(decoding)
        except asyncio.CancelledError:
            await asyncio.wait([decoding])  # the thread goes on where its caller has left, and takes up room
            raise
        return location_from_pb(await self._upstream.locate(asked), manifest.bundle_hash, N_NEAREST)


def file_name(asked: pb.GenerateRequest, ending: str) -> str:
    """Names a file by all that makes a note: "timbrel_x0.200_y-0.400_p060_v100_2s_t0.6_seed7.wav"."""
    x, y = (0.0 if abs(value) < 5e-4 else value for value in (asked.timbre.x, asked.timbre.y))
    cents = f"{asked.cents[0].cents:+g}c" if asked.cents else ""
    variation = f"_t{asked.sampling.temperature:g}" if asked.sampling.HasField("temperature") else ""
    return (
        f"timbrel_x{x:.3f}_y{y:.3f}_p{asked.pitch:03d}_v{asked.velocity:03d}"
        f"{cents}_{asked.seconds:g}s{variation}_seed{asked.seed}.{ending}"
    )


def _model_json(found: pb.GetModelResponse, upstream: Upstream) -> dict[str, Any]:
    model = model_from_pb(found)
    return {
        "name": model.name,
        "bundle_hash": model.bundle_hash,
        "sample_rate": model.sample_rate,
        "frame_rate": model.frame_rate,
        "pitch": list(model.pitch_range),
        "velocity": list(model.velocity_range),
        "moves": model.moves,
        "bends": model.bends,
        "seconds": list(model.seconds_range),
        "sampling": asdict(model.default_sampling),
        "n_slots": model.n_slots,
        "precision": model.precision,
        "provider": model.provider,
        "server": upstream.name,
        "bundle": upstream.bundle,
        "version": version("timbrel"),
        "fields": describe_fields(found.manifest, model.default_sampling),
    }


def _location_json(location: Location) -> dict[str, object]:
    x, y = location.timbre
    nearest = []
    for each in location.nearest:
        place = {"x": each.timbre[0], "y": each.timbre[1], "distance": round(each.distance, 6)}
        nearest.append({"instrument": each.name, "family": each.family, **place, "share": each.share})
    return {"x": x, "y": y, "near": location.near, "nearest": nearest}
