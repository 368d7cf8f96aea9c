"""Many notes in one session leave no trace."""

from __future__ import annotations

from typing import Any

import pytest

GROWTH = 1.2
"""Of the page's memory, after many notes against after the first."""

_PLAY = """async ([first, count, x, y]) => {
  for (let n = first; n < first + count; n++) {
    timbrel.state.set({ x, y, seed: n, s: 0.15 });
    const note = timbrel.player.strike();
    await new Promise((resolve) => note.addEventListener("end", resolve));
  }
}"""


def used_bytes(page: Any) -> int:
    """What scripts hold after a collection: objects, and the samples in their buffers."""
    session = page.page.context.new_cdp_session(page.page)
    session.send("HeapProfiler.enable")
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    usage = session.send("Runtime.getHeapUsage")
    session.detach()
    return int(usage["usedSize"] + usage.get("embedderHeapUsedSize", 0) + usage.get("backingStorageSize", 0))


def grow(page: Any, first: int, notes: int) -> tuple[int, int]:
    """Memory after so many first notes, with the cache full, and after all."""
    page.evaluate("timbrel.notes.cache.mostBytes = 2 ** 20")
    trumpet = page.instrument("Trumpet")  # it dies away soon
    page.evaluate(_PLAY, [0, first, *trumpet])
    page.wait_for_silence()
    before = used_bytes(page)
    page.evaluate(_PLAY, [first, notes - first, *trumpet])
    page.wait_for_silence()
    return before, used_bytes(page)


@pytest.mark.slow
def test_sixty_notes_leave_no_trace(page: Any) -> None:
    before, after = grow(page, 20, 60)
    assert after < GROWTH * before


def test_a_page_that_may_not_sound_keeps_no_notes_and_tells_of_those_that_fail(unopened: Any) -> None:
    """As over plain HTTP from another machine: browsers give such a page no AudioWorklet."""
    page = unopened
    page.page.add_init_script("delete BaseAudioContext.prototype.audioWorklet")
    page.open()
    page.page.keyboard.press("Shift")
    page.page.locator(".message", has_text="over HTTPS only").wait_for()
    page.evaluate("timbrel.notes.cache.mostBytes = 2 ** 16")
    page.evaluate(_PLAY, [0, 12, 0, 0])
    page.until("timbrel.notes.sounding === 0")
    failed = """new Promise((told) => {
      timbrel.notes.addEventListener("failed", ({ detail }) => told(detail.code));
      timbrel.notes.play({ ...timbrel.player.request(), pitch: 200 });
    })"""
    assert page.evaluate(failed) == "invalid_request"


@pytest.mark.acceptance
def test_a_thousand_notes_leave_no_trace(page: Any) -> None:
    page.page.set_default_timeout(0)
    before, after = grow(page, 50, 1000)
    print(f"{before / 2**20:.1f} MiB after 50 notes, {after / 2**20:.1f} MiB after 1,000")
    assert after < GROWTH * before
