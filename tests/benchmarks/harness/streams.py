"""Finds how many listeners can be kept supplied: notes one after another, each played as it is written.

A stream asks for a note, begins to play it 300 ms later, and asks for the next when that one ends. A chunk of
audio is late where it comes after the moment at which its first sample is to be played.
"""

from __future__ import annotations

import heapq
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecChunk, CodecDecoder, CodecStream, decode_together
from timbrel_bundle.manifest import written_ranges
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.decoder.runner import Runner
from timbrel_server.decoder.sessions import DecoderSessions
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.engine.request import Delivery, NoteRequest, RequestHandle
from timbrel_server.served_bundles.served_bundle import token_layout

BUFFER_SECONDS = 0.3
"""The time between asking for a note and playing its first sample."""

QUEUE_CAPACITY = 1_000_000
"""The engine's queue: a trial that asks for too much is to end with late chunks, not with refusals."""

Deliveries = Sequence[tuple[RequestHandle, Delivery]]
Hear = Callable[[int, bool], None]
"""Told how many samples have become ready, and whether the note is over."""


@dataclass(frozen=True)
class Trial:
    """The result of keeping so many streams at once."""

    n_streams: int
    seconds: float
    n_chunks: int
    n_late: int
    n_unfinished: int
    """Notes of which nothing was heard any more for a minute."""
    worst_lateness: float
    """Seconds by which the worst chunk came after its time; negative: so much before it."""
    first_chunk_ms: tuple[float, ...] = ()
    """The times of all notes from the asking to the first chunk."""

    @property
    def is_good(self) -> bool:
        """Tells whether every chunk came, and in time."""
        return self.n_chunks > 0 and self.n_late == 0 and self.n_unfinished == 0


class AudioDecoder:
    """Turns deliveries into audio on a thread of its own: all that wait, in one run."""

    def __init__(self, bundle: Bundle, n_threads: int = 1) -> None:
        self._decoder = CodecDecoder(bundle, n_threads)
        self._inbox: queue.SimpleQueue[Deliveries | None] = queue.SimpleQueue()
        self._chunks: list[tuple[CodecChunk, Hear]] = []
        self._thread = threading.Thread(target=self._main, name="codec", daemon=True)
        self._thread.start()

    def post(self, deliveries: Deliveries) -> None:
        """The engine's `post`: hands over and returns at once."""
        self._inbox.put(deliveries)

    def listen(self, hear: Hear) -> Callable[[Delivery], None]:
        """A receiver of one note's deliveries, which tells `hear` of the audio that they become."""
        stream = self._decoder.stream()
        return lambda delivery: self._chunks.append((self._chunk(stream, delivery), hear))

    def close(self) -> None:
        """Ends the thread."""
        self._inbox.put(None)
        self._thread.join()

    def _chunk(self, stream: CodecStream, delivery: Delivery) -> CodecChunk:
        codes = np.array(delivery.frames, dtype=np.uint16).reshape(-1, self._decoder.spec.n_codebooks)
        return CodecChunk(stream, codes, last=delivery.finish is not None)

    def _main(self) -> None:
        while (deliveries := self._inbox.get()) is not None:
            for handle, delivery in deliveries:
                if delivery.error is None:  # the engine gives up what is unheard when it is stopped
                    handle.receive(delivery)
            # A note is never twice among a step's deliveries.
            waiting, self._chunks = self._chunks, []
            ready = decode_together([chunk for chunk, _ in waiting])
            for (chunk, hear), audio in zip(waiting, ready, strict=True):
                hear(len(audio), chunk.last)


class CodesOnly:
    """Stands in the place of AudioDecoder and counts what the codes would be as audio, at once."""

    def __init__(self, bundle: Bundle) -> None:
        self._hop_length = bundle.manifest.codec.hop_length

    def post(self, deliveries: Deliveries) -> None:
        """The engine's `post`."""
        for handle, delivery in deliveries:
            handle.receive(delivery)

    def listen(self, hear: Hear) -> Callable[[Delivery], None]:
        """Listens as AudioDecoder does."""

        def receive(delivery: Delivery) -> None:
            if delivery.error is None:
                hear(len(delivery.frames) * self._hop_length, delivery.finish is not None)

        return receive

    def close(self) -> None:
        """Nothing to end."""


Listening = AudioDecoder | CodesOnly


