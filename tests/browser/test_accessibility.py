"""Accessible by keyboard and screen reader, on a phone, and when the server is away."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from requirements_gate import require_module
from server_process import ServerProcess

from browser.explorer_process import ExplorerProcess, lasting_port

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


_VIOLATIONS = """async ([within, rules]) => {
  const { violations } = await axe.run(within, { resultTypes: ["violations"], ...rules });
  return violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html.slice(0, 120))]);
}"""


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing(open_page: Any, options: dict[str, Any]) -> None:
    """By light; and in the dark nothing in the colours, which are all that is other there."""
    require_module("axe_playwright_python", "dev")
    from axe_playwright_python.base import AXE_SCRIPT

    page = open_page("#a=0.1,0.2", color_scheme="light", reduced_motion="reduce", **options)
    page.unlock()
    page.page.locator("#keep").click()
    page.page.locator("#play").click()
    page.until("timbrel.player.current?.soundedAt")
    page.evaluate(AXE_SCRIPT)
    assert_clean(page, "html")
    page.page.locator("#search").click()
    assert_clean(page, ".bar")
    page.page.keyboard.press("Escape")
    page.page.locator("#help").click()
    assert_clean(page, "#help-page")
    page.page.keyboard.press("Escape")
    for tab in page.page.locator("[role=tab]").all():
        if tab.is_visible():
            tab.click()
            assert_clean(page, "main")
    page.page.locator("#instrument-open").evaluate("(button) => button.click()")
    assert_clean(page, "#instrument")


def assert_clean(page: Any, within: str) -> None:
    """Asks axe of the part of the page that is another than before."""
    colours: dict[str, Any] = {
        "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
    }
    everything: dict[str, Any] = {}
    for shade, rules in (("dark", colours), ("light", everything)):
        page.page.emulate_media(color_scheme=shade)
        page.until(f"timbrel.disc.theme.shade === '{shade}'")
        rules["preload"] = (
            within == "html"
        )  # which asks for style sheets that the rules of a part do not need
        told = page.evaluate(_VIOLATIONS, [within, rules])
        assert told == [], shade


def test_letters_of_keys_are_read_while_they_are_down(open_page: Any) -> None:
    """Of black keys axe does not tell."""
    page = open_page(color_scheme="light", reduced_motion="reduce")
    for letter in "aw":
        page.page.keyboard.down(letter)
    for shade in ("light", "dark"):
        page.page.emulate_media(color_scheme=shade)
        page.until(f"timbrel.disc.theme.shade === '{shade}'")
        contrasts = page.evaluate(_CONTRASTS)
        assert len(contrasts) == 2 and min(contrasts) >= 4.5, (shade, contrasts)
    for letter in "aw":
        page.page.keyboard.up(letter)


_CONTRASTS = """() => {
      const light = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255)
        .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0.05);
      return [...document.querySelectorAll(".key.down")].map((key) => {
        const { color, backgroundColor } = getComputedStyle(key);
        const [low, high] = [light(color), light(backgroundColor)].sort((one, other) => one - other);
        return high / low;
      });
    }"""


def reached(page: Any) -> list[str]:
    """The ids of what Tab goes through, from the top to the end."""
    names: list[str] = []
    page.evaluate("document.activeElement.blur()")
    for _ in range(120):
        page.page.keyboard.press("Tab")
        name = page.evaluate(
            "(() => { const a = document.activeElement; return a === document.body ? '' : "
            "a.id || a.dataset.family || a.dataset.pitch || a.className; })()"
        )
        if name and name in names[:1]:
            break
        names.append(name)  # "" where the focus leaves the page, to come back at its top
    return names


@pytest.mark.shared_page
def test_every_control_is_reached_by_tab_and_shows_it(page: Any) -> None:
    for place in ("#set-a", "#set-b"):
        page.page.locator(place).click()
    names = reached(page)
    controls = page.evaluate(
        "[...document.querySelectorAll('button, input, a[href], canvas[tabindex]')]"
        ".filter((e) => e.checkVisibility() && !e.disabled && e.tabIndex >= 0 && e.id).map((e) => e.id)"
    )
    assert set(controls) - set(names) == set()
    assert "60" in names  # one key of the piano; arrow keys reach the others
    page.page.locator("#disc").focus()
    page.page.keyboard.press("Shift+Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


@pytest.mark.shared_page
def test_the_map_is_played_from_the_keyboard_and_says_where_one_is(page: Any) -> None:
    page.page.locator("#disc").focus()
    start = page.state()
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("Shift+ArrowUp")
    moved = page.state()
    assert moved["x"] == pytest.approx(start["x"] + 0.02, abs=1e-3)
    assert moved["y"] == pytest.approx(start["y"] + 0.1, abs=1e-3)
    assert page.page.locator("#place").inner_text() != ""
    spoken, place = (f"document.getElementById('{name}').textContent" for name in ("spoken", "place"))
    page.until(f"{spoken} === {place}")  # and not where the first key led, which it says after a while
    page.page.keyboard.press("Enter")
    page.until("timbrel.player.current?.soundedAt")


@pytest.mark.shared_page
def test_the_map_shows_its_focus_where_the_marker_is_out_of_sight(page: Any) -> None:
    disc = page.page.locator("#disc")
    disc.focus()
    for _ in range(6):
        page.page.keyboard.press("+")
    page.evaluate("timbrel.disc.pan(5000, 0)")
    page.page.mouse.move(0, 0)
    page.until_painted()
    focused = disc.screenshot()
    page.page.locator("#help").focus()
    page.until_painted()
    assert disc.screenshot() != focused


@pytest.mark.shared_page
def test_the_piano_is_played_with_arrows_and_enter(page: Any) -> None:
    page.page.locator(".key[data-pitch='60']").focus()
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.down("Enter")
    page.until("timbrel.player.current?.request.pitch === 61")
    page.page.keyboard.up("Enter")
    page.wait_for_silence()


@pytest.mark.shared_page
def test_a_screen_reader_that_clicks_a_key_of_the_piano_hears_it_for_a_second(page: Any) -> None:
    key = page.page.locator(".key[data-pitch='64']")
    assert key.evaluate("(key) => (key.click(), key.classList.contains('down'))")  # no pointer, no key
    assert page.evaluate("timbrel.player.current.request.pitch") == 64
    page.until("!timbrel.piano.element.querySelector('.down')")
    page.page.locator(".key[data-pitch='62']").focus()
    for key in ("Enter", "Space"):  # held for as long as they are, and no click follows
        page.page.keyboard.press(key)
        assert page.page.locator(".key.down").count() == 0
    page.page.locator(".key[data-pitch='65']").click(position={"x": 8, "y": 60})
    assert page.page.locator(".key.down").count() == 0


@pytest.mark.shared_page
def test_what_undo_and_the_search_lead_to_is_said(page: Any) -> None:
    spoken = page.page.locator("#spoken")
    x, y = page.instrument("Oboe")
    page.evaluate("([x, y]) => timbrel.state.set({ x, y }, { keep: true })", [x, y])
    page.page.keyboard.press("Control+z")
    assert spoken.inner_text().startswith("Undone: Between Clarinet Reed and Supersaw, 0.000, 0.400")
    page.page.locator("#redo").click()
    assert spoken.inner_text().startswith("Redone: Oboe, ") and "C4" in spoken.inner_text()
    page.page.keyboard.press("Control+y")  # there is nothing to redo
    page.page.locator("#search").focus()
    page.page.keyboard.type("celesta")
    assert spoken.inner_text() == "1 instrument"  # and the list reads out which
    page.page.keyboard.type("zzz")
    assert spoken.inner_text() == "No instrument of that name"


def test_text_twice_as_large_is_not_cut_off_where_one_plays(open_page: Any) -> None:
    page = open_page(**PHONE)
    page.evaluate("""() => {
      const all = [...document.querySelectorAll("body *")];
      const sizes = all.map((each) => 2 * parseFloat(getComputedStyle(each).fontSize));
      all.forEach((each, at) => (each.style.fontSize = `${sizes[at]}px`));
    }""")
    beyond = """[...document.querySelectorAll(".piano-bar button, .now-head *, #panel-sound output")]
      .filter((each) => each.checkVisibility())
      .filter((each) => each.getBoundingClientRect().right > innerWidth)
      .map((each) => each.id || each.className)"""
    assert page.evaluate(beyond) == []
    head, place, scope = (
        page.page.locator(each).bounding_box() for each in (".now-head", "#place", ".scope")
    )
    assert place["y"] + place["height"] <= head["y"] + head["height"] <= scope["y"]


def test_sliders_say_their_value_once_and_as_one_reads_it(page: Any) -> None:
    for place in ("#set-a", "#set-b"):
        page.page.locator(place).click()
    page.page.locator("#blend").focus()
    page.page.keyboard.press("End")
    page.page.locator("#volume").focus()
    page.page.keyboard.press("Home")
    page.page.keyboard.press("ArrowRight")
    sliders = page.page.locator("input[type=range]")
    said = sliders.evaluate_all("(all) => all.map((each) => each.getAttribute('aria-valuetext'))")
    assert said == ["100", "2.00 s", "0.60", "100 % B", "0 semitones", "1 %"]
    beside = page.page.locator(".field output")  # a status of its own, which would be read out, too
    assert beside.evaluate_all("(all) => all.map((each) => each.ariaLive)") == ["off"] * 3


def test_a_family_is_seen_alone_by_two_clicks_with_whatever_one_has(page: Any) -> None:
    shown = "[...document.querySelectorAll('#legend [aria-pressed=true]')].map((each) => each.dataset.family)"
    page.evaluate("""() => {
      window.moment = 1000; // of all that happens, however long a busy machine takes
      Object.defineProperty(Event.prototype, "timeStamp", { get: () => moment });
    }""")
    strings = page.page.locator("#legend button[data-family=Strings]")
    strings.focus()
    page.page.keyboard.press("Enter")
    page.page.keyboard.press("Enter")
    assert page.evaluate(shown) == ["Strings"]
    page.page.locator("#families-all").click()
    page.evaluate("moment += 600")
    strings.dblclick()
    assert page.evaluate(shown) == ["Strings"]
    page.evaluate("moment += 600")
    strings.click()  # once more, and later, hides it again
    assert page.evaluate(shown) == []


def test_the_focus_stays_near_what_is_gone(page: Any) -> None:
    focused = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.dataset.family"
    for name in ("Oboe", "Violin", "Cello"):
        page.click(*page.instrument(name))
        page.page.locator("#keep").click()
    page.page.locator("#kept .remove").nth(1).focus()
    for left in ("Forget Oboe", "Forget Cello", "Keep this sound"):
        page.page.keyboard.press("Enter")
        assert page.evaluate(focused) == left
    family = page.page.locator("#legend button[data-family=Strings]")
    family.focus()
    colour = "getComputedStyle(document.activeElement.querySelector('.swatch > *')).fill"
    light = page.evaluate(colour)
    page.page.emulate_media(color_scheme="dark")
    page.until(f"{colour} !== '{light}'")
    page.page.keyboard.press("Enter")
    page.page.locator("#families-all").focus()
    page.page.keyboard.press("Enter")
    assert page.evaluate(focused) == "Piano"


_FAIL = "timbrel.midi.messages.show('Failed.', 'bad', 1e6)"
"""A message that does not go by itself meanwhile."""


@pytest.mark.shared_page
def test_the_focus_goes_back_where_it_came_from_once_a_message_is_gone(page: Any) -> None:
    page.evaluate("timbrel.bridge.emit('server', { state: 'away' })")
    page.evaluate(_FAIL)
    page.page.locator("#midi").focus()
    page.page.locator(".message button").last.focus()
    page.page.keyboard.press("Enter")
    assert "away" in page.evaluate("document.activeElement.parentElement.textContent")
    page.evaluate("timbrel.bridge.emit('server', { state: 'back' })")  # it goes by itself
    assert page.evaluate("document.activeElement.id") == "midi"


@pytest.mark.shared_page
def test_messages_below_one_another_are_clicked_away_at_one_place(page: Any) -> None:
    page.evaluate("""() => {
      const words = ["Short", "A message that is longer"];
      for (const each of words) timbrel.midi.messages.show(each, "plain", 1e6);
    }""")
    left = [each.bounding_box()["x"] for each in page.page.locator("#messages [aria-label=Dismiss]").all()]
    assert len(left) == 2 and left[0] == left[1]


@pytest.mark.shared_page
def test_a_message_that_is_clicked_away_gives_the_focus_neither_to_what_it_left_long_ago_nor_an_action(
    page: Any,
) -> None:
    page.evaluate(_FAIL)
    page.page.locator("#search").focus()
    page.page.locator(".message button").focus()
    page.page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "search"
    page.evaluate("document.activeElement.blur()")
    page.evaluate(_FAIL)
    page.page.locator(".message button").click()
    assert page.evaluate("document.activeElement === document.body")  # and letters play
    page.evaluate("timbrel.bridge.emit('hello', { ...timbrel.model, page: 'another' })")
    page.evaluate(_FAIL)
    page.page.locator(".message button").last.focus()
    page.page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Dismiss"  # and not Reload


@pytest.mark.parametrize(
    "clipboard",
    ["undefined", "{ writeText: async () => { throw new Error('Write permission denied.'); } }"],
    ids=["without HTTPS", "refused"],
)
@pytest.mark.shared_page
def test_copying_without_a_clipboard_leaves_the_focus_where_it_is(page: Any, clipboard: str) -> None:
    page.evaluate(
        f"Object.defineProperty(navigator, 'clipboard', {{ value: {clipboard}, configurable: true }})"
    )
    page.page.locator("#copy-link").focus()
    page.page.keyboard.press("Enter")
    page.until_said("The link is copied.")
    assert page.evaluate("document.activeElement.id") == "copy-link"


def test_where_motion_is_unwelcome_nothing_moves(open_page: Any) -> None:
    page = open_page(reduced_motion="reduce")
    page.unlock()
    page.click(0.2, 0.2)
    page.until("timbrel.player.current?.soundedAt")
    page.page.wait_for_timeout(150)
    assert page.evaluate("timbrel.disc.level") == 0


def test_in_colours_that_the_system_forces_names_and_switches_are_told_from_what_is_behind(
    open_page: Any,
) -> None:
    for shade in ("light", "dark"):
        page = open_page(forced_colors="active", color_scheme=shade)
        ink = page.evaluate("timbrel.disc.ink")
        assert ink["halo"] == ink["disc"] not in (ink["text"], ink["label"], ink["accent"])
        hold, previews, lock = (
            f"getComputedStyle(document.getElementById('{name}')).backgroundColor"
            for name in ("hold", "previews", "seed-lock")
        )
        assert page.evaluate(f"{hold} !== {previews}")  # off and on
        locked = page.evaluate(lock)
        page.page.locator("#seed-lock").click()
        page.page.mouse.move(0, 0)
        page.until(f"{lock} !== '{locked}'")


def test_more_contrast_is_given_where_the_system_asks_for_it(page: Any) -> None:
    border = "getComputedStyle(document.getElementById('seed')).borderTopColor"
    muted = "getComputedStyle(document.querySelector('.facts')).color"
    text = page.evaluate("getComputedStyle(document.body).color")
    before = [page.evaluate(each) for each in (border, muted, "timbrel.disc.ink.label")]
    page.page.emulate_media(contrast="more")
    page.until(f"timbrel.disc.ink.label === '{text}'")
    assert page.evaluate(muted) == text not in before
    assert page.evaluate(border) == text


def test_a_theme_is_chosen_and_remembered(open_page: Any) -> None:
    page = open_page(color_scheme="light")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.page.locator("#theme").click()
    page.page.locator("#theme").click()
    ink = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ink != paper
    page.page.reload()
    page.page.wait_for_selector("html[data-ready]")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ink


_REFUSED = """() => new Promise((error) => {
  const { bridge, player } = timbrel;
  bridge.on(bridge.newId(), { ...player.request(), pitch: 200, live: false }, { error });
})"""
"""What the explorer says, whatever the server does, to a note that cannot be."""


class Played:
    """A server and an explorer of it that tests may stop or end, and put others in their place."""

    def __init__(self, bundle: Path) -> None:
        self._bundle = bundle
        self._ports = [str(lasting_port()) for _ in range(2)]
        self.start_server()
        self.start_explorer()

    def start_server(self) -> None:
        self.server = ServerProcess(self._bundle, "--port", self._ports[0])

    def start_explorer(self) -> None:
        self.explorer = ExplorerProcess(self.server.address, "--port", self._ports[1])

    def close(self) -> None:
        self.explorer.close()
        self.server.close()


@pytest.fixture(scope="module")
def played(tiny_bundle: Path) -> Iterator[Played]:
    both = Played(tiny_bundle)
    yield both
    both.close()


def test_a_server_that_goes_and_comes_back(open_page: Any, played: Played) -> None:
    page = open_page(url=played.explorer.url)
    page.unlock()
    played.server.close()
    page.page.locator("#play").click()
    away = page.page.locator(".message", has_text="server is away").first
    away.wait_for(timeout=120_000)
    assert page.page.locator("#status").get_attribute("data-state") == "away"
    played.start_server()
    page.until_said("server is back")
    assert page.page.locator("#status").get_attribute("data-state") == "well"
    page.page.locator("#play").click()
    page.until("timbrel.player.current?.complete")


def test_of_keys_struck_while_a_server_hangs_those_sound_that_are_still_down(
    open_page: Any, played: Played
) -> None:
    """And what was let go of meanwhile, sounding before, does not come up once more."""
    try:
        page = open_page(url=played.explorer.url)
        page.unlock()
        page.evaluate("""() => {
          window.heard = [];
          timbrel.notes.addEventListener("sound", ({ detail }) => heard.push(detail.note.request.pitch));
        }""")
        page.page.keyboard.down("a")
        page.until("heard.length === 1")
        played.server.signal(signal.SIGSTOP)
        n_samples = None
        while n_samples != (now := page.evaluate("timbrel.player.current.length")):
            n_samples = now
            page.page.wait_for_timeout(300)  # until what was on its way has come ...
            assert page.evaluate(_REFUSED)["code"] == "invalid_request"  # ... which the explorer sends before
        page.page.keyboard.up("a")
        for key in "sdf":
            page.page.keyboard.press(key)
        page.page.keyboard.down("g")
        page.until("timbrel.notes.sounding === 1")
        played.server.signal(signal.SIGCONT)
        page.until("heard.length > 1")
        page.page.keyboard.up("g")
        page.wait_for_silence()
        assert page.evaluate("heard") == [60, 67]
    finally:
        played.server.signal(signal.SIGCONT)


def test_an_explorer_that_is_gone_is_asked_again_until_it_is_back(open_page: Any, played: Played) -> None:
    page = open_page(url=played.explorer.url)
    page.unlock()
    played.explorer.close()
    page.page.locator(".message", has_text="connection to the explorer was lost").wait_for(timeout=120_000)
    played.start_explorer()
    try:
        page.until("timbrel.bridge.open")
        assert page.page.locator(".message").count() == 0
        page.page.locator("#play").click()
        page.until("timbrel.player.current?.complete")
    finally:
        page.faults[:] = [fault for fault in page.faults if "WebSocket connection" not in fault]


def test_a_connection_that_died_while_a_phone_slept_is_looked_after_when_it_wakes(
    open_page: Any, played: Played
) -> None:
    explorer = played.explorer
    try:
        page = open_page(url=explorer.url)
        page.page.clock.install()
        page.page.reload()
        page.until("window.timbrel?.bridge.open")
        explorer.process.send_signal(signal.SIGSTOP)  # it is there, and never answers
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.page.clock.fast_forward(10_000)
        page.page.locator(".message", has_text="connection to the explorer was lost").wait_for()
    finally:
        explorer.process.send_signal(signal.SIGCONT)
        page.faults[:] = [fault for fault in page.faults if "WebSocket" not in fault]


def test_a_connection_that_died_in_silence_is_given_up(open_page: Any, played: Played) -> None:
    explorer = played.explorer
    try:
        page = open_page(url=explorer.url)
        page.page.clock.install()
        page.page.reload()
        page.until("window.timbrel?.bridge.open")
        page.evaluate("""() => {
          window.nClosed = 0;
          timbrel.bridge.addEventListener("closed", () => window.nClosed++);
        }""")
        explorer.process.send_signal(signal.SIGSTOP)  # it is there, and never answers
        page.page.clock.fast_forward(15_000)
        page.page.clock.fast_forward(10_000)
        page.until("nClosed === 1")
        assert page.page.locator(".message", has_text="connection to the explorer was lost").count() == 1
        page.page.clock.fast_forward(1000)
        page.until("timbrel.bridge.connecting")
        page.page.clock.fast_forward(10_000)
        page.until("nClosed === 2")
        explorer.process.send_signal(signal.SIGCONT)
        page.until("timbrel.bridge.open")
        assert page.page.locator(".message").count() == 0
    finally:
        explorer.process.send_signal(signal.SIGCONT)
        page.faults[:] = [fault for fault in page.faults if "WebSocket" not in fault]


def test_each_connection_has_its_own_time_to_answer(page: Any) -> None:
    """One that came in place of a silent one is not cut for that, and is given up if it is silent, too."""
    page.page.clock.install(time=0)
    page.page.clock.pause_at(10**9)  # or the time that a busy machine takes would go by, too
    page.evaluate("""async () => {
      const { Bridge } = await import("/static/bridge.js");
      window.told = [];
      window.worker = { postMessage: (message) => told.push(Object.keys(message)[0]) };
      new Bridge(worker).connect();
      window.hear = (what) => {
        told.length = 0;
        worker.onmessage({ data: { [what]: true } });
      };
      hear("opened");
    }""")
    page.page.clock.fast_forward(15_000)
    assert page.evaluate("told") == ["send"]  # and nobody answers
    page.evaluate("hear('closed')")
    page.page.clock.fast_forward(1000)
    assert page.evaluate("told") == ["connect"]
    page.evaluate("hear('opened')")
    page.page.clock.fast_forward(9500)
    assert page.evaluate("told") == []  # the first one's time is over
    page.page.clock.fast_forward(5000)
    page.page.clock.fast_forward(10_000)
    assert page.evaluate("told") == ["send", "close"]
