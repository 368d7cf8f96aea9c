"""What the explorer's bridge adds to a note: through its WebSocket, and straight from the server, in turn.

Examples:
    python tests/benchmarks/explore.py                      the bundle that ships; a minute or so
    python tests/benchmarks/explore.py --quick
    python tests/benchmarks/explore.py --rounds 100 --seconds 1

One server, one `timbrel explore` in front of it, one caller that asks both ways in turn for the same note:
`preview`  a note that comes as fast as it is written (Generate): first sound, and last
`live`     a key that goes down (Play): first sound
Given are medians in milliseconds, and the median of the rounds' own ratios. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness.machine import usable_cores
from benchmarks.harness.pinning import start_pinned
from benchmarks.harness.report import Bar, Report
from benchmarks.harness.server import BenchServer
from benchmarks.harness.table import print_table

from timbrel.aio.transport import AsyncTransport
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.config import default_bundle_path

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

READY = re.compile(r"explorer: (?P<url>\S+)\n")

FIRST_SOUND_MS = 250.0
"""From a pointer that goes down to the first sample, in all."""

REST_SECONDS = 0.02
"""Between two notes."""


@dataclass
class Sounds:
    """Milliseconds after asking."""

    first: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)

    def add(self, started: float, times: list[float]) -> None:
        self.first.append(1e3 * (times[0] - started))
        self.last.append(1e3 * (times[-1] - started))


class Direct:
    """Straight from the server."""

    def __init__(self, address: str, seconds: float) -> None:
        self._transport = AsyncTransport(address, None)
        self._seconds = seconds

    async def preview(self, seed: int) -> list[float]:
        """When each piece of the sound came."""
        replies = self._transport.generate(self._note(seed), None)
        return [time.perf_counter() async for reply in replies if reply.audio]

    async def live(self, seed: int) -> list[float]:
        async def asked() -> AsyncIterator[pb.PlayRequest]:
            yield pb.PlayRequest(id=1, note_on=pb.NoteOn(note=self._note(seed)))
            await heard.wait()

        heard = asyncio.Event()
        call = self._transport.play(asked())
        times = []
        async for response in call:
            if response.reply.audio:
                times.append(time.perf_counter())
                break
        heard.set()
        call.cancel()
        return times

    async def close(self) -> None:
        await self._transport.close()

    def _note(self, seed: int) -> pb.GenerateRequest:
        return pb.GenerateRequest(
            timbre=pb.Timbre(x=0.1, y=0.2),
            pitch=60,
            seconds=self._seconds,
            seed=seed,
            audio=pb.AUDIO_FORMAT_FLOAT32,
        )


class Bridged:
    """Through the explorer."""

    def __init__(self, socket: ClientConnection, seconds: float) -> None:
        self._socket = socket
        self._seconds = seconds

    async def preview(self, seed: int) -> list[float]:
        """When each piece of the sound came."""
        return await self._ask(seed, live=False, n_pieces=None)

    async def live(self, seed: int) -> list[float]:
        times = await self._ask(seed, live=True, n_pieces=1)
        await self._say("cancel", id=seed)
        return times

    async def _ask(self, seed: int, live: bool, n_pieces: int | None) -> list[float]:
        times: list[float] = []
        await self._say("on", id=seed, x=0.1, y=0.2, pitch=60, seconds=self._seconds, seed=seed, live=live)
        while n_pieces is None or len(times) < n_pieces:
            message = await self._socket.recv()
            if isinstance(message, bytes):
                if int.from_bytes(message[:4], "little") == seed:
                    times.append(time.perf_counter())
            elif (told := json.loads(message)).get("id") == seed and told["type"] in ("end", "error"):
                if told["type"] == "error":
                    raise SystemExit(f"the note failed: {told['message']}")
                break
        return times

    async def _say(self, kind: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"type": kind, **fields}))


@contextlib.contextmanager
def explorer(server: str) -> Iterator[str]:
    """The address of an explorer in front of this server."""
    arguments = ["-m", "timbrel", "explore", "--server", server, "--port", "0", "--no-browser"]
    process: subprocess.Popen[str] = start_pinned(arguments, usable_cores())
    assert process.stdout is not None
    try:
        match = READY.fullmatch(line := process.stdout.readline())
        if match is None:
            raise SystemExit(f"the explorer does not start: {line.strip()}")
        yield match["url"].rstrip("/")
    finally:
        process.terminate()
        process.wait(30)


async def measure(server: str, url: str, n_rounds: int, seconds: float) -> dict[str, Any]:
    """All ways in turn, round after round; the first two rounds do not count."""
    from websockets.asyncio.client import connect

    found = {f"{side}_{way}": Sounds() for side in ("direct", "bridged") for way in ("preview", "live")}
    address = url.replace("http", "ws", 1) + "/api/play"
    async with connect(address, origin=url, compression=None, max_size=None) as socket:  # type: ignore[arg-type]
        direct, bridged = Direct(server, seconds), Bridged(socket, seconds)
        ways = {
            "direct_preview": direct.preview,
            "bridged_preview": bridged.preview,
            "direct_live": direct.live,
            "bridged_live": bridged.live,
        }
        for number in range(-2, n_rounds):
            for place, (name, way) in enumerate(ways.items()):
                started = time.perf_counter()
                times = await way(1 + 4 * (number + 2) + place)
                if number >= 0:
                    found[name].add(started, times)
                await asyncio.sleep(REST_SECONDS)
        await direct.close()
    return figures_of(found)


def figures_of(found: dict[str, Sounds]) -> dict[str, Any]:
    """Medians, and the medians of the rounds' ratios."""
    figures: dict[str, Any] = {}
    for way, which in (("preview", "first"), ("preview", "last"), ("live", "first")):
        direct, bridged = (getattr(found[f"{side}_{way}"], which) for side in ("direct", "bridged"))
        figures[f"{way}_{which}"] = {
            "direct_ms": round(statistics.median(direct), 3),
            "bridged_ms": round(statistics.median(bridged), 3),
            "added_ms": round(statistics.median(b - a for a, b in zip(direct, bridged, strict=True)), 3),
            "ratio": round(statistics.median(b / a for a, b in zip(direct, bridged, strict=True)), 3),
        }
    return figures


def parse_arguments() -> argparse.Namespace:
    """The command line; --quick sets what was left open to less."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--bundle", type=Path, help="bundle to serve (default: the one that ships)")
    parser.add_argument("--rounds", type=int, help="notes of each way (default: 40; --quick: 8)")
    parser.add_argument("--seconds", type=float, default=0.5, help="held (default %(default)s)")
    args = parser.parse_args()
    args.bundle = (args.bundle or default_bundle_path()).resolve()
    args.rounds = args.rounds or (8 if args.quick else 40)
    return args


def main() -> None:
    """Measures, prints a table, bars and the line of JSON."""
    args = parse_arguments()
    report = Report("explore", quick=args.quick)
    server = BenchServer(args.bundle, usable_cores(), "--threads", "1")
    try:
        with explorer(server.address) as url:
            figures = asyncio.run(measure(server.address, url, args.rounds, args.seconds))
    finally:
        server.close()
    names = ("direct_ms", "bridged_ms", "added_ms", "ratio")
    print_table(["sound", *names], [[what, *(row[name] for name in names)] for what, row in figures.items()])
    report.finish(
        figures,
        [
            Bar("bridged_preview_first_ms", figures["preview_first"]["bridged_ms"], FIRST_SOUND_MS, True),
            Bar("bridged_live_first_ms", figures["live_first"]["bridged_ms"], FIRST_SOUND_MS, True),
        ],
    )


if __name__ == "__main__":
    main()
