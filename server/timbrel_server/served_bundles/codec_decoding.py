"""Decoding of codes to audio at the server: many notes at once, beside the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import (
    Audio,
    CodecChunk,
    CodecDecoder,
    CodecStream,
    Codes,
    checked_codes,
    decode_together,
)
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

COMPANY_SECONDS = 1.0
"""Whoever had a note decoded within this time is company."""

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
        self.spec = bundle.manifest.codec
        self._codec: CodecDecoder | None = None  # of the thread
        self._changed = threading.Condition()  # guards all below
        self._jobs: dict[str, deque[_Job]] = {}  # by account
        self._closed = False
        self._streams: Counter[str] = Counter()  # by account
        self._left: dict[str, float] = {}  # when accounts that have no stream any more had their last
        self._n_decoded: dict[str, int] = {}  # frames of those who have streams: who has least comes next
        self._thread: threading.Thread | None = None

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
            self._left.pop(account, None)
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
                now = time.monotonic()
                self._left = {name: at for name, at in self._left.items() if at > now - COMPANY_SECONDS}
                self._left[account] = now

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
        while run := self._take():
            jobs = [job for job, _ in run]
            began = time.monotonic()
            try:
                for job, audio in zip(jobs, self._decode(run), strict=True):
                    job.pieces.append(audio)
                _settle_soon([job for job in jobs if not len(job.codes)])
                self._go_on([job for job in jobs if len(job.codes)])
            except Exception as error:
                _log.exception("decoding has failed")
                _settle_soon(jobs, error)
            self._rest(jobs[0].stream.account, time.monotonic() - began)
        given_up = [job for jobs in self._jobs.values() for job in jobs]
        _settle_soon(given_up, UnavailableError("the server is shutting down"))

    def _take(self) -> list[tuple[_Job, Codes]]:
        """Returns the next frames of whoever has had least, the oldest first; none once it is time to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            if self._closed:
                return []
            account = min(self._jobs, key=lambda each: self._n_decoded.get(each, 0))
            jobs, in_company = self._jobs[account], bool(self._company(account))
            most = LARGEST_RUN_IN_COMPANY if in_company else LARGEST_RUN
            most_frames = LARGEST_CHUNK_FRAMES_IN_COMPANY if in_company else LARGEST_CHUNK_FRAMES
            run: list[tuple[_Job, Codes]] = []
            n_frames = 0
            while jobs and len(run) < most and n_frames + most_frames <= LARGEST_RUN_FRAMES:
                job = jobs.popleft()
                run.append((job, job.cut(most_frames)))
                n_frames += len(run[-1][1])
            if not jobs:
                del self._jobs[account]
            if account in self._n_decoded:
                self._n_decoded[account] += n_frames
            return run

    def _rest(self, account: str, seconds: float) -> None:
        """Waits so long after a run of this account, or until company that has less than half as many notes
        in hand wants some decoded; not at all where there is no such company."""
        with self._changed:
            n_notes = self._streams[account]
            lighter = [name for name in self._company(account) if 2 * self._streams[name] < n_notes]
            if lighter:
                self._changed.wait_for(lambda: self._closed or any(n in self._jobs for n in lighter), seconds)

    def _company(self, account: str) -> set[str]:
        """Returns the other accounts that have notes in hand, or had some lately."""
        since = time.monotonic() - COMPANY_SECONDS
        lately = {name for name, left in self._left.items() if left > since}
        return (self._streams.keys() | lately) - {account}

    def _go_on(self, jobs: Sequence[_Job]) -> None:
        """The rest of them comes before what its caller asked for later."""
        with self._changed:
            for job in reversed(jobs):
                if not job.done.cancelled():
                    self._jobs.setdefault(job.stream.account, deque()).appendleft(job)

    def _decode(self, run: Sequence[tuple[_Job, Codes]]) -> list[Audio]:
        if self._codec is None:
            self._codec = CodecDecoder(self._bundle, n_threads=1)
        chunks = []
        for job, codes in run:
            ends = job.last and not len(job.codes)
            chunks.append(CodecChunk(job.stream.on_thread(self._codec), codes, ends, job.bend))
        return decode_together(chunks)


class AudioStream(contextlib.AbstractContextManager["AudioStream"]):
    """One note on its way from codes to audio, while its `with` block lasts."""

    def __init__(self, decoding: CodecDecoding, account: str, seed: int, cents: Cents) -> None:
        """Is called by `CodecDecoding.stream`."""
        self._decoding = decoding
        self.account = account
        self._seed = seed
        self._cents = cents
        self._stream: CodecStream | None = None

    def __exit__(self, *_: object) -> None:
        self._decoding._leave(self.account)

    async def decode(self, frames: Sequence[Frame] | Codes, last: bool, bend: float = 0.0) -> Audio:
        """Takes the note's next frames, and returns what audio is ready: float32 [samples], possibly none.

        To be awaited before the next call. All that it returns, joined, is the whole note's audio.

        Args:
            last: whether the note ends with these.
            bend: cents, on top of the note's own.

        Raises:
            ValueError: a code is out of range: other notes of its run would fail with it.
        """
        spec = self._decoding.spec
        codes = checked_codes(np.array(frames, np.int64).reshape(len(frames), spec.n_codebooks), spec)
        done: asyncio.Future[Audio] = asyncio.get_running_loop().create_future()
        self._decoding._put(_Job(self, codes, last, bend, done))
        return await done

    def on_thread(self, codec: CodecDecoder) -> CodecStream:
        """Returns the codec's side of it. On the decoding thread only."""
        if self._stream is None:
            self._stream = codec.stream(self._seed, self._cents)
        return self._stream


@dataclass(eq=False)
class _Job:
    stream: AudioStream
    codes: Codes
    """Those that are still to be decoded."""
    last: bool
    bend: float
    done: asyncio.Future[Audio]
    pieces: list[Audio] = field(default_factory=list)

    def cut(self, n_frames: int) -> Codes:
        """Takes so many frames, as far as there are any."""
        codes, self.codes = self.codes[:n_frames], self.codes[n_frames:]
        return codes


def _settle_soon(jobs: Sequence[_Job], error: Exception | None = None) -> None:
    """Settles all of them by one hop to the event loop."""
    if not jobs:
        return
    # The loop is closed where a server ends in a hurry: nobody listens any more.
    with contextlib.suppress(RuntimeError):
        jobs[0].done.get_loop().call_soon_threadsafe(_settle, jobs, error)


def _settle(jobs: Sequence[_Job], error: Exception | None) -> None:
    for job in jobs:
        if job.done.done():  # its caller has gone
            continue
        if error is not None:
            job.done.set_exception(error)
        else:
            job.done.set_result(np.concatenate(job.pieces) if len(job.pieces) > 1 else job.pieces[0])
