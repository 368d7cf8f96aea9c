"""Decoding of codes to audio at the server: many notes at once, beside the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

import numpy as np

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import Audio, CodecChunk, CodecDecoder, CodecStream, decode_together
from timbrel_server.engine.request import Frame
from timbrel_server.errors import OverloadedError, UnavailableError

_log = logging.getLogger(__name__)

CAPACITY = 1024
"""Notes in hand, at most. Each holds some kilobytes of state, and of codes that wait."""

LARGEST_RUN = 32
"""Notes decoded together. More would save next to nothing, and let those that come meanwhile wait longer."""

RETRY_SECONDS = 1.0
"""One that finds no place should come back after this time: about a note's length."""


class CodecDecoding:
    """Runs the codec on a thread of its own, off the engine's and off the event loop's. For one event loop.

    What has come while one run was busy is decoded with the next: chunks of equal length in one, with their
    states stacked. One thread within operators, so that the engine keeps the other cores. The graph is loaded
    with the first note.
    """

    def __init__(self, bundle: Bundle, capacity: int = CAPACITY) -> None:
        self._bundle = bundle
        self._capacity = capacity
        self._codec: CodecDecoder | None = None  # of the thread
        self._changed = threading.Condition()  # guards all below
        self._jobs: list[_Job] = []
        self._closed = False
        self._n_streams = 0
        self._thread: threading.Thread | None = None

    @property
    def n_streams(self) -> int:
        """Notes that have a place."""
        return self._n_streams

    def stream(self) -> AudioStream:
        """Gives a place to one note.

        Raises:
            OverloadedError: too many have one.
        """
        with self._changed:
            if self._n_streams >= self._capacity:
                raise OverloadedError(f"{self._n_streams} notes are being decoded already", RETRY_SECONDS)
            self._n_streams += 1
            return AudioStream(self)

    def close(self) -> None:
        """Gives up what waits, and ends the thread; it has ended when this returns."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _leave(self) -> None:
        with self._changed:
            self._n_streams -= 1

    def _put(self, job: _Job) -> None:
        with self._changed:
            if self._closed:
                raise UnavailableError("the server is shutting down")
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name="codec-decoding", daemon=True)
                self._thread.start()
            self._jobs.append(job)
            self._changed.notify()

    def _main(self) -> None:
        while jobs := self._take():
            try:
                _answer(jobs, self._decode(jobs))
            except Exception as error:
                _log.exception("decoding has failed")
                _answer(jobs, error)
        _answer(self._jobs, UnavailableError("the server is shutting down"))

    def _take(self) -> list[_Job]:
        """Returns the next jobs, the oldest first; none once it is time to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            if self._closed:
                return []
            jobs, self._jobs = self._jobs[:LARGEST_RUN], self._jobs[LARGEST_RUN:]
            return jobs

    def _decode(self, jobs: Sequence[_Job]) -> list[Audio]:
        if self._codec is None:
            self._codec = CodecDecoder(self._bundle, n_threads=1)
        n_codebooks = self._codec.spec.n_codebooks
        chunks = []
        for job in jobs:
            codes = np.array(job.frames, dtype=np.uint16).reshape(len(job.frames), n_codebooks)
            chunks.append(CodecChunk(job.stream.on_thread(self._codec), codes, job.last))
        return decode_together(chunks)


class AudioStream:
    """One note on its way from codes to audio. Leaving the `with` block gives up its place."""

    def __init__(self, decoding: CodecDecoding) -> None:
        """Is called by `CodecDecoding.stream`."""
        self._decoding = decoding
        self._stream: CodecStream | None = None

    def __enter__(self) -> AudioStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._decoding._leave()

    async def decode(self, frames: Sequence[Frame], last: bool) -> Audio:
        """Takes the note's next frames, and returns what audio is ready: float32 [samples], possibly none.

        To be awaited before the next call. All that it returns, joined, is the whole note's audio.

        Args:
            last: whether the note ends with these.
        """
        done: asyncio.Future[Audio] = asyncio.get_running_loop().create_future()
        self._decoding._put(_Job(self, frames, last, done))
        return await done

    def on_thread(self, codec: CodecDecoder) -> CodecStream:
        """Returns the codec's side of it. On the decoding thread only."""
        if self._stream is None:
            self._stream = codec.stream()
        return self._stream


class _Job(NamedTuple):
    stream: AudioStream
    frames: Sequence[Frame]
    last: bool
    done: asyncio.Future[Audio]


def _answer(jobs: Sequence[_Job], outcome: Sequence[Audio] | Exception) -> None:
    """Settles all jobs of a run by one hop to the event loop."""
    if not jobs:
        return
    # The loop is closed where a server ends in a hurry: nobody listens any more.
    with contextlib.suppress(RuntimeError):
        jobs[0].done.get_loop().call_soon_threadsafe(_settle, jobs, outcome)


def _settle(jobs: Sequence[_Job], outcome: Sequence[Audio] | Exception) -> None:
    for index, job in enumerate(jobs):
        if job.done.done():  # its caller has gone
            continue
        if isinstance(outcome, Exception):
            job.done.set_exception(outcome)
        else:
            job.done.set_result(outcome[index])
