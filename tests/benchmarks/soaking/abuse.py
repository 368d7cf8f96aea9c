"""Abuse: callers that mean no good, or know no better."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from pathlib import Path
from typing import Any

import grpc
from benchmarks.soaking.tally import Tally

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
KILLED_EVERY_SECONDS = 6.0
TIMEOUT_SECONDS = 20.0
TESTS = Path(__file__).resolve().parents[2]

METHODS = [
    (method.full_name.rpartition(".")[2], method.client_streaming, method.server_streaming)
    for method in pb.DESCRIPTOR.services_by_name["Synthesizer"].methods
]
SERVICE = pb.DESCRIPTOR.services_by_name["Synthesizer"].full_name


class Abuse:
    """Garbage in every shape, at a given rate, until cancelled."""

    def __init__(self, address: str, channel: grpc.aio.Channel, tally: Tally, seed: int = 1) -> None:
        self._address = address
        self._channel = channel
        self._tally = tally
        self._random = random.Random(seed)

    async def run(self, calls_per_second: float) -> None:
        """Runs all kinds at once."""
        async with asyncio.TaskGroup() as kinds:
            kinds.create_task(self._repeat(calls_per_second, self._hostile_call))
            kinds.create_task(self._repeat(calls_per_second / 10, self._raw_connection))
            kinds.create_task(self._repeat(1 / KILLED_EVERY_SECONDS, self._killed_client))

    async def _repeat(self, rate: float, action: Any) -> None:
        async with asyncio.TaskGroup() as calls:
            while True:
                await asyncio.sleep(self._random.expovariate(rate))
                calls.create_task(action())

    async def _hostile_call(self) -> None:
        name, streams_in, streams_out = self._random.choice(METHODS)
        kind = f"{'stream' if streams_in else 'unary'}_{'stream' if streams_out else 'unary'}"
        path = f"/{SERVICE}/{name}" if self._random.random() < 0.95 else f"/{SERVICE}/{name}x"
        method: Any = getattr(self._channel, kind)(path)
        bodies = [self._body() for _ in range(self._random.randint(1, 4))]
        self._tally.hostile_calls += 1
        try:
            call = method(iter(bodies) if streams_in else bodies[0], timeout=TIMEOUT_SECONDS)
            if streams_out:
                async for _ in call:
                    pass
            else:
                await call
        except grpc.aio.AioRpcError as error:
            self._tally.count_fault(error)

    def _body(self) -> bytes:
        """Noise, a message cut short, or one whose numbers make no sense."""
        pick = self._random
        odd = pick.choice([0.0, -1.0, 1e300, float("nan"), float("inf")])
        note = pb.GenerateRequest(
            timbre=pb.Timbre(x=odd, y=pick.uniform(-9, 9)),
            pitch=pick.choice([0, 1, 128, 2**32 - 1]),
            velocity=pick.choice([0, 128, 2**31]),
            seconds=odd,
            bundle="x" * pick.randint(0, 999),
        ).SerializeToString()
        kind = pick.randrange(3)
        if kind == 0:
            return pick.randbytes(pick.randint(0, 2000))
        return note[: pick.randint(0, len(note))] if kind == 1 else note

    async def _raw_connection(self) -> None:
        """Bytes that are no HTTP/2, half a greeting, or nothing at all; then it hangs up."""
        self._tally.connections += 1
        host, _, port = self._address.rpartition(":")
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection(host, int(port))
            noise = self._random.randbytes(self._random.randint(0, 4000))
            writer.write(self._random.choice([noise, PREFACE + noise, PREFACE[:10], b""]))
            await writer.drain()
            await asyncio.wait_for(reader.read(1), self._random.uniform(0.0, 2.0))
        with contextlib.suppress(OSError, UnboundLocalError):
            writer.transport.abort()

    async def _killed_client(self) -> None:
        """A process that asks for notes and is killed while they sound."""
        self._tally.killed_clients += 1
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.soaking.callers", "ask_on", self._address), cwd=TESTS
        )
        try:
            await asyncio.sleep(self._random.uniform(1.0, 3.0))
            if process.returncode is not None:
                raise RuntimeError("a client that was to be killed has ended by itself")
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
