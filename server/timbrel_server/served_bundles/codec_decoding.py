"""Decoding of codes to audio at the server: many notes at once, beside the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

import numpy as np

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import Audio, CodecChunk, CodecDecoder, CodecStream, decode_together
from timbrel_bundle.request_fields import Cents
from timbrel_server.engine.request import Frame
from timbrel_server.errors import UnavailableError

_log = logging.getLogger(__name__)

LARGEST_RUN = 32
"""Notes decoded together. More would save next to nothing, and let those that come meanwhile wait longer."""

LARGEST_RUN_IN_COMPANY = 2
"""The same where several callers have notes decoded: each run is of one of them, and others wait for it."""

LARGEST_CHUNK_FRAMES = 32
"""Frames of one note in one run."""

LARGEST_CHUNK_FRAMES_IN_COMPANY = 8
"""The same where several callers have notes decoded: who has a few frames waits for a run to end."""

LARGEST_RUN_FRAMES = 128
"""Frames of all notes in one run. Each takes 0.3 MiB of working memory, which is kept for later runs; more of
them at once are no faster."""

CREDIT_FRAMES = 128
"""A caller who comes has so much less behind it than who has least: a note of its own goes first."""


class CodecDecoding:
    """Runs the codec on a thread of its own, off the engine's and off the event loop's. For one event loop.

    What has come while one run was busy is decoded with the next: chunks of equal length in one, with their
    states stacked. One thread within operators, so that the engine keeps the other cores. The graph is loaded
    with the first note.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._codec: CodecDecoder | None = None  # of the thread
        self._changed = threading.Condition()  # guards all below
        self._jobs: OrderedDict[str, deque[_Job]] = OrderedDict()  # by account; whose turn it is comes first
        self._closed = False
        self._streams: Counter[str] = Counter()  # by account
        self._n_decoded: dict[str, int] = {}  # frames of those who have streams: who has least comes next
        self._thread: threading.Thread | None = None

    @property
    def n_streams(self) -> int:
        """Notes in hand."""
        return self._streams.total()

    @property
    def most_frames(self) -> int:
        """Frames of one note in one run, now."""
        return LARGEST_CHUNK_FRAMES_IN_COMPANY if len(self._streams) > 1 else LARGEST_CHUNK_FRAMES

    def stream(self, account: str = "", seed: int = 0, cents: Cents = 0.0) -> AudioStream:
        """Takes on one note.

        Args:
            account: whose turn its chunks take.
            seed: the note's.
            cents: its bend.
        """
        with self._changed:
            if account not in self._n_decoded:
                self._n_decoded[account] = min(self._n_decoded.values(), default=0) - CREDIT_FRAMES
            self._streams[account] += 1
            return AudioStream(self, account, seed, cents)

    def close(self) -> None:
        """Gives up what waits, and ends the thread; it has ended when this returns."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _leave(self, account: str) -> None:
        with self._changed:
            self._streams[account] -= 1
            if not self._streams[account]:
                del self._streams[account], self._n_decoded[account]

    def _put(self, job: _Job) -> None:
        with self._changed:
            if self._closed:
                raise UnavailableError("the server is shutting down")
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name="codec-decoding", daemon=True)
                self._thread.start()
            self._jobs.setdefault(job.stream.account, deque()).append(job)
            self._changed.notify()

    def _main(self) -> None:
        while jobs := self._take():
            try:
                _answer(jobs, self._decode(jobs))
            except Exception as error:
                _log.exception("decoding has failed")
                _answer(jobs, error)
        given_up = [job for jobs in self._jobs.values() for job in jobs]
        _answer(given_up, UnavailableError("the server is shutting down"))

    def _take(self) -> list[_Job]:
        """Returns the next jobs, the oldest of whoever has had least; none once it is time to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            if self._closed:
                return []
            waiting = [account for account, jobs in self._jobs.items() if jobs]
            account = min(waiting, key=lambda each: self._n_decoded.get(each, 0))
            jobs, in_company = self._jobs[account], len(self._streams) > 1
            most = LARGEST_RUN_IN_COMPANY if in_company else LARGEST_RUN
            taken = [jobs.popleft()]
            n_frames = len(taken[0].frames)
            while jobs and len(taken) < most and n_frames + len(jobs[0].frames) <= LARGEST_RUN_FRAMES:
                taken.append(jobs.popleft())
                n_frames += len(taken[-1].frames)
            if not jobs:
                del self._jobs[account]
            if account in self._n_decoded:
                self._n_decoded[account] += n_frames
            return taken

    def _decode(self, jobs: Sequence[_Job]) -> list[Audio]:
        if self._codec is None:
            self._codec = CodecDecoder(self._bundle, n_threads=1)
        n_codebooks = self._codec.spec.n_codebooks
        chunks = []
        for job in jobs:
            codes = np.array(job.frames, dtype=np.uint16).reshape(len(job.frames), n_codebooks)
            chunks.append(CodecChunk(job.stream.on_thread(self._codec), codes, job.last, job.bend))
        return decode_together(chunks)


class AudioStream:
    """One note on its way from codes to audio, while its `with` block lasts."""

    def __init__(self, decoding: CodecDecoding, account: str, seed: int, cents: Cents) -> None:
        """Is called by `CodecDecoding.stream`."""
        self._decoding = decoding
        self.account = account
        self._seed = seed
        self._cents = cents
        self._stream: CodecStream | None = None

    def __enter__(self) -> AudioStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._decoding._leave(self.account)

    async def decode(self, frames: Sequence[Frame], last: bool, bend: float = 0.0) -> Audio:
        """Takes the note's next frames, and returns what audio is ready: float32 [samples], possibly none.

        To be awaited before the next call. All that it returns, joined, is the whole note's audio.

        Args:
            last: whether the note ends with these.
            bend: cents, on top of the note's own.
        """
        pieces: list[Audio] = []
        while True:
            most = self._decoding.most_frames
            chunk, frames = frames[:most], frames[most:]
            done: asyncio.Future[Audio] = asyncio.get_running_loop().create_future()
            self._decoding._put(_Job(self, chunk, last and not frames, bend, done))
            pieces.append(await done)
            if not frames:
                return np.concatenate(pieces) if len(pieces) > 1 else pieces[0]

    def on_thread(self, codec: CodecDecoder) -> CodecStream:
        """Returns the codec's side of it. On the decoding thread only."""
        if self._stream is None:
            self._stream = codec.stream(self._seed, self._cents)
        return self._stream


class _Job(NamedTuple):
    stream: AudioStream
    frames: Sequence[Frame]
    last: bool
    bend: float
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
