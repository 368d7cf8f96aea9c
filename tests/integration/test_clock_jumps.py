"""The machine's clock is set while notes sound: a day on, two days back, and right again.

Nothing that the server does may hang on the time of day. Only that clock is moved; the one that merely counts
on (CLOCK_MONOTONIC) goes as it does on a real machine.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from requirements_gate import find_faketime, require_system
from server_process import ServerProcess
from waiting import wait_for_async

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server.engine.scheduler import FrameClock

PATIENCE_SECONDS = 120.0
SERVING = health_pb2.HealthCheckResponse.SERVING
JUMPS = {"+1d": 1, "-1d": -1, "+0": 0}
"""The offsets that the clock is set to, and how many days off they are."""
DAY = timedelta(days=1)
NOTICED_SECONDS = 1
"""A process looks this often whether its clock was set: at each call would slow it down tenfold. libfaketime
counts whole seconds, so it may take as long again."""
LEAD_SECONDS = 0.1

SLOW_SERVER = """
import select, sys
from timbrel_server.__main__ import main
from timbrel_server.decoder.runner import Runner
step = Runner.step
def slow_step(self, *given):
    select.select([], [], [], 0.02)  # sleep fails where the clock jumps, by libfaketime
    return step(self, *given)
Runner.step = slow_step
sys.exit(main())
"""
"""Each note takes it some two seconds."""

StartServer = Callable[..., ServerProcess]


class WallClock:
    """The time of day as one process sees it."""

    def __init__(self, folder: Path) -> None:
        require_system("faketime")
        self._file = folder / "offset"
        self.set("+0")

    @property
    def environment(self) -> dict[str, str]:
        """What has a process see it."""
        return {
            "LD_PRELOAD": str(find_faketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": str(NOTICED_SECONDS),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }

    def set(self, offset: str) -> None:
        """Sets it to `+1d`, `-1d`, ... from the real time."""
        temporary = self._file.with_suffix(".new")
        temporary.write_text(f"{offset}\n")
        temporary.replace(self._file)


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    return WallClock(tmp_path)


def note(seed: int) -> pb.GenerateRequest:
    return pb.GenerateRequest(timbre=pb.Timbre(), pitch=60, seconds=2.4, seed=seed)


class Callers:
    """Several calls of every kind that lasts, and what came of them."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = pb_grpc.SynthesizerStub(channel)
        self._health: Any = health_pb2_grpc.HealthStub(channel)
        self.n_notes = 0

    async def generate(self, over: asyncio.Event) -> None:
        """One note after another, each with a deadline that is far off for a clock that does not jump."""
        while not over.is_set():
            replies = [each async for each in self._stub.Generate(note(1), timeout=PATIENCE_SECONDS)]
            assert sum(reply.codes.n_frames for reply in replies) == 94
            self.n_notes += 1

    async def batch(self, over: asyncio.Event) -> None:
        """Batches whose items wait for a slot, likewise."""
        while not over.is_set():
            items = [pb.GenerateBatchRequest(id=number, note=note(number)) for number in range(8)]
            call = self._stub.GenerateBatch(iter(items), timeout=PATIENCE_SECONDS)
            assert {response.status.code async for response in call} == {0}
            self.n_notes += len(items)

    async def play(self, over: asyncio.Event) -> None:
        """Keys that are let go once half a second has sounded: time stands still for none of them."""
        while not over.is_set():
            call = self._stub.Play(timeout=PATIENCE_SECONDS)
            note_on = pb.NoteOn(note=note(1), lead_seconds=LEAD_SECONDS)
            await call.write(pb.PlayRequest(id=1, note_on=note_on))
            responses: list[Any] = []
            is_down = True
            while (response := await call.read()) is not grpc.aio.EOF:
                responses.append(response)
                if is_down and sum(each.reply.codes.n_frames for each in responses) >= 25:
                    is_down = False
                    await call.write(pb.PlayRequest(id=1, note_off=pb.NoteOff()))
                    await call.done_writing()
            assert all(response.WhichOneof("event") == "reply" for response in responses)
            assert responses[-1].reply.finish_reason and responses[-1].reply.held_seconds >= 0.5
            self.n_notes += 1

    async def check(self, over: asyncio.Event) -> None:
        """Asks how the server is, over and over."""
        while not over.is_set():
            for service in ("", "readiness", "liveness"):
                request = health_pb2.HealthCheckRequest(service=service)
                assert (await self._health.Check(request, timeout=PATIENCE_SECONDS)).status == SERVING
            await asyncio.sleep(0.02)


