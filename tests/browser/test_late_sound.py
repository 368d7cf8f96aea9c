"""A stream of sound that comes late: what the page's mixer makes of it, sample by sample, in no real time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WORKLET = Path(__file__).resolve().parents[2] / "clients" / "web" / "worklet.js"

SIMULATION = """
({ arrivals, seconds }) => {
  let now = 0, Made;
  const sampleRate = 48000;
  class AudioWorkletProcessor { port = { postMessage: (message) => told.push({ now, ...message }) }; }
  const registerProcessor = (_, made) => { Made = made; };
  const told = [];
  %s
  const mixer = new Made();
  mixer.start({ id: 1, rate: sampleRate, gain: 1, prebuffer: 0.015 });
  const coming = [...arrivals];
  for (; now < seconds; now += 128 / sampleRate) {
    while (coming.length && coming[0][0] <= now) {
      const samples = new Float32Array(Math.round(coming.shift()[1] * sampleRate)).fill(0.1);
      mixer.push({ id: 1, samples });
    }
    mixer.process([], [[new Float32Array(128)]]);
  }
  return told.filter(({ type }) => type === "starved").map(({ now }) => now);
}
"""

Arrivals = Sequence[tuple[float, float]]
"""When sound comes, and how much, in seconds."""


@pytest.fixture(scope="module")
def blank(browser: Browser) -> Iterator[Any]:
    page = browser.new_page()
    yield page
    page.close()


def gaps(page: Any, arrivals: Arrivals, seconds: float) -> list[float]:
    """When the voice ran dry."""
    script = SIMULATION.replace("%s", WORKLET.read_text().replace("currentTime", "now"))
    found: list[float] = page.evaluate(script, {"arrivals": arrivals, "seconds": seconds})
    return found


def late(*moments: tuple[float, float], lead: float = 0.15, seconds: float = 12.0) -> Arrivals:
    """Sound that comes frame by frame, so far ahead of time; at each moment it stands still for so long, and
    then all that was written meanwhile comes at once."""
    frame = 1280 / 48_000
    arrivals = []
    for n in range(round(seconds / frame)):
        due = max(0.0, n * frame - lead)
        stands = [start + long for start, long in moments if start <= due < start + long]
        arrivals.append((max([due, *stands]), frame))
    return arrivals


def test_a_stream_that_comes_in_time_has_no_gap(blank: Any) -> None:
    assert gaps(blank, late((2.0, 0.12), (3.0, 0.12)), 11.0) == []


def test_a_stream_that_was_late_once_plays_on_with_more_lead(blank: Any) -> None:
    """What comes later still, by some hundredths of a second each time, has no gap each time."""
    growing = [(float(second), 0.15 + 0.03 * second) for second in range(1, 9)]
    dry = gaps(blank, late(*growing), 11.0)
    assert 1 <= len(dry) <= 4, dry
    assert len(gaps(blank, late((1.0, 0.3), *((float(second), 0.3) for second in range(2, 9))), 11.0)) == 1


def test_a_stream_that_lost_its_lead_is_given_one(blank: Any) -> None:
    """From a stream that only keeps up, with nothing in hand, pieces come now early and now late."""
    arrivals = [(0.0, 0.1), *((0.1 + 0.1 * n + 0.08 * (n % 3), 0.1) for n in range(1, 100))]
    assert len(gaps(blank, sorted(arrivals), 9.0)) == 1