class Player:
    """An engine, and what makes its codes audible."""

    def __init__(self, bundle: Bundle, sessions: DecoderSessions, n_slots: int, listening: Listening) -> None:
        self._manifest = bundle.manifest
        self.listening = listening
        runner = Runner(sessions, bundle.manifest, n_slots)
        self._engine = EnginePool([runner], token_layout(bundle.manifest), QUEUE_CAPACITY, listening.post)
        self._engine.start()
        self.random = np.random.default_rng(0)

    def close(self) -> None:
        """Ends all threads."""
        self._engine.stop()
        self.listening.close()

    def ask(self, request: NoteRequest, hear: Hear) -> None:
        """Asks for a note; `hear` is called on the listening thread."""
        self._engine.accept(RequestHandle(request, self.listening.listen(hear)))

    def random_note(self, shortest: float = 1.0, longest: float = 3.0) -> NoteRequest:
        """A note anywhere on the map, held for a time between the two, in seconds."""
        return random_note(self._manifest, self.random, shortest, longest)

    def times_real_time(self, n_notes: int) -> float:
        """Seconds of audio per second of time: one note after another, the median note."""
        found = []
        for _ in range(n_notes):
            done, n_heard = threading.Event(), [0]

            def hear(
                n_samples: int, last: bool, heard: list[int] = n_heard, end: threading.Event = done
            ) -> None:
                heard[0] += n_samples
                if last:
                    end.set()

            started = time.perf_counter()
            self.ask(self.random_note(), hear)
            done.wait()
            found.append(n_heard[0] / self._manifest.codec.sample_rate / (time.perf_counter() - started))
        return float(np.median(found))

    def try_streams(self, n_streams: int, seconds: float) -> Trial:
        """Keeps so many streams sounding for a time. They begin at random within the first second."""
        return _Audience(self, n_streams, seconds, self._manifest.codec.sample_rate).listen()

    def most_streams(self, guess: int, probe_seconds: float, seconds: float) -> Trial:
        """The most streams that can be kept up: found by short trials, then held for the full time."""
        good, bad = 0, None
        n = max(1, guess)
        while bad is None or bad - good > max(1, good // 10):
            if self.try_streams(n, probe_seconds).is_good:
                good = n
            else:
                bad = n
            n = 2 * good if bad is None else (good + bad) // 2
            if n <= good:
                break
        trial = Trial(0, seconds, 0, 0, 0, 0.0)
        while good > 0 and not (trial := self.try_streams(good, seconds)).is_good:
            good = min(good - 1, int(good * 0.9))
        return trial


class _Audience:
    """The streams of one trial: each a walk through notes, timed by what was heard."""

    def __init__(self, player: Player, n_streams: int, seconds: float, sample_rate: int) -> None:
        self._player, self._seconds, self._sample_rate = player, seconds, sample_rate
        self._n_streams = n_streams
        self._start = time.perf_counter() + 0.05
        offsets = player.random.uniform(0.0, min(1.0, 0.5 * seconds), n_streams)
        self._due = [(self._start + float(offset), number) for number, offset in enumerate(offsets)]
        heapq.heapify(self._due)
        self._changed = threading.Condition()  # guards all above and below
        self._sounding = 0
        self._n_chunks = self._n_late = 0
        self._worst = -BUFFER_SECONDS
        self._first_chunk_ms: list[float] = []

    def listen(self) -> Trial:
        end = self._start + self._seconds
        while (asked := self._next_due(end)) is not None:
            self._ask(*asked)
        with self._changed:
            self._changed.wait_for(lambda: self._sounding == 0, timeout=60.0)
        return Trial(
            self._n_streams,
            self._seconds,
            self._n_chunks,
            self._n_late,
            self._sounding,
            self._worst,
            tuple(self._first_chunk_ms),
        )

    def _next_due(self, end: float) -> tuple[float, int] | None:
        with self._changed:
            while True:
                now = time.perf_counter()
                if now >= end or self._n_late:  # one late chunk decides it
                    return None
                if self._due and self._due[0][0] <= now:
                    self._sounding += 1
                    return heapq.heappop(self._due)
                self._changed.wait(min(end, self._due[0][0] if self._due else end) - now)

    def _ask(self, due: float, number: int) -> None:
        n_heard = 0

        def hear(n_samples: int, last: bool) -> None:
            nonlocal n_heard
            now = time.perf_counter()
            with self._changed:
                if n_samples:
                    if not n_heard:
                        self._first_chunk_ms.append(1e3 * (now - due))
                    lateness = now - (due + BUFFER_SECONDS + n_heard / self._sample_rate)
                    self._n_chunks += 1
                    self._n_late += lateness > 0
                    self._worst = max(self._worst, lateness)
                n_heard += n_samples
                if last:
                    self._sounding -= 1
                    # A note may be empty: its stream asks again after a frame's length all the same.
                    heapq.heappush(self._due, (due + max(n_heard / self._sample_rate, 0.03), number))
                    self._changed.notify()

        self._player.ask(self._player.random_note(), hear)


def random_note(
    manifest: pb.Manifest, random: np.random.Generator, shortest: float, longest: float
) -> NoteRequest:
    """A note anywhere on the map, held for a time between the two, in seconds, if the bundle allows it."""
    ranges, codec = written_ranges(manifest), manifest.codec
    angle, radius = random.uniform(0, 2 * np.pi), np.sqrt(random.uniform())
    longest = min(longest, ranges.seconds_max)
    held = random.uniform(min(shortest, longest), longest)
    return NoteRequest(
        timbre=(float(radius * np.cos(angle)), float(radius * np.sin(angle))),
        pitch=int(random.integers(ranges.pitch_min, ranges.pitch_max + 1)),
        velocity=int(random.integers(ranges.velocity_min, ranges.velocity_max + 1)),
        held_frames=max(1, round(held * codec.sample_rate / codec.hop_length)),
        seed=int(random.integers(2**32)),
    )
