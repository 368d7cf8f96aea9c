"""An instrument being built for a page: waiting, rendering, finishing, and then done, failed or cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from timbrel.explore.backend import Endpoint
from timbrel.explore.instrument_order import InstrumentOrder
from timbrel.explore.instrument_worker import Errand

ERROR_BYTES = 2000
"""Kept of what a worker that broke had to say."""


class JobState(enum.Enum):
    """Where a job is."""

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
    """One instrument, built by a process of its own in a folder of its own."""

    def __init__(self, job_id: str, order: InstrumentOrder, folder: Path) -> None:
        """
        Args:
            folder: for this job alone; it must not exist.
        """
        self.job_id = job_id
        self.order = order
        self.slug = ""
        """Its name in files; known once it is done."""
        self._folder = folder
        self._state = JobState.WAITING
        self._n_done = 0
        self._error = ""
        self._started = 0.0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def state(self) -> JobState:
        return self._state

    @property
    def zip_path(self) -> Path:
        """Where the instrument lies once it is done."""
        return self._folder / "instrument.zip"

    @property
    def n_bytes(self) -> int:
        """Of the finished zip."""
        try:
            return self.zip_path.stat().st_size
        except OSError:
            return 0

    async def run(self, endpoint: Endpoint) -> None:
        """Builds it; returns once it is over, in whatever way. To be called once."""
        if self._state.is_over:
            return
        self._state, self._started = JobState.RENDERING, time.monotonic()
        try:
            self._folder.mkdir()
            self._process = await _start_worker()
            if not self._state.is_over:  # cancelled meanwhile
                await self._talk(self._process, endpoint)
        except (OSError, ValueError) as error:  # of the system, or a line without end
            self._end(JobState.FAILED, " ".join(str(error).split()))
        finally:
            await self._stop_process()
            await asyncio.to_thread(shutil.rmtree, self._build_folder, True)
            self._end(JobState.FAILED, "the explorer was ended")

    async def cancel(self) -> None:
        """Ends it where it is not over. Its process is gone when this returns."""
        self._end(JobState.CANCELLED)
        await self._stop_process()

    def remove(self) -> None:
        """Removes what lies on the disk."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def to_json(self) -> dict[str, Any]:
        """As the page is told."""
        told: dict[str, Any] = {
            "id": self.job_id,
            "state": self._state.value,
            "n_done": self._n_done,
            "n_notes": self.order.n_notes,
        }
        if self._state is JobState.RENDERING and self._n_done:
            elapsed = time.monotonic() - self._started
            told["seconds_left"] = round(elapsed / self._n_done * (self.order.n_notes - self._n_done), 1)
        if self._error:
            told["error"] = self._error
        return told

    @property
    def _build_folder(self) -> Path:
        return self._folder / "build"

    async def _talk(self, process: asyncio.subprocess.Process, endpoint: Endpoint) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        errand = Errand.of(endpoint, self.order, self._build_folder, self.zip_path)
        process.stdin.write(errand.to_line())
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
        elif "n_done" in said and not self._state.is_over:
            # What comes after the last note is a second attempt at some that came out of tune.
            self._n_done = min(int(said["n_done"]), self.order.n_notes)
            if self._n_done == self.order.n_notes:
                self._state = JobState.FINISHING

    def _end(self, state: JobState, error: str = "") -> None:
        """The first end counts."""
        if not self._state.is_over:
            self._state, self._error = state, error

    async def _stop_process(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


async def _start_worker() -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if name != "TIMBREL_TOKEN"}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "timbrel.explore.instrument_worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**environment, "OMP_NUM_THREADS": "1"},
        # A terminal's Ctrl-C is the explorer's to handle.
        start_new_session=True,
    )


def _read(line: bytes) -> dict[str, Any]:
    """What the worker says in this line; nothing where a library of its talks in between."""
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
