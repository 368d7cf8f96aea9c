"""The page for blind listening, in a browser, with the notes of a made-up evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from requirements_gate import require_module
from waiting import wait_for

from browser.conftest import DEFAULT_BUNDLE
from browser.explorer_page import PATIENCE_MILLISECONDS
from timbrel_bundle.bundle import Bundle
from timbrel_posttraining.evaluate.listening import PAIRS, Heard, matched, notes_to_hear, render_listening

RATE = 48_000
FORMS = ("source", "codec", "written", "sampler")


SEE_PRESSED = """globalThis.pressed = new Set();
new MutationObserver((changes) => {
  for (const { target } of changes) if (target.ariaPressed === "true") pressed.add(target.id);
}).observe(document.body, { subtree: true, attributeFilter: ["aria-pressed"] });"""
"""Notes which buttons were down at any time: the sounds are short."""


def tone(hertz: float, seconds: float, level: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    moments = np.arange(round(seconds * RATE)) / RATE
    return (level * np.sin(2 * np.pi * hertz * moments)).astype(np.float32)


@pytest.fixture(scope="module")
def listening_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two notes; one of them has no sampler."""
    sounds = {form: tone(200.0 + 100 * n, 0.3 + 0.1 * n, 0.1 * (n + 1)) for n, form in enumerate(FORMS)}
    few = {form: sounds[form] for form in FORMS[:3]}
    heard = [Heard("Violin", RATE, matched(sounds, RATE)), Heard("</script> Oboe", RATE, matched(few, RATE))]
    path = tmp_path_factory.mktemp("listening") / "listening.html"
    path.write_text(render_listening(Bundle.open(DEFAULT_BUNDLE), heard))
    return path


@pytest.fixture
def listening(browser: Any, listening_file: Path) -> Iterator[Any]:
    """The page, opened afresh; a fault on it fails the test."""
    context = browser.new_context(accept_downloads=True)
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: faults.append(request.url) if request.url.startswith("http") else None)
    page.goto(listening_file.as_uri())
    yield page
    assert faults == []
    context.close()


def trial(page: Any) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate("state.waiting[0]")
    return found


def give(page: Any, right: bool) -> str:
    """Answers a trial by its key; returns the pair."""
    now = trial(page)
    x_is_a = now["x"] == now["a"]
    page.keyboard.press("1" if x_is_a == right else "2")
    return str(now["pair"])


def test_a_round_has_every_note_in_every_pair_that_it_has(listening: Any) -> None:
    waiting = listening.evaluate("state.waiting")
    expected = {(0, " / ".join(pair)) for pair in PAIRS}
    expected |= {(1, " / ".join(pair)) for pair in PAIRS if "sampler" not in pair}
    assert len(waiting) == len(expected)
    assert {(each["note"], each["pair"]) for each in waiting} == expected
    assert all(each["x"] in (each["a"], each["b"]) for each in waiting)
    assert all({each["a"], each["b"]} == set(each["pair"].split(" / ")) for each in waiting)


def test_the_order_the_sides_and_x_are_random(listening: Any) -> None:
    rounds = listening.evaluate("Array.from({ length: 40 }, newRound)")
    flat = [each for one in rounds for each in one]
    assert len({json.dumps(one) for one in rounds}) == 40
    for share in (
        np.mean([each["x"] == each["a"] for each in flat]),
        np.mean([each["pair"].startswith(each["a"]) for each in flat]),
    ):
        assert 0.3 < share < 0.7


def test_the_keys_play_forms_of_one_length_and_tell_nothing(listening: Any) -> None:
    now = trial(listening)
    listening.evaluate(SEE_PRESSED)
    for key in "abx":
        listening.keyboard.press(key)
        listening.wait_for_function(f"document.body.dataset.played?.startsWith('{key} ')")
        listening.wait_for_function(f"pressed.has('play-{key}')")
    assert listening.evaluate("document.body.dataset.played") == "x 0.300"
    listening.keyboard.press("Escape")
    assert listening.locator("[aria-pressed=true]").count() == 0
    shown = listening.locator("main").inner_text()
    assert not any(f" {form} " in shown for form in (now["a"], now["b"]))


