"""The explorer as one ASGI application: the page, its questions, and its WebSocket."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from timbrel.errors import TimbrelError
from timbrel.explore.about import About
from timbrel.explore.attention import GoneError
from timbrel.explore.downloads import Downloads
from timbrel.explore.faults import Fault, fault_of
from timbrel.explore.guard import Guard
from timbrel.explore.hosts import AllowedHosts
from timbrel.explore.instruments import Instruments
from timbrel.explore.locating import Locating
from timbrel.explore.session import Session
from timbrel.explore.static import WebFolder
from timbrel.explore.upload import TooLargeError
from timbrel.explore.upstream import Upstream

GONE_STATUS = 499
"""For nobody: the caller has left."""


def make_app(upstream: Upstream, instruments: Instruments, web: Path, hosts: AllowedHosts) -> ASGIApp:
    """The application, guarded. `upstream` and `instruments` must have been entered when it is asked."""
    about, downloads, locating = About(upstream), Downloads(upstream), Locating(upstream)
    page = WebFolder(web)

    async def play(websocket: WebSocket) -> None:
        await Session(websocket, upstream).run()

    starlette = Starlette(
        routes=[
            Route("/", page.index),
            Route("/favicon.ico", page.favicon),
            Route("/static/{path:path}", page.asset),
            Route("/api/health", about.health),
            Route("/api/model", about.model),
            Route("/api/map", about.timbre_map),
            Route("/api/note.wav", downloads.wav),
            Route("/api/note.flac", downloads.flac),
            Route("/api/locate", locating.locate, methods=["POST"]),
            Route("/api/instruments", instruments.post, methods=["POST"]),
            Route("/api/instruments/{job_id}.zip", instruments.zip),
            Route("/api/instruments/{job_id}", instruments.get),
            Route("/api/instruments/{job_id}", instruments.delete, methods=["DELETE"]),
            WebSocketRoute("/api/play", play),
        ],
        exception_handlers={
            TimbrelError: _tell_error,
            HTTPException: _tell_http_error,
            GoneError: _tell_nobody,
            ClientDisconnect: _tell_nobody,
            Exception: _tell_bug,
        },
    )
    return Guard(starlette, hosts)


def _respond(fault: Fault, further: Mapping[str, str] | None = None) -> Response:
    headers = {"cache-control": "no-store", **(further or {})}
    if fault.retry_after_seconds is not None:
        headers["retry-after"] = str(max(1, math.ceil(fault.retry_after_seconds)))
    # In ASCII: a message may quote what UTF-8 cannot hold, such as half a surrogate pair.
    return Response(json.dumps(fault.to_json()), fault.status, headers, "application/json")


def _tell_error(_: Request, error: Exception) -> Response:
    if isinstance(error, TooLargeError):
        return _respond(Fault("invalid_request", str(error), 413))
    assert isinstance(error, TimbrelError)
    return _respond(fault_of(error))


def _tell_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "not_found" if error.status_code == 404 else "invalid_request"
    return _respond(Fault(code, error.detail, error.status_code), error.headers)


def _tell_nobody(_: Request, __: Exception) -> Response:
    return Response(status_code=GONE_STATUS)


def _tell_bug(_: Request, __: Exception) -> Response:
    """What nobody thought of: its traceback is in the log, not on the wire."""
    return _respond(Fault("internal", "the explorer failed; its output on the terminal says where", 500))
