"""A process that asks a server for notes and keeps the time.

python -m benchmarks.harness.load HOST:PORT SEED [CONNECTIONS]
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from benchmarks.harness.processes import answer
from benchmarks.harness.streams import BUFFER_SECONDS

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc


@dataclass
class Tally:
    """Counts what became of the notes that were asked for."""

    first_chunk_ms: list[float] = field(default_factory=list)
    """Times from the moment a note was to be asked for, whether or not the asking was in time."""
    n_notes: int = 0
    n_refused: int = 0
    n_frames: int = 0
    n_late: int = 0
    """Chunks that came after 300 ms plus the moment at which their first frame is to be played."""
    frames_at: list[tuple[float, int]] = field(default_factory=list)
    """When frames came, and how many."""


@dataclass(frozen=True)
class Window:
    """The time in which frames count."""

    start: float
    end: float

    @classmethod
    def after_warm_up(cls, seconds: float) -> Window:
        """A window of so many seconds, after a fifth of them."""
        start = time.perf_counter() + 0.2 * seconds
        return cls(start, start + seconds)

    async def run(self, askers: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Runs them all until the window's end."""
        tasks = [asyncio.create_task(asker) for asker in askers]
        await asyncio.wait(tasks, timeout=self.end - time.perf_counter())
        for task in tasks:
            if task.done():
                task.result()  # one that failed says so
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def rate(self, frames_at: Sequence[tuple[float, int]]) -> float:
        """Frames per second."""
        frames = sum(n for at, n in frames_at if self.start <= at < self.end)
        return frames / (self.end - self.start)


class Load:
    """Asks one server, in the ways that the benchmark wants."""

    def __init__(self, address: str, seed: int, n_connections: int = 1) -> None:
        self._random = np.random.default_rng(seed)
        self._loop = asyncio.Runner()
        self._manifest = self._loop.run(self._connect(address, n_connections))

    def __call__(self, what: str, **arguments: Any) -> Any:
        ways: dict[str, Callable[..., Coroutine[Any, Any, Any]]]
        ways = {
            "one_by_one": self.one_by_one,
            "poisson": self.poisson,
            "saturate": self.saturate,
            "saturate_by_batch": self.saturate_by_batch,
        }
        return self._loop.run(ways[what](Tally(), **arguments))

    async def _connect(self, address: str, n_connections: int) -> pb.Manifest:
        apart = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(address, apart) for _ in range(n_connections)]
        self._stubs = itertools.cycle([pb_grpc.SynthesizerStub(channel) for channel in channels])
        self._stub = next(self._stubs)
        reply = await self._stub.GetModel(pb.GetModelRequest())
        manifest: pb.Manifest = reply.manifest
        return manifest

    async def one_by_one(self, tally: Tally, n_notes: int) -> dict[str, Any]:
        """Notes with pauses between them: the server is idle when each is asked for."""
        for _ in range(n_notes):
            await self._note(tally, time.perf_counter(), 0.5, 0.5)
            await asyncio.sleep(0.05)
        return {"first_chunk_ms": tally.first_chunk_ms}

    async def poisson(
        self, tally: Tally, rate: float, seconds: float, shortest: float, longest: float
    ) -> dict[str, Any]:
        """Notes at random moments, `rate` a second on average, whatever becomes of those before."""
        tasks: list[asyncio.Task[None]] = []
        start = due = time.perf_counter()
        while (due := due + self._random.exponential(1.0 / rate)) < start + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(self._note(tally, due, shortest, longest)))
        await asyncio.gather(*tasks)
        elapsed = time.perf_counter() - start
        return {
            "asked": len(tasks),
            "notes": tally.n_notes,
            "refused": tally.n_refused,
            "late": tally.n_late,
            "seconds": elapsed,
            "frames": tally.n_frames,
            "first_chunk_ms": tally.first_chunk_ms,
        }

    async def saturate(
        self, tally: Tally, n_at_once: int, seconds: float, shortest: float, longest: float
    ) -> dict[str, Any]:
        """Keeps as many notes at once asked for, always: frames that came in the last `seconds`."""
        window = Window.after_warm_up(seconds)

        async def ask_again() -> None:
            while time.perf_counter() < window.end:
                await self._note(tally, time.perf_counter(), shortest, longest)

        await window.run([ask_again() for _ in range(n_at_once)])
        return {"frames_per_second": window.rate(tally.frames_at), "refused": tally.n_refused}

    async def saturate_by_batch(
        self, tally: Tally, n_at_once: int, seconds: float, shortest: float, longest: float
    ) -> dict[str, Any]:
        """The same on one GenerateBatch stream, which answers each note whole."""
        window = Window.after_warm_up(seconds)
        places = asyncio.Semaphore(n_at_once)

        async def items() -> AsyncIterator[pb.GenerateBatchRequest]:
            for item_id in itertools.count():
                await places.acquire()
                yield pb.GenerateBatchRequest(id=item_id, note=self._request(shortest, longest))

        async def ask() -> None:
            async for response in self._stub.GenerateBatch(items()):
                places.release()
                tally.n_refused += response.status.code != 0
                tally.frames_at.append((time.perf_counter(), response.note.codes.n_frames))

        await window.run([ask()])
        return {"frames_per_second": window.rate(tally.frames_at), "refused": tally.n_refused}

    async def _note(self, tally: Tally, due: float, shortest: float, longest: float) -> None:
        codec = self._manifest.codec
        n_heard = 0
        try:
            async for reply in next(self._stubs).Generate(self._request(shortest, longest)):
                if not (n_frames := reply.codes.n_frames):
                    continue
                now = time.perf_counter()
                if n_heard == 0:
                    tally.first_chunk_ms.append(1e3 * (now - due))
                tally.n_late += now > due + BUFFER_SECONDS + n_heard * codec.hop_length / codec.sample_rate
                n_heard += n_frames
                tally.n_frames += n_frames
                tally.frames_at.append((now, n_frames))
            tally.n_notes += 1
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            tally.n_refused += 1
            await asyncio.sleep(0.05)

    def _request(self, shortest: float, longest: float) -> pb.GenerateRequest:
        ranges, random = self._manifest.ranges, self._random
        angle, radius = random.uniform(0, 2 * np.pi), np.sqrt(random.uniform())
        longest = min(longest, ranges.seconds_max)
        return pb.GenerateRequest(
            timbre=pb.Timbre(x=float(radius * np.cos(angle)), y=float(radius * np.sin(angle))),
            pitch=int(random.integers(ranges.pitch_min, ranges.pitch_max + 1)),
            velocity=int(random.integers(ranges.velocity_min, ranges.velocity_max + 1)),
            seconds=float(random.uniform(min(shortest, longest), longest)),
            seed=int(random.integers(2**32)),
        )


if __name__ == "__main__":
    answer(Load(sys.argv[1], *map(int, sys.argv[2:])))