@pytest.mark.slow
def test_nothing_is_refused_nothing_expires_and_nobody_falls_ill(
    start_server: StartServer, clock: WallClock
) -> None:
    options = ("--slots", "4", "--stall", "60", "--metrics-port", "0", "--log-format", "json")
    server = start_server(*options, **clock.environment)

    async def set_clock(over: asyncio.Event, callers: Callers) -> None:
        for offset, days in JUMPS.items():
            clock.set(offset)
            await wait_for_async(
                lambda wanted=days: [round(n) for n in days_off(calls_of(server)[-1:])] == [wanted],  # type: ignore[misc]
                f"the server to see the clock at {offset}",
            )
            before = callers.n_notes
            await wait_for_async(lambda n=before + 3: callers.n_notes >= n, "three more notes")  # type: ignore[misc]
            with urllib.request.urlopen(f"http://{server.metrics_address}/livez") as reply:
                assert reply.status == 200
        over.set()

    async def test() -> None:
        over = asyncio.Event()
        async with grpc.aio.insecure_channel(server.address) as channel, asyncio.TaskGroup() as tasks:
            callers = Callers(channel)
            for work in (callers.generate, callers.generate, callers.batch, callers.play, callers.check):
                tasks.create_task(work(over))
            tasks.create_task(set_clock(over, callers))

    asyncio.run(asyncio.wait_for(test(), 3 * PATIENCE_SECONDS))
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert not [word for word in ("warning", "error", "critical") if f'"level": "{word}"' in server.log()]
    calls = calls_of(server)
    assert {entry["code"] for entry in calls} == {"OK"}
    assert max(entry["seconds"] for entry in calls) < DAY.total_seconds() / 2, "a call seems to last a day"
    assert min(entry["seconds"] for entry in calls) >= 0
    days = days_off(calls)
    assert min(days) < -0.9 and max(days) > 0.9, "the clock should have jumped"


@pytest.mark.slow
def test_what_is_accepted_is_finished_though_the_clock_jumps_while_the_server_drains(
    start_server: StartServer, clock: WallClock
) -> None:
    options = ("--slots", "2", "--grace", "60", "--log-format", "json")
    environment = {**clock.environment, "FAKETIME_NO_CACHE": "1"}
    server = start_server(*options, program=("-c", SLOW_SERVER), **environment)
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        streams = [stub.Generate(note(seed), timeout=PATIENCE_SECONDS) for seed in range(8)]
        for stream in streams:
            stream.initial_metadata()
        server.signal(signal.SIGTERM)
        clock.set("+1d")
        assert [sum(reply.codes.n_frames for reply in stream) for stream in streams] == [94] * len(streams)
    assert server.wait() == 0
    assert max(days_off(calls_of(server))) > 0.9, "the clock should have jumped before the last note ended"


def test_live_notes_keep_to_a_clock_that_nobody_sets() -> None:
    """The calls above would not notice: how far a note has come is a matter of time."""
    assert inspect.signature(FrameClock).parameters["clock"].default is time.perf_counter


def calls_of(server: ServerProcess) -> list[dict[str, Any]]:
    """What the log says of each call."""
    return [entry for entry in server.log_entries() if "code" in entry]


def days_off(entries: list[dict[str, Any]]) -> list[float]:
    """How far the log's time of day is from this test's."""
    return [(datetime.fromisoformat(entry["time"]) - datetime.now(UTC)) / DAY for entry in entries]
