"""Batches of many notes, whose caller hardly ever reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from benchmarks.soaking.tally import Tally

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

N_ITEMS = 10_000
ASLEEP_SECONDS = 10.0
AWAKE_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 120.0
"""Within which something must come to a reader who is awake."""


class SlowBatches:
    """One stream of 10,000 items after another: its reader sleeps for ten seconds, reads for five, and so on.

    While it sleeps the server is to hold no more for it than `max_in_flight` items, and nobody up.
    """

    def __init__(self, stub: Any, tally: Tally, make_note: Callable[[], pb.GenerateRequest]) -> None:
        self._stub = stub
        self._tally = tally
        self._make_note = make_note

    async def run(self, asleep_seconds: float = ASLEEP_SECONDS) -> None:
        """Until cancelled: what is under way then is given up.

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
