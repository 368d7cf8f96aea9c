"""Notes asked for at random, whatever becomes of those before, and batches whose caller hardly ever reads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc
from benchmarks.soaking.tally import Tally

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

LONGEST_WAIT_SECONDS = 120.0
"""A note that was accepted and has not come by then is lost, and a batch that answers nothing is stuck."""

SHARE_CANCELLED = 0.1
SHARE_WITH_DEADLINE = 0.1
SHARE_SLOWLY_READ = 0.02

AUDIO = pb.AUDIO_FORMAT_PCM16

N_ITEMS = 10_000
ASLEEP_SECONDS = 10.0
AWAKE_SECONDS = 5.0


class NoteTraffic:
    """Callers of one server."""

    def __init__(self, stub: Any, tally: Tally, ranges: pb.RequestRanges, seed: int = 0) -> None:
        self._stub = stub
        self._tally = tally
        self._ranges = ranges
        self._random = random.Random(seed)
        self._calls: set[asyncio.Task[None]] = set()

    async def saturate(self, n_at_once: int) -> None:
        """Keeps so many notes asked for, until cancelled."""

        async def one_after_another() -> None:
            while True:
                await self._plain()

        await asyncio.gather(*(one_after_another() for _ in range(n_at_once)))

    async def poisson(self, rate: float, seconds: float, *, mixed: bool) -> None:
        """`rate` notes a second on average, for so long; returns with the last asked for.

        Args:
            mixed: some callers cancel, and some have a deadline. Some want audio and read slowly in any case:
                what they ask for is work like any other.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        over = now + seconds
        while (now := now + self._random.expovariate(rate)) < over:
            await asyncio.sleep(max(0.0, now - loop.time()))
            call = asyncio.create_task(self._choose(mixed)())
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        await asyncio.sleep(max(0.0, over - loop.time()))

    async def finish(self) -> None:
        """Waits for all that was asked for; what does not come is counted as unanswered."""
        if not self._calls:
            return
        _, lost = await asyncio.wait(self._calls, timeout=LONGEST_WAIT_SECONDS)
        self._tally.unanswered += len(lost)
        for call in lost:
            call.cancel()

    def _choose(self, mixed: bool) -> Callable[[], Coroutine[Any, Any, None]]:
        draw = self._random.random()
        for share, kind in (
            (SHARE_SLOWLY_READ, self._slowly_read),
            (SHARE_CANCELLED if mixed else 0.0, self._cancelled),
            (SHARE_WITH_DEADLINE if mixed else 0.0, self._with_deadline),
        ):
            if draw < share:
                return kind
            draw -= share
        return self._plain

    def any_note(self, audio: bool = False) -> pb.GenerateRequest:
        """A random note, asked for as codes or as audio."""
        pick = self._random
        return pb.GenerateRequest(
            timbre=pb.Timbre(x=pick.uniform(-0.6, 0.6), y=pick.uniform(-0.6, 0.6)),
            pitch=pick.randint(self._ranges.pitch_min, self._ranges.pitch_max),
            velocity=pick.randint(self._ranges.velocity_min, self._ranges.velocity_max),
            seconds=pick.uniform(0.5, 2.0),
            seed=pick.getrandbits(63) + 1,
            audio=AUDIO if audio else pb.AUDIO_FORMAT_UNSPECIFIED,
        )

    async def _plain(self) -> None:
        await self._read(self._stub.Generate(self.any_note()))

    async def _with_deadline(self) -> None:
        seconds = self._random.uniform(0.05, 5.0)
        await self._read(self._stub.Generate(self.any_note(), timeout=seconds), own_doing=True)

    async def _cancelled(self) -> None:
        call = self._stub.Generate(self.any_note())
        asyncio.get_running_loop().call_later(self._random.expovariate(1.0), call.cancel)
        await self._read(call, own_doing=True)

    async def _slowly_read(self) -> None:
        self._tally.slow_notes += 1
        await self._read(self._stub.Generate(self.any_note(audio=True)), pause_seconds=0.25)

    async def _read(self, call: Any, *, own_doing: bool = False, pause_seconds: float = 0.0) -> None:
        n_replies = 0
        try:
            async for _ in call:
                n_replies += 1
                if pause_seconds:
                    await asyncio.sleep(pause_seconds)
        except grpc.aio.AioRpcError as error:
            self._tally.count_end(error, n_replies, own_doing=own_doing)
        except asyncio.CancelledError:
            if not call.cancelled() or not own_doing:
                raise
            self._tally.given_up += 1
        else:
            self._tally.count_end(None, n_replies)


class SlowBatches:
    """One stream of 10,000 items after another: its reader sleeps for ten seconds, reads for five, and so on.

    While it sleeps the server is to hold no more for it than `max_in_flight` items, and nobody up.
    """

    def __init__(self, stub: Any, tally: Tally, make_note: Callable[[], pb.GenerateRequest]) -> None:
        self._stub = stub
        self._tally = tally
        self._make_note = make_note

    async def run(self, asleep_seconds: float = ASLEEP_SECONDS) -> None:
        """Asks for one batch after another until cancelled: what is under way then is given up.

        Args:
            asleep_seconds: how long a nap takes.
        """
        while True:
            call = self._stub.GenerateBatch(self._items())
            try:
                await self._read(call, asleep_seconds)
            except grpc.aio.AioRpcError as error:
                self._tally.count_batch_end(error)
                await asyncio.sleep(1.0)
            finally:
                call.cancel()

    async def _items(self) -> AsyncIterator[pb.GenerateBatchRequest]:
        for number in range(N_ITEMS):
            yield pb.GenerateBatchRequest(id=number, note=self._make_note())

    async def _read(self, call: Any, asleep_seconds: float) -> None:
        end: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # grpc-stubs does not know it
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(asleep_seconds)
            until = clock() + AWAKE_SECONDS
            while clock() < until:
                try:
                    response = await asyncio.wait_for(call.read(), LONGEST_WAIT_SECONDS)
                except TimeoutError:
                    self._tally.stuck_batches += 1
                    return
                if response is end:
                    return
                self._tally.count_item(response.status.code, response.status.message)
