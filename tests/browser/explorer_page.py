"""The explorer's page in a browser: where things are on it, and what it puts out."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
from requirements_gate import find_browser
from waiting import wait_for

from timbrel_bundle.yin import Yin

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright

SAMPLE_RATE = 48_000
POLL_MILLISECONDS = 20
PATIENCE_MILLISECONDS = 120_000
"""What Playwright waits for comes within this time; its own 30 s are too few where the machine is busy."""
READY = "html[data-ready]"

_RECORD = """() => {
  window.recorded = [];
  window.recordedFrom = null; // in frames of the context's time
  timbrel.audio.tap((samples, frame) => {
    window.recordedFrom ??= frame;
    window.recorded.push(samples);
  });
}"""

_SOUNDED = "recorded.filter((block) => block.some((sample) => sample !== 0)).length * 128"
"""Samples of a recording so far in blocks that are not silent."""

_SAID = """
  window.said = [];
  new MutationObserver((changes) => {
    const added = changes.flatMap(({ addedNodes }) => [...addedNodes]);
    said.push(...added.filter((node) => node.className === "message").map((node) => node.textContent));
  }).observe(document, { subtree: true, childList: true });
"""
"""Keeps every message that the page has shown: most go by themselves."""

_PAINTED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))"

_AT_FIRST = """() => {
  const { audio, bridge, disc, midi, notes, piano, player, state } = timbrel;
  const parts = [audio, bridge, disc, midi.messages, notes, piano, player, state, performance];
  window.atFirst = { values: state.values, parts: parts.map((part) => [part, Object.keys(part)]) };
}"""
_START_OVER = """() => {
  const { bridge, disc, midi, model, notes, player, state } = timbrel;
  for (const [part, own] of atFirst.parts)
    for (const name of Object.keys(part))
      if (!own.includes(name) && typeof part[name] === "function") delete part[name];
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  dispatchEvent(new Event("blur"));
  dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
  const { constructor: Receiver, held, onProgram, onMissed } = midi.receiver;
  midi.receiver = new Receiver(held, notes, model.bends, { onProgram, onMissed });
  localStorage.clear();
  dispatchEvent(new StorageEvent("storage"));
  bridge.emit("open");
  bridge.emit("hello", model);
  for (const button of document.querySelectorAll("#messages [aria-label=Dismiss]")) button.click();
  said.length = 0;
  document.activeElement.blur();
  notes.cache = new notes.cache.constructor();
  disc.home();
  Object.assign(disc, { hover: null, located: null });
  Object.assign(player, { current: null, locked: true });
  document.getElementById("search").value = "";
  state.set(atFirst.values, { keep: true });
}"""
"""What tests put in the place of a part's own functions goes, and so does all that they played and chose."""

ENCODED = """((samples) => {
  const bytes = new Uint8Array(new Float32Array(samples).buffer);
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
})"""
"""Samples as text: as a list of numbers Playwright would take seconds for them."""

_STOP = f"""() => {{
  timbrel.audio.tap(null);
  const samples = new Float32Array(128 * window.recorded.length);
  window.recorded.forEach((block, i) => samples.set(block, 128 * i));
  return {ENCODED}(samples);
}}"""

_SHIFTS = """() => {
  const answers = []; // the frames after an input, first and next, however late a busy machine comes to them
  for (const type of ["pointerdown", "pointerup", "click", "keydown", "keyup"]) {
    const keep = (first) => requestAnimationFrame((next) => answers.push([first, next]));
    addEventListener(type, () => requestAnimationFrame(keep), { capture: true });
  }
  const shifts = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.hadRecentInput) continue;
      const moved = entry.sources.map(({ node, previousRect: a, currentRect: b }) =>
        `${node?.id || node?.className || node?.nodeName}: ${a.x},${a.y} to ${b.x},${b.y}`);
      shifts.push([entry.startTime, `${entry.value} ${moved.join("; ")}`]);
    }
  }).observe({ type: "layout-shift", buffered: true });
  const isAnswer = (at) => answers.some(([first, next]) => first <= at && at < next);
  window.shifts = () => shifts.filter(([at]) => !isAnswer(at)).map(([, words]) => words);
}"""


def launch(playwright: Playwright, *arguments: str) -> Browser:
    """Chromium, headless, with sound that nobody hears."""
    return playwright.chromium.launch(
        executable_path=find_browser(),
        args=["--no-sandbox", "--disable-dev-shm-usage", *arguments],
        timeout=PATIENCE_MILLISECONDS,
    )


def decoded(text: str) -> npt.NDArray[np.float32]:
    """The samples that the page `ENCODED`."""
    return np.frombuffer(base64.b64decode(text), dtype=np.float32)


