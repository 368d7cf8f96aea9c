"""/api/locate: finds where a recording that was dropped on the map lies, whatever its bytes are."""

from __future__ import annotations

import asyncio
import io

import numpy as np
import numpy.typing as npt
import soundfile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from timbrel.core.location import Location, locate_request, location_from_pb
from timbrel.errors import DeadlineExceededError, refusal
from timbrel.explore.http import cancel_on_disconnect, read_body
from timbrel.explore.parameters import read_query
from timbrel.explore.upstream import Upstream
from timbrel_bundle.wav_check import missing_bytes
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

MAX_BYTES = 32 * 2**20

MAX_SECONDS = 120.0
MAX_SAMPLES = 2**25
"""How many all channels may have together, 128 MiB: a small file can hold hours of silence."""

FORMATS = "wav, flac, ogg and mp3"

MAX_AT_ONCE = 2
"""How many recordings are in hand; more wait."""

UPLOAD_SECONDS = 60.0
"""Who sends slowly keeps others waiting."""

N_NEAREST = 8


class Recordings:
    """Receives recordings, and has the server locate them."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._room = asyncio.Semaphore(MAX_AT_ONCE)

    async def locate(self, request: Request) -> Response:
        """Answers POST /api/locate."""
        pitch = read_query(request.query_params, {"pitch": float})
        async with self._room:
            content = await self._receive(request)
            location = await cancel_on_disconnect(request, self._locate(content, pitch.get("pitch")))
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


def decode_recording(content: bytes) -> tuple[npt.NDArray[np.float32], int]:
    """Decodes a file into samples [S, channels], of its first two minutes at most, and their rate in Hz.

    It is CPU-bound.

    Raises:
        InvalidRequestError: the file is empty, cut short, damaged or of a kind that libsndfile does not read.
    """
    if not content:
        raise refusal("audio", "the file is empty")
    if n_missing := missing_bytes(io.BytesIO(content)):
        raise refusal("audio", f"the file is cut short: the last {n_missing} bytes of its sound are missing")
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            n_frames = int(min(MAX_SECONDS * file.samplerate, MAX_SAMPLES / file.channels))
            samples = file.read(n_frames, dtype="float32", always_2d=True)
            rate = int(file.samplerate)
    except soundfile.SoundFileError as error:
        reason = " ".join(str(getattr(error, "error_string", error)).split()).rstrip(".")
        raise refusal("audio", f"this is no audio file that can be read ({reason}); {FORMATS} are") from None
    if not samples.size:
        raise refusal("audio", "the file holds no sound")
    return samples, rate


def _prepare(content: bytes, pitch: float | None, manifest: pb.Manifest) -> pb.LocateRequest:
    samples, rate = decode_recording(content)
    return locate_request(samples, rate, pitch, manifest)


def _to_json(location: Location) -> dict[str, object]:
    x, y = location.timbre
    nearest = []
    for each in location.nearest:
        place = {"x": each.timbre[0], "y": each.timbre[1], "distance": round(each.distance, 6)}
        nearest.append({"instrument": each.name, "family": each.family, **place})
    return {"x": x, "y": y, "nearest": nearest}
