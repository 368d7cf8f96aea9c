"""A note as a file to keep."""

from __future__ import annotations

import contextlib

from starlette.requests import Request
from starlette.responses import Response

from timbrel.errors import ServerError
from timbrel.explore.attention import while_attended
from timbrel.explore.parameters import note_request, read_query
from timbrel.explore.upload import read_body
from timbrel.explore.upstream import Upstream
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

FORMATS = {"wav": pb.AUDIO_FORMAT_WAV, "flac": pb.AUDIO_FORMAT_FLAC}

MAX_BODY_BYTES = 1024
"""Of a request that needs none."""


class Downloads:
    """/api/note.wav and /api/note.flac: 24 bit, written by the server."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def wav(self, request: Request) -> Response:
        return await self._send(request, "wav")

    async def flac(self, request: Request) -> Response:
        return await self._send(request, "flac")

    async def _send(self, request: Request, ending: str) -> Response:
        fields = read_query(request.query_params)
        asked = note_request(fields, await self._upstream.manifest(), FORMATS[ending])
        await read_body(request, MAX_BODY_BYTES, "the request's body")
        content = await while_attended(request, self._render(asked))
        headers = {
            "content-disposition": f'attachment; filename="{file_name(asked, ending)}"',
            "cache-control": "no-store",
        }
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
    """Everything that tells this note from others: "timbrel_x0.200_y-0.400_p060_v100_2s_seed7.wav"."""
    x, y = (0.0 if abs(value) < 5e-4 else value for value in (asked.timbre.x, asked.timbre.y))
    return (
        f"timbrel_x{x:.3f}_y{y:.3f}_p{asked.pitch:03d}_v{asked.velocity:03d}"
        f"_{asked.seconds:g}s_seed{asked.seed}.{ending}"
    )
