"""A server under twice the load it can bear, and abused: does it bear it?

Examples:
    python tests/benchmarks/soak.py --minutes 10          the bundle that ships
    python tests/benchmarks/soak.py --minutes 1 --bundle tests/data/tiny_bundle
    python tests/benchmarks/soak.py --floods              and attacked all the while

The server (`timbrel serve`, one thread a step) runs on one core, everything else on another. First it is
measured what it writes when it is never without a note to write; then, for a tenth of the time, notes come at
random at 95 % of that, and fewer than 0.1 % may be refused: the sustainable load. Then they come twice as
often, while some callers cancel, have short deadlines or read slowly; one asks for batches of 10,000 notes
and sleeps for ten seconds at a time; others send noise on every method or bytes that are no HTTP/2, or are
killed; once in a while the bundle is replaced by a broken one and SIGHUP sent. With --floods each attack of
attack.py is made in turn all the while, at its full size, by strangers of another network.
With --clock-jumps (and Debian's libfaketime) the server's time of day is set a day on and back as well: to
look at the clock then takes far longer, so that such a run says nothing of how fast it is.
The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # it starts processes, which use no gRPC of its own
sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import grpc
import numpy as np
from benchmarks.harness.processes import start_pinned
from benchmarks.harness.report import Bar, Report, usable_cores
from benchmarks.soaking.abuse import Abuse
from benchmarks.soaking.server import MemoryWatch, SoakedServer, WallClock
from benchmarks.soaking.tally import Tally
from benchmarks.soaking.traffic import ASLEEP_SECONDS, NoteTraffic, SlowBatches

from timbrel_bundle.bundle import Bundle
from timbrel_protos.timbrel.v1 import synthesizer_pb2_grpc as pb_grpc
from timbrel_server.config import default_bundle_path

SHARE_OF_SATURATION = 0.95
SUSTAINABLE_REFUSED = 1e-3
OVERLOAD = 2.0
HOSTILE_CALLS_PER_SECOND = 40.0
RELOAD_EVERY_SECONDS = 20.0
CLOCK_EVERY_SECONDS = 15.0
ROOM_BYTES = 20e6
"""Memory may grow by this beyond its share."""

MILLISECONDS = ("p50", "p99", "p999", "max")


class Soak:
    """One run."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._seconds = args.minutes * 60.0
        self._bundle = Bundle.open(args.bundle)
        self._link = folder / "bundle"
        self._link.symlink_to(args.bundle.resolve())
        self._broken = folder / "broken"
        cores = usable_cores()
        self._load_core = {cores[-1]}
        options = ["--threads", "1", "--slots", str(args.slots), "--queue", str(args.queue), "--grace", "60"]
        options += ["--metrics-port", "0"]
        self._clock = WallClock(folder)
        self._clock_jumps = args.clock_jumps
        self._floods = args.floods
        changes = self._clock.environment if args.clock_jumps else {}
        self.server = SoakedServer(self._link, {cores[0]}, *options, environment=changes)
        self._slots = args.slots
        self._tally = Tally()

    async def run(self) -> dict[str, Any]:
        """All phases; returns the figures."""
        async with grpc.aio.insecure_channel(self.server.address) as channel:
            sustainable = await self._find_sustainable(channel)
            print(
                f"sustainable: {sustainable['rate']:.3g} notes/s, {sustainable['frames']:.4g} frames/s",
                flush=True,
            )
            return await self._overload(channel, sustainable)

    async def _find_sustainable(self, channel: grpc.aio.Channel) -> dict[str, float]:
        """Notes and frames a second."""
        tally = Tally()
        traffic = self._traffic(channel, tally, seed=1)
        seconds = min(60.0, max(min(8.0, self._seconds / 2), self._seconds / 10))
        async with _aside(traffic.saturate(2 * self._slots)):
            await asyncio.sleep(seconds / 2)  # warms up
            before, began = tally.answered, time.monotonic()
            await asyncio.sleep(seconds)
            rate = SHARE_OF_SATURATION * (tally.answered - before) / (time.monotonic() - began)
        while True:
            trial = Tally()
            traffic = self._traffic(channel, trial, seed=2)
            await traffic.poisson(rate, seconds / 2, mixed=False)  # until as many notes end as begin
            frames, began = self.server.n_frames(), time.monotonic()
            await traffic.poisson(rate, seconds, mixed=False)
            written = (self.server.n_frames() - frames) / (time.monotonic() - began)
            await traffic.finish()
            if trial.refused <= SUSTAINABLE_REFUSED * (trial.refused + trial.answered):
                return {"rate": rate, "frames": written}
            rate *= 0.9

    async def _overload(self, channel: grpc.aio.Channel, sustainable: dict[str, float]) -> dict[str, Any]:
        traffic = self._traffic(channel, self._tally, seed=3)
        memory = MemoryWatch(self.server.resident_bytes)
        batches = SlowBatches(pb_grpc.SynthesizerStub(channel), self._tally, traffic.any_note)
        watcher = ["-m", "benchmarks.soaking.callers", "watch_health", self.server.address]
        watch = start_pinned(watcher, self._load_core)
        flooding = ["-m", "benchmarks.soaking.callers", "flood", self.server.address]
        attackers = start_pinned(flooding, self._load_core) if self._floods else None
        async with (
            _aside(memory.run()),
            _aside(Abuse(self.server.address, channel, self._tally).run(HOSTILE_CALLS_PER_SECOND)),
            _aside(self._break_the_bundle()),
            _aside(self._jump()),
            _aside(batches.run(min(ASLEEP_SECONDS, self._seconds / 6))),
        ):
            lead_in = min(10.0, self._seconds / 6)  # until the queue is full
            await traffic.poisson(OVERLOAD * sustainable["rate"], lead_in, mixed=True)
            frames, began = self.server.n_frames(), time.monotonic()
            await traffic.poisson(OVERLOAD * sustainable["rate"], self._seconds - lead_in, mixed=True)
            written = (self.server.n_frames() - frames) / (time.monotonic() - began)
        health = _end_watch(watch)
        floods = _end_attackers(attackers) if attackers is not None else []
        await traffic.finish()
        return {
            **self._counts(memory),
            "floods": Counter(flood.name for flood in floods),
            "health_ms": _quantiles([ms for _, ms in health["answers"]]),
            "slowest_health_ms": _slowest(health["answers"], floods),
            "health_failed": health["failed"],
            "throughput_over_sustainable": round(written / sustainable["frames"], 3),
            "sustainable_notes_per_second": round(sustainable["rate"], 2),
            "sustainable_frames_per_second": round(sustainable["frames"], 1),
        }

    def _counts(self, memory: MemoryWatch) -> dict[str, Any]:
        tally = self._tally
        share, grown = memory.growth()
        return {
            "accepted": tally.accepted,
            "answered": tally.answered,
            "given_up": tally.given_up,
            "unanswered": tally.unanswered,
            "refused": tally.refused,
            "refused_wrong_code": tally.refused_wrong_code,
            "internal_errors": tally.internal_errors,
            "hostile_calls": tally.hostile_calls,
            "transport_answers": tally.transport_answers,
            "garbage_connections": tally.connections,
            "killed_clients": tally.killed_clients,
            "slow_notes": tally.slow_notes,
            "clock_jumps": self._clock.n_jumps,
            "batch_items": tally.batch_items,
            "stuck_batches": tally.stuck_batches,
            "examples": dict(tally.examples.most_common(8)),
            "rss_growth": round(share, 4),
            "rss_growth_mb": round(grown / 1e6, 2),
            "rss_mb": round(self.server.resident_bytes() / 1e6, 1) if self.server.is_running else None,
        }

    def _traffic(self, channel: grpc.aio.Channel, tally: Tally, seed: int) -> NoteTraffic:
        stub: Any = pb_grpc.SynthesizerStub(channel)
        return NoteTraffic(stub, tally, self._bundle.manifest.ranges, seed)

    async def _jump(self) -> None:
        if self._clock_jumps:
            await self._clock.jump(min(CLOCK_EVERY_SECONDS, self._seconds / 4))
        await asyncio.Event().wait()

    async def _break_the_bundle(self) -> None:
        """Every now and then what the server would load is damaged; it must keep what it has."""
        await asyncio.to_thread(shutil.copytree, self._bundle.path, self._broken)
        (self._broken / "model.safetensors").write_bytes(b"not weights")
        good = self._link.resolve()
        while True:
            for folder in (self._broken, good):
                await asyncio.sleep(RELOAD_EVERY_SECONDS / 2)
                turned = self._link.with_name("turned")
                turned.symlink_to(folder)
                turned.replace(self._link)
                self.server.reload()


