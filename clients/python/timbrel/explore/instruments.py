"""/api/instruments: playable instruments, built one after another while people play on."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import tempfile
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from timbrel.core.model import model_from_pb
from timbrel.errors import NotFoundError, OverloadedError
from timbrel.explore.instrument_job import InstrumentJob, JobState
from timbrel.explore.instrument_order import InstrumentOrder
from timbrel.explore.upload import read_body
from timbrel.explore.upstream import Upstream

MAX_ORDER_BYTES = 2**16
MAX_UNFINISHED = 8
"""Jobs that wait or run."""

MAX_KEPT = 8
"""Jobs that are over and can still be asked about; the oldest go first."""

MAX_KEPT_BYTES = 2**30
"""Of finished zips together; the newest is always kept."""

SPARE_BYTES = 2**29
"""Left free on the disk."""

BYTES_PER_SECOND = 3 * 48_000 * 2
"""Of a note while it is built: 24 bits at 48 kHz, in the folder and in the zip."""

TAIL_SECONDS = 4.0


class Instruments:
    """The jobs of all pages. To be entered (`async with`): its files are gone once it is left."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._jobs: dict[str, InstrumentJob] = {}
        self._waiting: asyncio.Queue[InstrumentJob] = asyncio.Queue()
        self._folder = Path(tempfile.mkdtemp(prefix="timbrel-explore-"))
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Instruments:
        self._task = asyncio.create_task(self._work(), name="instruments")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for job in self._jobs.values():
            await job.cancel()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def post(self, request: Request) -> Response:
        """Takes an order."""
        content = await read_body(request, MAX_ORDER_BYTES, "the order")
        order = InstrumentOrder.parse(content, model_from_pb(await self._upstream.model()))
        self._check_room(order)
        job_id = secrets.token_urlsafe(9)
        job = self._jobs[job_id] = InstrumentJob(job_id, order, self._folder / job_id)
        self._waiting.put_nowait(job)
        return JSONResponse({"id": job_id, "n_notes": order.n_notes}, 202)

    async def get(self, request: Request) -> Response:
        """How far a job is."""
        return JSONResponse(self._find(request).to_json(), headers={"cache-control": "no-store"})

    async def delete(self, request: Request) -> Response:
        """Cancels a job, or forgets one that is over."""
        job = self._find(request)
        if job.state.is_over:
            self._remove(job)
        await job.cancel()
        return JSONResponse(job.to_json())

    async def zip(self, request: Request) -> Response:
        """The instrument."""
        job = self._find(request)
        if job.state is not JobState.DONE:
            raise NotFoundError(f"the instrument is {job.state.value}: there is no zip of it")
        return FileResponse(
            job.zip_path,
            media_type="application/zip",
            filename=f"{job.slug}.zip",
            headers={"cache-control": "no-store"},
        )

    async def _work(self) -> None:
        """Builds one instrument after another."""
        while True:
            job = await self._waiting.get()
            await job.run(self._upstream.backend.endpoint)
            self._tidy()

    def _find(self, request: Request) -> InstrumentJob:
        job = self._jobs.get(request.path_params["job_id"])
        if job is None:
            raise NotFoundError("there is no such instrument, or no more")
        return job

    def _check_room(self, order: InstrumentOrder) -> None:
        unfinished = sum(not job.state.is_over for job in self._jobs.values())
        if unfinished >= MAX_UNFINISHED:
            raise OverloadedError(f"{unfinished} instruments are being built or wait; try again later")
        wanted = round(order.n_notes * (order.seconds + TAIL_SECONDS) * BYTES_PER_SECOND)
        if shutil.disk_usage(self._folder).free < wanted + SPARE_BYTES:
            raise OverloadedError(
                f"there is no room on the disk of {tempfile.gettempdir()} for the instrument"
            )

    def _tidy(self) -> None:
        """Removes the oldest of what is over, where there is too much of it."""
        over = [job for job in self._jobs.values() if job.state.is_over]
        while len(over) > 1 and (len(over) > MAX_KEPT or sum(job.n_bytes for job in over) > MAX_KEPT_BYTES):
            self._remove(over.pop(0))

    def _remove(self, job: InstrumentJob) -> None:
        with contextlib.suppress(KeyError):
            del self._jobs[job.job_id]
        job.remove()