class ExplorerPage:
    """An open page, with what tests do to it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.faults: list[str] = []
        """Errors on the console, exceptions and failed requests of our own server."""
        page.add_init_script(_SAID)
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.faults.append(f"{kind}: {text}")

    def open(self, state: str = "") -> ExplorerPage:
        """Loads the page, `state` being its hash, and waits until it is ready and connected."""
        self.page.goto(f"{self.url}?test{state}")
        self.page.wait_for_selector(READY)
        self.until("timbrel.bridge.open")
        return self

    def unlock(self) -> None:
        """A gesture, so that the page may sound; it plays nothing."""
        self.page.keyboard.press("Shift")
        self.until("timbrel.audio.running")

    def start_over(self) -> None:
        """Brings a page that was used near to where it was when it was first opened: silent, with nothing
        kept or said. What was played last, the steps that undo goes back, and what was switched stay."""
        self.page.mouse.move(5, 5)
        if self.evaluate("window.atFirst === undefined"):
            self.evaluate(_AT_FIRST)
        self.evaluate(_START_OVER)
        self.until("timbrel.bridge.live === 0 && timbrel.notes.sounding === 0")

    def evaluate(self, expression: str, argument: Any = None) -> Any:
        return self.page.evaluate(expression, argument)

    def until(self, condition: str, timeout: float = 60.0) -> None:
        """Waits until a condition in JavaScript holds, for so many seconds at most.

        Playwright's own `wait_for_function` would need the page to allow `eval`, which its policy forbids.
        """
        end = time.monotonic() + timeout
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < end, f"{condition}: not within {timeout:g} s; {self.faults}"
            self.page.wait_for_timeout(POLL_MILLISECONDS)

    def until_said(self, words: str) -> None:
        """Waits until a message with these words has been shown, which may have gone since."""
        self.until(f"said.some((each) => each.includes({json.dumps(words)}))", timeout=120)

    def until_painted(self) -> None:
        """Waits until what has changed is on the screen."""
        self.evaluate(_PAINTED)

    def until_sounded(self, seconds: float) -> None:
        """Waits until a recording holds so much sound, whatever gaps a busy machine leaves in it."""
        self.until(f"{_SOUNDED} >= {seconds} * timbrel.audio.context.sampleRate")

    def until_it_sounds(self, pitch: float, within: float = 0.1) -> float:
        """Waits until the last half second of the note that sounds, as it comes from the server, has about
        this pitch; returns the pitch that it has."""
        self.until("timbrel.player.current.length >= 0.8 * timbrel.player.current.sampleRate")
        rate = self.evaluate("timbrel.player.current.sampleRate")

        def last_half() -> float | None:
            self.page.wait_for_timeout(50)  # what is asked for at once has heard nothing new
            return Yin().measure(self.written("timbrel.player.current.whole().slice(-24000)"), rate)

        def reached() -> float | None:
            found = last_half()
            return found if found == pytest.approx(pitch, abs=within) else None

        found = wait_for(reached, f"a pitch of {pitch:g}", seen=last_half)
        assert found is not None
        return found

    def state(self) -> dict[str, Any]:
        """What the page is set to."""
        values: dict[str, Any] = self.evaluate("timbrel.state.values")
        return values

    def set(self, **values: Any) -> None:
        """Sets some of that."""
        self.evaluate("(values) => timbrel.state.set(values)", values)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a point of the disc is on the screen, in CSS pixels."""
        box = self.page.locator("#disc").bounding_box()
        assert box is not None
        left, top = self.evaluate("([x, y]) => timbrel.disc.view.toScreen(x, y)", [x, y])
        return box["x"] + left, box["y"] + top

    def instrument(self, name: str) -> tuple[float, float]:
        """Where an instrument is on the disc."""
        x, y = self.evaluate(
            "(name) => timbrel.points.filter((p) => p.instrument === name).map((p) => [p.x, p.y])[0]", name
        )
        return x, y

    def click(self, x: float, y: float) -> None:
        """Clicks on a point of the disc."""
        self.page.mouse.click(*self.place(x, y))

    def wait_for_silence(self) -> None:
        """Until every note has died away."""
        self.until("timbrel.notes.sounding === 0", timeout=60)

    @contextmanager
    def recording(self) -> Iterator[list[npt.NDArray[np.float32]]]:
        """What the page puts out while the block runs: float32 [samples], the only element."""
        self.evaluate(_RECORD)
        heard: list[npt.NDArray[np.float32]] = []
        yield heard
        heard.append(decoded(self.evaluate(_STOP)))

    def written(self, samples: str = "timbrel.player.current.whole()") -> npt.NDArray[np.float32]:
        """The samples of the last note so far, as they came from the server: float32 [samples]."""
        return decoded(self.evaluate(f"{ENCODED}({samples})"))

    def watch_shifts(self) -> None:
        """From now on, and of what has been before, layout shifts are kept for `shifts`."""
        self.evaluate(_SHIFTS)

    def shifts(self) -> list[str]:
        """The layout shifts so far, what moved in each; those in answer to an input are left out."""
        values: list[str] = self.evaluate("window.shifts()")
        return values


@contextmanager
def opened(browser: Browser, url: str, **options: Any) -> Iterator[ExplorerPage]:
    """A page in a context of its own; on leaving, it must have had no fault."""
    settings: dict[str, Any] = {"viewport": {"width": 1440, "height": 900}, **options}
    context: BrowserContext = browser.new_context(**settings)
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    try:
        explorer = ExplorerPage(context.new_page(), url)
        yield explorer
        assert explorer.faults == []
    finally:
        context.close()