@contextlib.asynccontextmanager
async def _aside(work: Any) -> AsyncIterator[None]:
    """Runs along for as long as the block does."""
    task = asyncio.create_task(work)
    try:
        yield
        if task.done():
            task.result()  # raises what ended it too early
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _end_watch(watch: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = watch.communicate("", timeout=60)
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


class Flood(NamedTuple):
    """An attack that was made, and when, by the system's steady clock."""

    began: float
    ended: float
    name: str


def _end_attackers(attackers: subprocess.Popen[str]) -> list[Flood]:
    """The attacks that were made. Raises SystemExit where they ended by themselves."""
    if attackers.poll() is not None:
        raise SystemExit("the attackers have ended; what they had to say of that is on the standard error")
    attackers.terminate()
    lines = (line.split(maxsplit=2) for line in attackers.communicate(timeout=60)[0].splitlines())
    return [Flood(float(began), float(ended), name) for began, ended, name in lines]


def _slowest(answers: list[tuple[float, float]], floods: list[Flood]) -> dict[str, float]:
    """The slowest answer about health during any attack of each kind, in ms."""
    slowest: dict[str, float] = {}
    for began, ended, name in floods:
        during = [ms for at, ms in answers if at < ended and at + ms / 1e3 > began]
        slowest[name] = max(slowest.get(name, 0.0), *during)
    return slowest


def _quantiles(milliseconds: list[float]) -> dict[str, float]:
    if not milliseconds:
        return {}
    at = [float(np.quantile(milliseconds, share)) for share in (0.5, 0.99, 0.999)]
    return dict(zip(MILLISECONDS, [round(ms, 2) for ms in (*at, max(milliseconds))], strict=True))


def _bars(figures: dict[str, Any]) -> list[Bar]:
    grown = max(0.0, figures["rss_growth_mb"] * 1e6 - ROOM_BYTES) / 1e6
    before = figures["rss_mb"] - figures["rss_growth_mb"] if figures["rss_mb"] else 1.0
    health = figures["health_ms"]
    return [
        Bar("crashed", float(figures["crashed"]), 0, at_most=True),
        Bar("unanswered", figures["unanswered"], 0, at_most=True),
        Bar("stuck_batches", figures["stuck_batches"], 0, at_most=True),
        Bar("refused_wrong_code", figures["refused_wrong_code"], 0, at_most=True),
        Bar("internal_errors", figures["internal_errors"], 0, at_most=True),
        Bar("rss_growth beyond 20 MB", grown / before, 0.05, at_most=True),
        Bar("health p99.9 ms", health.get("p999"), 100, at_most=True),
        Bar("health max ms", health.get("max"), 1000, at_most=True),
        Bar("throughput_over_sustainable", figures["throughput_over_sustainable"], 0.9),
    ]


def main() -> None:
    """Parses the command line and soaks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of overload (default %(default)g)")
    parser.add_argument("--bundle", type=Path, default=None, help="default: the one that ships")
    parser.add_argument("--slots", type=int, default=16, help="default %(default)s")
    parser.add_argument("--clock-jumps", action="store_true", help="set the server's time of day on and back")
    parser.add_argument("--floods", action="store_true", help="make the attacks of attack.py meanwhile, too")
    parser.add_argument("--queue", type=int, default=64, help="default %(default)s")
    args = parser.parse_args()
    args.bundle = args.bundle or default_bundle_path()
    report = Report("soak", quick=args.minutes < 10)
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(args, Path(folder))
        try:
            figures = asyncio.run(soak.run())
        finally:
            was_running = soak.server.is_running
            status = soak.server.end()
        log = soak.server.log()
        figures["crashed"] = not was_running or status != 0 or "Traceback" in log
        if figures["crashed"]:
            print(log[-4000:], file=sys.stderr)
    report.finish(figures, _bars(figures))


if __name__ == "__main__":
    main()
