"""The explorer: what its bridge adds to a note, and the time from a press on its map to sound.

Examples:
    python tests/benchmarks/explore.py                      the bundle that ships; a few minutes
    python tests/benchmarks/explore.py --quick
    python tests/benchmarks/explore.py --parts bridge --rounds 100 --seconds 1
    python tests/benchmarks/explore.py --parts press --instrument Trumpet --pitch 48

bridge  One server, one `timbrel explore` in front of it, one caller that asks both ways in turn for the
        same note: through the WebSocket, and straight from the server. `preview` is a note that comes as
        fast as it is written (Generate): first sound, and last; `live` a key that goes down (Play): first
        sound. Given are medians in milliseconds, and the median of the rounds' own ratios.
press   A real `timbrel explore` with a private server of the bundle that ships, and Debian's Chromium without
        a window. A press is a real input event; its time is the event's own. The page's mixer, on the audio
        thread, notes the time at which a voice first exceeds -60 dBFS, to a millisecond; so an instrument
        that begins softly counts as late. What the sound device adds comes on top: it is printed as the
        browser states it. Nothing cached: every press has a seed of its own. All cached: the same again.
The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness.processes import BenchServer, start_pinned
from benchmarks.harness.report import Bar, Report, print_table, usable_cores
from browser.explorer_page import launch

from timbrel.aio.transport import Transport
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.config import default_bundle_path

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from websockets.asyncio.client import ClientConnection

PARTS = ("bridge", "press")

READY = re.compile(r"explorer: (?P<url>\S+)\n")

FIRST_SOUND_MS = 250.0
"""The first sample is to come so soon after a pointer went down, in all."""

REST_SECONDS = 0.02
"""The pause between two notes."""

WANTED_MS = {"uncached": 250.0, "cached": 30.0}
QUIET_SECONDS = 120.0
"""The longest wait for a note to have been written and to die away."""

REST_MILLISECONDS = 120
"""Before a press: the page has drawn, and the server rests."""

_WATCH = """() => {
  window.pressed = 0;
  window.latencies = [];
  const press = (event) => (window.pressed = performance.timeOrigin + event.timeStamp);
  addEventListener("pointerdown", press, { capture: true });
  const heard = ({ detail }) => window.latencies.push(detail.wall - window.pressed);
  timbrel.notes.addEventListener("sound", heard);
}"""

_DEVICE = "1000 * ((timbrel.audio.context.baseLatency ?? 0) + (timbrel.audio.context.outputLatency ?? 0))"


_PLACE = """(name) => {
  const { x, y } = timbrel.points.find(({ instrument }) => instrument === name);
  const box = document.getElementById("disc").getBoundingClientRect();
  const [left, top] = timbrel.disc.view.toScreen(x, y);
  return [box.left + left, box.top + top];
}"""


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
        self._transport = Transport(address, None)
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


class Presses:
    """The page, and how to press on it."""

    def __init__(self, page: Page, url: str, instrument: str, pitch: int) -> None:
        page.goto(f"{url}?test#s=0.2&p={pitch}")
        page.wait_for_selector("html[data-ready]")
        self._page = page
        self._until("timbrel.bridge.open")
        page.keyboard.press("Shift")  # a gesture, so that the page may sound
        self._until("timbrel.audio.running")
        page.locator("#previews").uncheck()
        page.evaluate(_WATCH)
        self._left, self._top = page.evaluate(_PLACE, instrument)

    def measure(self, seeds: Sequence[int]) -> list[float]:
        """Milliseconds for each press; it is waited until one note is over before the next."""
        for seed in seeds:
            self._page.evaluate("(seed) => timbrel.state.set({ seed })", seed)
            self._page.wait_for_timeout(REST_MILLISECONDS)
            self._page.mouse.click(self._left, self._top)
            self._until("timbrel.player.current.over && timbrel.player.current.complete")
        latencies: list[float] = self._page.evaluate("window.latencies.splice(0)")
        if len(latencies) != len(seeds):
            raise RuntimeError(f"of {len(seeds)} notes {len(latencies)} were audible")
        return latencies

    def device_ms(self) -> float:
        """Asks the browser what the sound device adds."""
        return float(self._page.evaluate(_DEVICE))

    def _until(self, condition: str) -> None:
        """Waits; the page's policy forbids the `eval` that Playwright's own waiting needs."""
        end = time.monotonic() + QUIET_SECONDS
        while not self._page.evaluate(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition}: not within {QUIET_SECONDS:g} s")
            self._page.wait_for_timeout(20)


@contextlib.contextmanager
def explorer(*options: str) -> Iterator[str]:
    """The address of an explorer, by default with a private server; it ends with the block."""
    arguments = ["-m", "timbrel", "explore", "--port", "0", "--no-browser", *options]
    process = start_pinned(arguments, usable_cores())
    assert process.stdout is not None
    try:
        match = READY.fullmatch(line := process.stdout.readline())
        if match is None:
            raise SystemExit(f"the explorer does not start: {line.strip()}")
        yield match["url"]
    finally:
        process.terminate()
        process.wait(30)


async def compare(server: str, url: str, n_rounds: int, seconds: float) -> dict[str, Any]:
    """All ways in turn, round after round; the first two rounds do not count."""
    from websockets.asyncio.client import connect

    found = {f"{side}_{way}": Sounds() for side in ("direct", "bridged") for way in ("preview", "live")}
    url = url.rstrip("/")
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


def measure_bridge(args: argparse.Namespace) -> dict[str, Any]:
    """The figures of the bridge; prints a table."""
    server = BenchServer(args.bundle, usable_cores(), "--threads", "1")
    try:
        with explorer("--server", server.address) as url:
            figures = asyncio.run(compare(server.address, url, args.rounds, args.seconds))
    finally:
        server.close()
    names = ("direct_ms", "bridged_ms", "added_ms", "ratio")
    print_table(["sound", *names], [[what, *(row[name] for name in names)] for what, row in figures.items()])
    return figures


def measure_presses(args: argparse.Namespace) -> dict[str, Any]:
    """The figures of presses on the map; prints a line of each kind."""
    from playwright.sync_api import sync_playwright

    with explorer() as url, sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        presses = Presses(page, url, args.instrument, args.pitch)
        presses.measure([0])  # what the first one sets up is not of the second
        seeds = range(1, 1 + args.presses)
        found = {kind: sorted(presses.measure(seeds)) for kind in WANTED_MS}
        figures = {"device_ms": round(presses.device_ms(), 1), "presses": args.presses}
        browser.close()
    for kind, times in found.items():
        figures[f"{kind}_ms"] = round(statistics.median(times), 1)
        figures[f"{kind}_worst_ms"] = round(times[-1], 1)
        print(f"{kind:9s} median {statistics.median(times):6.1f} ms, from {times[0]:.1f} to {times[-1]:.1f}")
    return figures


def parse_arguments() -> argparse.Namespace:
    """The command line; --quick sets what was left open to less."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="under a minute")
    add("--parts", nargs="+", choices=PARTS, default=PARTS, help="of the two (default: both)")
    add("--bundle", type=Path, help="bundle behind the bridge (default: the one that ships)")
    add("--rounds", type=int, help="notes of each way over the bridge (default: 40; --quick: 8)")
    add("--seconds", type=float, default=0.5, help="these are held (default %(default)s)")
    add("--presses", type=int, metavar="N", help="of each kind (default: 30; --quick: 5)")
    add("--instrument", default="Acoustic Grand Piano", metavar="NAME", help="(default %(default)s)")
    add("--pitch", type=int, default=60, metavar="PITCH", help="of the presses (default %(default)s)")
    args = parser.parse_args()
    args.bundle = (args.bundle or default_bundle_path()).resolve()
    args.rounds = args.rounds or (8 if args.quick else 40)
    args.presses = args.presses or (5 if args.quick else 30)
    return args


def main() -> None:
    """Measures, prints tables, bars and the line of JSON."""
    args = parse_arguments()
    report = Report("explore", quick=args.quick)
    figures: dict[str, Any] = {}
    bars: list[Bar] = []
    if "bridge" in args.parts:
        figures |= measure_bridge(args)
        bars += [
            Bar(f"bridged_{sound}_ms", figures[sound]["bridged_ms"], FIRST_SOUND_MS, at_most=True)
            for sound in ("preview_first", "live_first")
        ]
    if "press" in args.parts:
        figures |= measure_presses(args)
        bars += [
            Bar(f"{kind} ms", figures[f"{kind}_ms"], limit, at_most=True) for kind, limit in WANTED_MS.items()
        ]
    report.finish(figures, bars)


if __name__ == "__main__":
    main()