def test_answers_are_counted_kept_and_saved(listening: Any, tmp_path: Path) -> None:
    given = [(give(listening, right=n % 4 != 3), n % 4 != 3) for n in range(12)]
    assert listening.locator("#results").inner_text() == ""
    listening.locator("#show").click()
    rows = [line.split("\t") for line in listening.locator("#results").inner_text().splitlines()]
    assert rows[-1][:3] == ["all", "9", "12"]

    def is_kept() -> bool:
        """What a page stored goes by another process of the browser, and the next page may be there first."""
        listening.reload()
        return bool(listening.evaluate("state.answers.length") == 12)

    wait_for(is_kept, "the answers to be there again")
    with listening.expect_download() as download:
        listening.locator("#save").click()
    download.value.save_as(tmp_path / "listening.json")
    saved = json.loads((tmp_path / "listening.json").read_text())
    assert saved["bundle_hash"] == Bundle.open(DEFAULT_BUNDLE).manifest.bundle_hash
    assert [(each["pair"], each["correct"]) for each in saved["answers"]] == given
    tail = sum(math.comb(12, k) for k in range(9, 13)) / 2**12
    assert saved["results"]["all"]["p_value"] == pytest.approx(tail)
    for pair in PAIRS:
        name = " / ".join(pair)
        right = [correct for of, correct in given if of == name]
        assert (saved["results"][name]["trials"], saved["results"][name]["correct"]) == (
            len(right),
            sum(right),
        )


def test_a_page_without_notes_says_so(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "listening.html"
    path.write_text(render_listening(Bundle.open(DEFAULT_BUNDLE), []))
    page, faults = browser.new_page(), list[str]()
    page.set_default_timeout(PATIENCE_MILLISECONDS)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(path.as_uri())
    for key in "abx12":
        page.keyboard.press(key)
    page.locator("#show").click()
    assert page.locator("#progress").inner_text().startswith("There is nothing to hear")
    disabled = page.locator("button:disabled").all_inner_texts()
    assert disabled == ["Play A", "Play B", "Play X", "X is A", "X is B"]
    assert faults == []
    page.close()


def test_axe_finds_nothing_on_the_listening_page(listening: Any) -> None:
    require_module("axe_playwright_python", "dev")
    from axe_playwright_python.sync_playwright import Axe

    give(listening, right=True)
    listening.locator("#show").click()
    violations = Axe().run(listening).response["violations"]
    assert [(found["id"], [node["html"][:120] for node in found["nodes"]]) for found in violations] == []


def test_forms_of_a_note_are_as_loud_and_as_long() -> None:
    forms = matched({"source": tone(300, 2.0, 0.01), "codec": tone(300, 5.0, 0.5)}, RATE)
    levels = [float(np.sqrt(np.mean(sound[: RATE // 2] ** 2))) for sound in forms.values()]
    assert levels[0] == pytest.approx(levels[1], rel=0.01)
    assert {len(sound) for sound in forms.values()} == {2 * RATE}
    assert max(np.abs(sound).max() for sound in forms.values()) == pytest.approx(0.7, rel=0.01)
    assert all(abs(sound[-1]) < 1e-3 for sound in forms.values())


def test_forms_of_another_rate_are_heard_all_the_same() -> None:
    """A library need not have the codec's rate."""
    take = SimpleNamespace(velocity=100, seconds=1.0, row=0, pitch=60)
    section = SimpleNamespace(
        sources=[take],
        takes={form: [SimpleNamespace(form=form)] for form in ("sampler", "reconstruction", "generated")},
        kinds=["Winds"],
        instruments=["Reed"],
    )
    sounds = {44_100: np.interp(np.arange(44_100) / 44_100 * RATE, np.arange(RATE), tone(300, 1.0, 0.1))}
    sounds[RATE] = tone(300, 1.0, 0.1)

    def of(each: Any) -> tuple[Any, int]:
        rate = RATE if getattr(each, "form", "") in ("reconstruction", "generated") else 44_100
        return sounds[rate].astype(np.float32), rate

    notes: Any = SimpleNamespace(name=lambda row: "Reed")
    [heard] = notes_to_hear(notes, cast(Any, section), cast(Any, SimpleNamespace(of=of)))
    assert set(heard.forms) == set(FORMS) and heard.sample_rate == RATE
    for sound in heard.forms.values():
        spectrum = np.abs(np.fft.rfft(sound * np.hanning(len(sound))))
        assert np.argmax(spectrum) * RATE / len(sound) == pytest.approx(300, abs=1)
