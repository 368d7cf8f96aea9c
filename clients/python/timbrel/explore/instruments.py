"""/api/instruments: playable instruments, built one after another while people play on."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from timbrel.core.model import model_from_pb
from timbrel.errors import NotFoundError, OverloadedError
from timbrel.explore.http_common import FRESH, read_body
from timbrel.explore.instrument_worker import BuildTask, InstrumentRequest
from timbrel.explore.upstream import Upstream
from timbrel.library.render.hold import LONGEST_SECONDS
from timbrel.progress import counted
from timbrel.settings import ClientSettings

MAX_ORDER_BYTES = 2**16
MAX_UNFINISHED = 8
"""How many jobs may wait or run."""

MAX_KEPT = 8
"""Jobs that are over and can still be asked about; the oldest go first."""

MAX_KEPT_BYTES = 2**30
"""How much the finished zips may take together; the newest is always kept."""

SPARE_BYTES = 2**29
"""How much is left free on the disk."""

BYTES_PER_SECOND = 3 * 48_000 * 2
"""How much a note takes while it is built: 24 bits at 48 kHz, in the folder and in the zip."""

TAIL_SECONDS = 4.0

ERROR_BYTES = 2000
"""How much is kept of the words of a worker that broke."""

_WINDOWS_FLAGS = sum(
    getattr(subprocess, name, 0) for name in ("CREATE_NEW_PROCESS_GROUP", "BELOW_NORMAL_PRIORITY_CLASS")
)
"""Has a worker there leave Ctrl-C alone, and stand back, as elsewhere."""


class Instruments:
    """Keeps the jobs of all pages. To be entered (`async with`): its files are gone once it is left."""

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
        wanted = InstrumentRequest.parse(content, model_from_pb(await self._upstream.model()))
        self._folder.mkdir(0o700, exist_ok=True)  # systems remove what lies idle in /tmp for days
        self._check_room(wanted)
        job_id = secrets.token_urlsafe(9)
        job = self._jobs[job_id] = InstrumentJob(job_id, wanted, self._folder / job_id)
        self._waiting.put_nowait(job)
        return JSONResponse({"id": job_id, "n_notes": wanted.n_notes}, 202)

    async def get(self, request: Request) -> Response:
        """Tells how far a job is."""
        return JSONResponse(self._find(request).to_json(), headers=FRESH)

    async def delete(self, request: Request) -> Response:
        """Cancels a job, or forgets one that is over."""
        job = self._find(request)
        if job.state.is_over:
            self._remove(job)
        await job.cancel()
        return JSONResponse(job.to_json())

    async def zip(self, request: Request) -> Response:
        """Sends the instrument."""
        job = self._find(request)
        if job.state is not JobState.DONE:
            raise NotFoundError(f"the instrument is {job.state.value}: there is no zip of it")
        return FileResponse(
            job.zip_path, media_type="application/zip", filename=f"{job.slug}.zip", headers=FRESH
        )

    async def _work(self) -> None:
        """Builds one instrument after another."""
        while True:
            job = await self._waiting.get()
            await job.run(self._upstream.settings)
            self._tidy()

    def _find(self, request: Request) -> InstrumentJob:
        job = self._jobs.get(request.path_params["job_id"])
        if job is None or (job.state is JobState.DONE and not job.zip_path.exists()):  # tidied away with /tmp
            raise NotFoundError("there is no such instrument, or no more")
        return job

    def _check_room(self, request: InstrumentRequest) -> None:
        unfinished = sum(not job.state.is_over for job in self._jobs.values())
        if unfinished >= MAX_UNFINISHED:
            raise OverloadedError(
                f"{counted(unfinished, 'instrument')} being built or waiting already; try again later"
            )
        held = LONGEST_SECONDS if request.seconds is None else request.seconds
        n_bytes = round(request.n_notes * (held + TAIL_SECONDS) * BYTES_PER_SECOND)
        if shutil.disk_usage(self._folder).free < n_bytes + SPARE_BYTES:
            raise OverloadedError(
                f"there is no room on the disk of {tempfile.gettempdir()} for the instrument"
            )

    def _tidy(self) -> None:
        """Removes the oldest of what is over, where there is too much of it."""
        over = [job for job in self._jobs.values() if job.state.is_over]
        while len(over) > 1 and (len(over) > MAX_KEPT or sum(job.n_bytes for job in over) > MAX_KEPT_BYTES):
            self._remove(over.pop(0))

    def _remove(self, job: InstrumentJob) -> None:
        self._jobs.pop(job.job_id, None)
        job.remove()


class JobState(enum.Enum):
    """Tells how far a job is."""

    WAITING = "waiting"
    RENDERING = "rendering"
    FINISHING = "finishing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        return self in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


class InstrumentJob:
    """Has one instrument built, by a process of its own in a folder of its own."""

    def __init__(self, job_id: str, request: InstrumentRequest, folder: Path) -> None:
        """`folder` is for this job alone; it must not exist."""
        self.job_id = job_id
        self.request = request
        self.slug = ""
        """Its name in files; known once it is done."""
        self.zip_path = folder / "instrument.zip"
        """Where it lies once it is done."""
        self.state = JobState.WAITING
        self._folder = folder
        self._n_done = 0
        self._error = ""
        self._started = 0.0
        self._process: asyncio.subprocess.Process | None = None
        self._running = asyncio.Lock()

    @property
    def n_bytes(self) -> int:
        """The size of the finished zip."""
        try:
            return self.zip_path.stat().st_size
        except OSError:
            return 0

    async def run(self, settings: ClientSettings) -> None:
        """Builds it; returns once it is over, in whatever way. To be called once."""
        async with self._running:
            if self.state.is_over:
                return
            self.state, self._started = JobState.RENDERING, time.monotonic()
            try:
                self._folder.mkdir()
                self._process = await _start_worker()
                if not self.state.is_over:  # cancelled meanwhile
                    await self._talk(self._process, settings)
            except (OSError, ValueError) as error:  # of the system, or a line without end
                self._end(JobState.FAILED, " ".join(str(error).split()))
            finally:
                await self._stop_process()
                is_done = self.state is JobState.DONE
                gone = self._folder / "build" if is_done else self._folder
                await asyncio.to_thread(shutil.rmtree, gone, True)
                self._end(JobState.FAILED, "the explorer was ended")

    async def cancel(self) -> None:
        """Ends it where it is not over; its process and its files are gone when this returns."""
        self._end(JobState.CANCELLED)
        await self._stop_process()
        async with self._running:  # its process may only just be started
            pass

    def remove(self) -> None:
        """Removes what lies on the disk."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def to_json(self) -> dict[str, Any]:
        """Describes it for the page."""
        told: dict[str, Any] = {
            "id": self.job_id,
            "state": self.state.value,
            "n_done": self._n_done,
            "n_notes": self.request.n_notes,
        }
        if self.state is JobState.RENDERING and self._n_done:
            elapsed = time.monotonic() - self._started
            told["seconds_left"] = round(elapsed / self._n_done * (self.request.n_notes - self._n_done), 1)
        if self._error:
            told["error"] = self._error
        return told

    async def _talk(self, process: asyncio.subprocess.Process, settings: ClientSettings) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        server = (str(settings.address), settings.token, settings.security)
        task = BuildTask(*server, self.request, self._folder / "build", self.zip_path)
        process.stdin.write(task.to_line())
        complaint = asyncio.create_task(_last_bytes(process.stderr))
        async for line in process.stdout:
            self._hear(_read(line))
        said = (await complaint).decode(errors="replace").strip()
        self._end(JobState.FAILED, said.splitlines()[-1] if said else "building it was cut short")

    def _hear(self, said: dict[str, Any]) -> None:
        if "slug" in said:
            self.slug = said["slug"]
            self._end(JobState.DONE)
        elif "error" in said:
            self._end(JobState.FAILED, said["error"])
        elif "n_done" in said and not self.state.is_over:
            # What comes after the last note is a second attempt at some that came out of tune.
            self._n_done = min(int(said["n_done"]), self.request.n_notes)
            if self._n_done == self.request.n_notes:
                self.state = JobState.FINISHING

    def _end(self, state: JobState, error: str = "") -> None:
        """Notes how it ended; the first end counts."""
        if not self.state.is_over:
            self.state, self._error = state, error

    async def _stop_process(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


async def _start_worker() -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if name != "TIMBREL_TOKEN"}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "timbrel.explore.instrument_worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**environment, "OMP_NUM_THREADS": "1"},
        # A terminal's Ctrl-C is the explorer's to handle. In a session of its own, however nice, it would
        # have as much of a processor as the explorer and the server together (Linux's autogroup).
        process_group=0,
        creationflags=_WINDOWS_FLAGS,
    )


def _read(line: bytes) -> dict[str, Any]:
    """Reads a line of the worker's; it says nothing where a library of its talks in between."""
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


async def _last_bytes(stream: asyncio.StreamReader) -> bytes:
    kept = b""
    while part := await stream.read(4096):
        kept = (kept + part)[-ERROR_BYTES:]
    return kept
