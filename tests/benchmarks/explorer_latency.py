"""From the pointer going down on the map to the first audible sample at the end of the page's audio graph.

Examples:
    python tests/benchmarks/explorer_latency.py          30 presses with nothing cached, 30 with all cached
    python tests/benchmarks/explorer_latency.py --quick
    python tests/benchmarks/explorer_latency.py --instrument Trumpet --pitch 48

A real `timbrel explore` with a private server of the bundle that ships, and Debian's Chromium without a
window. A press is a real input event; its time is the event's own. The page's mixer, on the audio thread,
notes the time at which a voice first exceeds -60 dBFS, to a millisecond; so an instrument that begins
softly counts as late. What the sound device adds comes on top: it is printed as the browser states it.
Nothing cached: every press has a seed of its own. All cached: the same seeds again. The last line is one
JSON object.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.pop(0)  # this folder, whose profile.py would stand before Python's own
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness.report import Bar, Report

if TYPE_CHECKING:
    from playwright.sync_api import Page

WANTED_MS = {"uncached": 250.0, "cached": 30.0}
QUIET_SECONDS = 120.0
"""The longest wait for a note to have been written and to die away."""

REST_MILLISECONDS = 120
"""Before a press: the page has drawn, and the server rests."""

READY = re.compile(r"explorer: (?P<url>\S+)\n")

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
        """What the browser says that the sound device adds."""
        return float(self._page.evaluate(_DEVICE))

    def _until(self, condition: str) -> None:
        """Waits; the page's policy forbids the `eval` that Playwright's own waiting needs."""
        end = time.monotonic() + QUIET_SECONDS
        while not self._page.evaluate(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition}: not within {QUIET_SECONDS:g} s")
            self._page.wait_for_timeout(20)


@contextmanager
def explorer() -> Iterator[str]:
    """The address of an explorer with a private server; it ends with the block."""
    command = [sys.executable, "-m", "timbrel", "explore", "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        match = READY.fullmatch(line := process.stdout.readline())
        if match is None:
            raise RuntimeError(f"the explorer did not start: {line!r}")
        yield match["url"]
    finally:
        process.terminate()
        process.wait()


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The figures."""
    from playwright.sync_api import sync_playwright

    with explorer() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        presses = Presses(page, url, args.instrument, args.pitch)
        presses.measure([0])  # what the first one sets up is not of the second
        seeds = range(1, 1 + (5 if args.quick else args.presses))
        figures: dict[str, Any] = {"uncached": presses.measure(seeds), "cached": presses.measure(seeds)}
        figures["device_ms"] = round(presses.device_ms(), 1)
        browser.close()
        return figures


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--presses", type=int, default=30, metavar="N", help="of each kind (default %(default)s)"
    )
    parser.add_argument(
        "--instrument", default="Acoustic Grand Piano", metavar="NAME", help="(default %(default)s)"
    )
    parser.add_argument("--pitch", type=int, default=60, metavar="PITCH", help="(default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="5 presses of each kind")
    args = parser.parse_args()
    report = Report("explorer_latency", quick=args.quick)
    figures = run(args)
    summary: dict[str, Any] = {"device_ms": figures["device_ms"], "presses": len(figures["uncached"])}
    for kind in WANTED_MS:
        times = sorted(figures[kind])
        summary[f"{kind}_ms"] = round(statistics.median(times), 1)
        summary[f"{kind}_worst_ms"] = round(times[-1], 1)
        print(f"{kind:9s} median {statistics.median(times):6.1f} ms, from {times[0]:.1f} to {times[-1]:.1f}")
    bars = [
        Bar(f"{kind} ms", summary[f"{kind}_ms"], limit, at_most=True) for kind, limit in WANTED_MS.items()
    ]
    report.finish(summary, bars)


if __name__ == "__main__":
    main()
