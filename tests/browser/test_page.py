"""The page itself: it loads, it is small, it stands still, and its state is in its address."""

from __future__ import annotations

import cmath
import contextlib
import math
import random
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from cut_proxy import CutProxy

from browser.conftest import DEFAULT_BUNDLE
from browser.explorer_page import PATIENCE_MILLISECONDS, POLL_MILLISECONDS
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.timbre_map import MOST_POINTS

WEB = Path(__file__).resolve().parents[2] / "clients" / "web"
MOST_BYTES = 500_000

_CUT_OFF = """[...document.querySelectorAll("button, .button, input")].filter((each) => {
  if (!each.checkVisibility() || each.closest(".keys") || each.className === "hidden") return false;
  const own = each.getBoundingClientRect();
  const around = each.closest("dialog, .side, .piano, .bar") ?? document.body;
  const { left, right, top, bottom } = around.getBoundingClientRect();
  const within = own.left >= left && own.right <= right + 1 && own.top >= top && own.bottom <= bottom + 1;
  return !within || (each.matches("button, .button") && each.scrollWidth > each.clientWidth);
}).map((each) => each.id || each.name || each.textContent)"""


_NAMES = """async ([x, y]) => {
  const written = [];
  const fill = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const { width } = this.measureText(text);
    written.push([text, x - { left: 0, center: width / 2, right: width }[this.textAlign], y - 5, width, 10]);
    fill.call(this, text, x, y);
  };
  timbrel.state.set({ x, y });
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  CanvasRenderingContext2D.prototype.fillText = fill;
  return written;
}"""
"""The names on the map while a point is chosen: text, left, top, width, height in CSS pixels of the map."""


_AT_HOLD = """async () => {
  const stage = document.querySelector(".stage");
  for (let [last, still] = [NaN, 0]; still < 6; ) {
    await new Promise(requestAnimationFrame);
    [last, still] = [stage.scrollTop, stage.scrollTop === last ? still + 1 : 0];
  }
  const { x, y } = document.getElementById("hold").getBoundingClientRect();
  return document.elementFromPoint(x + 5, y + 5)?.id;
}"""
"""What is seen where the switch that holds notes is, once the page scrolls no more."""


def overlap(one: dict[str, float], other: dict[str, float]) -> bool:
    """Whether two boxes have a place in common."""
    return all(
        one[edge] < other[edge] + other[size] and other[edge] < one[edge] + one[size]
        for edge, size in (("x", "width"), ("y", "height"))
    )


def test_the_page_loads_with_all_its_instruments(open_page: Any) -> None:
    page = open_page()
    points = Bundle.open(DEFAULT_BUNDLE, verify=False).timbre_map.points
    assert len(page.evaluate("timbrel.points")) == len(points) > 100
    assert page.page.locator("#legend button").count() == len({point.family for point in points})
    assert page.page.locator(".status").get_attribute("data-state") == "well"
    assert page.page.locator(".key").count() == 64


def test_keys_beyond_what_an_instrument_was_trained_on_are_shaded(page: Any) -> None:
    tuba = next(each for each in page.evaluate("timbrel.points") if each["instrument"] == "Tuba")

    def shaded() -> list[int]:
        return [int(key.get_attribute("data-pitch")) for key in page.page.locator(".key.beyond").all()]

    page.evaluate("([x, y, p]) => timbrel.state.set({ x, y, p })", [tuba["x"], tuba["y"], 60])
    assert (tuba["pitch_min"], tuba["pitch_max"]) == (33, 72)
    assert shaded() == list(range(73, 97))
    assert page.page.locator(".piano-hint").inner_text().endswith("beyond what it was trained on")
    assert page.page.locator("[data-pitch='80']").get_attribute("aria-describedby") == "beyond"
    page.page.set_viewport_size({"width": 700, "height": 800})  # which lays the keys out again
    page.until("document.querySelectorAll('.key').length < 64")
    assert shaded() and all(pitch > 72 for pitch in shaded())
    whole = next(
        each for each in page.evaluate("timbrel.points") if each["pitch_max"] - each["pitch_min"] >= 63
    )
    page.evaluate("([x, y]) => timbrel.state.set({ x, y })", [whole["x"], whole["y"]])
    assert not shaded() and not page.page.locator("#beyond").is_visible()


def test_a_bundle_that_names_no_instrument_is_played_all_the_same(unopened: Any) -> None:
    page = unopened
    page.page.route("**/api/map", lambda route: route.fulfill(json={"points": []}))
    page.open("#s=0.3").unlock()
    assert page.evaluate("timbrel.points.length") == 0
    page.click(0.3, 0.2)
    page.until("timbrel.player.current?.complete")
    page.page.locator("#keep").click()
    for name in ("recent", "kept"):
        assert page.page.locator(f"#{name} .sound").inner_text() == "A point\nC4"


def test_a_family_may_have_any_name(unopened: Any) -> None:
    page = unopened
    names = ["constructor", "__proto__", "toString", ""]
    points = [
        {"instrument": name, "family": name, "x": place / 4, "y": 0.0} for place, name in enumerate(names)
    ]
    page.page.route("**/api/map", lambda route: route.fulfill(json={"points": points}))
    page.page.add_init_script("localStorage.setItem('timbrel.theme', '\"constructor\"')")
    page.open()
    shown = page.page.locator("#legend button").all_inner_texts()
    assert shown == [f"{name}\n1".strip() for name in sorted(names)]
    page.page.locator("#legend button[data-family=constructor]").click()
    page.page.locator("#families-all").click()
    assert page.page.locator("#legend [aria-pressed=true]").count() == 4
    assert page.page.locator("#theme").get_attribute("title") == "Theme: as the system"


def test_a_map_of_as_many_points_as_may_be_opens(unopened: Any) -> None:
    page = unopened
    draw = random.Random(1)
    places = [cmath.rect(math.sqrt(draw.random()), 2 * math.pi * draw.random()) for _ in range(MOST_POINTS)]
    points = [
        {"instrument": f"No. {number}", "family": "Organ", "x": place.real, "y": place.imag}
        for number, place in enumerate(places)
    ]
    page.page.route("**/api/map", lambda route: route.fulfill(json={"points": points}))
    page.open()
    assert page.evaluate("timbrel.points.length") == MOST_POINTS > 9999
    alone = "timbrel.disc.points.slice(0, 9)"
    nearest = "timbrel.disc.nearest(each.x, each.y, 2)[1].distance"
    assert page.evaluate(f"{alone}.every((each) => each.alone === {nearest})")


def test_a_sound_worker_that_did_not_load_is_told_and_asked_for_again(unopened: Any) -> None:
    """Neither explorer nor server is away then, and neither is said to be."""
    page = unopened
    page.page.route("**/sound_worker.js", lambda route: route.abort())
    page.page.goto(f"{page.url}?test")
    line = page.page.locator(".message", has_text="did not load")
    line.wait_for()
    page.until("window.timbrel && document.documentElement.dataset.ready === ''")
    page.page.wait_for_timeout(1000)  # more than the first wait for a connection that was lost
    assert page.page.locator(".message").count() == 1
    assert page.page.locator(".status").inner_text() == "no sound"
    page.faults.clear()  # the file that did not come
    page.page.unroute("**/sound_worker.js")
    with page.page.expect_navigation():
        line.get_by_text("Reload").click()
    page.until("window.timbrel?.bridge.open")
    page.unlock()
    page.click(0.3, 0.2)
    page.until("timbrel.player.current?.soundedAt")
    assert page.page.locator(".message").count() == 0


class StudioProxy(CutProxy):
    """Has the explorer below /studio/, as a web server with other pages may."""

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                paths = data.replace(b"GET /", b"GET /elsewhere/")
                sink.sendall(paths.replace(b"GET /elsewhere/studio/", b"GET /"))
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)  # or the page would ask on a connection that has ended


def test_the_page_is_played_below_a_path_of_another_server(open_page: Any, explorer_url: str) -> None:
    with StudioProxy(explorer_url.removeprefix("http://").rstrip("/")) as proxy:
        page = open_page(url=f"http://{proxy.address}/studio/")
        page.unlock()
        page.click(0.2, 0.2)
        page.until("timbrel.player.current?.complete")
        with page.page.expect_download() as download:
            page.page.locator("#download").click()
        assert download.value.suggested_filename.endswith(".wav")
        page.page.goto("about:blank")


class PlainProxy(CutProxy):
    """Passes on no WebSocket, as nginx does not unless it is told to."""

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data.replace(b"Upgrade: websocket", b"Dropped: websocket"))
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


def test_a_proxy_that_passes_on_no_websocket_is_named(unopened: Any, explorer_url: str) -> None:
    """The explorer itself does answer."""
    with PlainProxy(explorer_url.removeprefix("http://").rstrip("/")) as proxy:
        page = unopened
        page.page.goto(f"http://{proxy.address}/?test")
        page.page.locator(".message", has_text="a reverse proxy has to pass on those, and Host").wait_for()
        page.page.goto("about:blank")
        page.faults.clear()  # the handshakes that failed


def test_all_that_the_page_loads_weighs_less_than_half_a_megabyte_and_comes_from_here(open_page: Any) -> None:
    page = open_page()
    loaded = page.evaluate(
        "[...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')]"
        ".map(({ name, decodedBodySize }) => [name, decodedBodySize])"
    )
    assert len(loaded) > 20
    assert {name for name, _ in loaded if not name.startswith(page.url)} == set()
    assert sum(size for _, size in loaded) < MOST_BYTES
    files = [path for path in WEB.rglob("*") if path.is_file()]
    preloads = (
        "[...document.querySelectorAll('[rel=modulepreload]')].map((each) => each.getAttribute('href'))"
    )
    asked = [page.page.locator("script").get_attribute("src"), *page.evaluate(preloads)]
    scripts = {f"static/{path.relative_to(WEB).as_posix()}" for path in files if path.suffix == ".js"}
    workers = {"static/sound_worker.js", "static/worklet.js"}
    assert sorted(asked) == sorted(scripts - workers)  # all at once: none waits for those that import it
    assert sum(path.stat().st_size for path in files) < MOST_BYTES


@pytest.mark.parametrize("scripts", [False, True], ids=["no scripts", "a browser too old"])
def test_a_page_that_cannot_begin_says_what_it_needs(browser: Any, explorer_url: str, scripts: bool) -> None:
    context = browser.new_context(java_script_enabled=scripts, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    page = context.new_page()
    page.route("**/app.js", lambda route: route.fulfill(content_type="text/javascript", body="of tomorrow"))
    page.goto(explorer_url)
    session = context.new_cdp_session(page)
    session.send("Animation.enable")
    session.send("Animation.setPlaybackRate", {"playbackRate": 20})  # it takes its time, or all would see it
    assert not page.locator("#disc").is_visible()
    if not scripts:
        assert page.locator("noscript").is_visible()
    page.get_by_text("browser of 2024 or later").wait_for()
    context.close()


@pytest.mark.parametrize("viewport", [(1440, 900), (390, 844)], ids=["desktop", "phone"])
def test_nothing_moves_while_the_page_loads_and_plays(open_page: Any, viewport: tuple[int, int]) -> None:
    page = open_page(viewport={"width": viewport[0], "height": viewport[1]})
    page.watch_shifts()
    page.unlock()
    page.click(0.35, 0.55)
    page.until("timbrel.player.current?.complete")
    page.click(*page.instrument("Oboe"))
    page.page.wait_for_timeout(300)
    assert page.shifts() == []


def test_the_address_holds_the_state_and_brings_it_back(open_page: Any) -> None:
    first = open_page("#x=0.25&y=-0.5&p=67&v=80&s=1.5&seed=42&t=0.5&a=0.1,0.2")
    wanted = {"x": 0.25, "y": -0.5, "p": 67, "v": 80, "s": 1.5, "seed": 42, "t": 0.5, "a": [0.1, 0.2]}
    assert wanted.items() <= first.state().items()
    first.unlock()
    first.click(*first.instrument("Violin"))
    second = open_page(first.evaluate("new URL(timbrel.state.link).hash"))
    assert second.state() == first.state()
    assert second.page.locator("#place").inner_text() == "Violin"


@pytest.mark.shared_page
def test_a_link_that_is_opened_in_a_page_brings_all_of_its_state(page: Any) -> None:
    link = page.evaluate("new URL(timbrel.state.link).hash")
    before = page.state()
    page.click(*page.instrument("Violin"))
    page.page.locator("#set-a").click()
    page.until("location.hash.includes('&a=')")
    page.evaluate("(link) => { location.hash = link; }", link)
    page.until("timbrel.state.values.a === null")
    assert page.state() == before
    page.page.keyboard.press("Control+z")
    assert page.state()["a"] is not None


@pytest.mark.parametrize("state", ["#x=9&y=9&p=500&v=-3&s=9999&seed=x&t=7&a=1", "#%%%", "#s=hold&x=NaN"])
def test_a_damaged_address_gives_an_allowed_state(open_page: Any, state: str) -> None:
    page = open_page(state)
    values = page.state()
    assert values["x"] ** 2 + values["y"] ** 2 <= 1
    assert 33 <= values["p"] <= 96
    assert 1 <= values["v"] <= 127
    least, most = next(
        (field["low"], field["high"])
        for field in page.evaluate("fetch('api/model').then((reply) => reply.json())")["fields"]
        if field["name"] == "seconds"
    )
    assert values["s"] == "hold" or least <= values["s"] <= most
    assert isinstance(values["seed"], int)


@pytest.mark.shared_page
def test_a_place_at_the_rim_stays_where_it_is_while_other_things_are_set(page: Any) -> None:
    moved = page.evaluate("""() => {
      const { state } = timbrel;
      const place = () => `${state.get("x")}, ${state.get("y")}`;
      const moved = [];
      for (let angle = 0; angle < 3; angle += 0.01) {
        state.set({ x: Math.cos(angle), y: Math.sin(angle), p: 60 });
        const before = place();
        state.set({ p: 61 });
        if (place() !== before) moved.push(before);
      }
      return moved;
    }""")
    assert moved == []


def test_undo_and_redo_walk_through_what_was_done(page: Any) -> None:
    start = page.state()
    page.click(*page.instrument("Violin"))
    page.click(*page.instrument("Oboe"))
    oboe = page.state()
    page.page.keyboard.press("Control+z")
    assert page.page.locator("#place").inner_text() == "Violin"
    page.page.locator("#undo").click()
    assert page.state() == start
    assert page.page.locator("#undo").is_disabled()
    page.page.keyboard.press("Control+Shift+z")
    page.page.locator("#redo").click()
    assert page.state() == oboe
    page.evaluate("""() => {
      const cyrillic = { key: "я", code: "KeyZ", ctrlKey: true, bubbles: true };
      document.body.dispatchEvent(new KeyboardEvent("keydown", cyrillic));
    }""")
    assert page.page.locator("#place").inner_text() == "Violin"


@pytest.mark.shared_page
def test_undo_leaves_the_pitch_that_a_key_chose(page: Any) -> None:
    page.set(s=0.3)
    page.evaluate("timbrel.state.keep()")
    start = page.state()
    page.click(*page.instrument("Violin"))
    violin = page.state()
    page.page.keyboard.press("j")
    page.page.keyboard.press("Control+z")
    assert page.state() == {**start, "p": 71}
    page.page.keyboard.press("Control+Shift+z")
    assert page.state() == {**violin, "p": 71}
    page.wait_for_silence()


@pytest.mark.shared_page
def test_searching_finds_goes_there_and_plays(page: Any) -> None:
    page.page.keyboard.press("/")
    page.page.keyboard.type("french")
    options = page.page.locator("#search-list [role=option]")
    assert options.all_inner_texts()[0].startswith("French Horn")
    page.page.keyboard.press("Enter")
    assert page.page.locator("#place").inner_text() == "French Horn"
    page.until("timbrel.player.current?.soundedAt")
    page.page.keyboard.down("d")  # and the letters play again
    page.until("timbrel.player.current.request.pitch === 64 && timbrel.player.current.held")
    page.page.keyboard.up("d")
    assert page.page.locator("#search").input_value() == ""


@pytest.mark.shared_page
def test_where_nothing_is_typed_or_chosen_enter_goes_nowhere(page: Any) -> None:
    before = page.state()
    page.page.locator("#search").click()
    page.page.keyboard.press("Enter")
    assert page.state() == before and page.evaluate("timbrel.player.current") is None
    page.page.keyboard.press("ArrowUp")  # from none to the last
    options = page.page.locator("#search-list [role=option]")
    assert options.last.get_attribute("aria-selected") == "true"
    page.page.keyboard.press("ArrowDown")
    assert options.first.get_attribute("aria-selected") == "true"


@pytest.mark.shared_page
def test_an_input_method_keeps_its_own_keys_while_one_searches(page: Any) -> None:
    search = page.page.locator("#search")
    search.fill("cel")
    page.evaluate("""() => {
      const event = { key: "Enter", isComposing: true, bubbles: true, cancelable: true };
      document.getElementById("search").dispatchEvent(new KeyboardEvent("keydown", event));
    }""")
    assert search.input_value() == "cel"  # Enter ended the composition and chose nothing
    assert page.evaluate("timbrel.player.current") is None


def test_a_question_mark_opens_the_help_and_its_switch_is_remembered(page: Any) -> None:
    page.page.keyboard.press("?")
    assert page.page.locator("#help-page").is_visible()
    page.page.get_by_text("Letters play the piano").click()
    page.page.keyboard.press("Escape")
    assert page.page.locator("#help-page").is_hidden()
    page.page.reload()  # what was chosen there is remembered
    page.page.wait_for_selector("html[data-ready]")
    page.page.keyboard.press("a")
    assert page.evaluate("timbrel.player.current") is None
    assert not page.page.locator("#computer-keys").is_checked()
    page.page.keyboard.press("?")
    page.page.keyboard.press("/")
    assert page.page.locator("#help-page").is_hidden()
    assert page.evaluate("document.activeElement.id") != "search"


@pytest.mark.shared_page
def test_the_help_tells_how_late_a_key_sounded(page: Any) -> None:
    page.page.keyboard.press("?")
    assert "sounded" not in page.page.locator("#about").inner_text()
    page.page.keyboard.press("Escape")
    page.until("!document.activeElement.closest('dialog')")
    page.page.keyboard.down("a")
    page.until("timbrel.player.current?.soundedAt")
    page.page.keyboard.up("a")
    page.page.locator("#help").click()
    told = re.search(r"The last note sounded (\d+) ms after", page.page.locator("#about").inner_text())
    between = page.evaluate("timbrel.player.current.soundedAt - timbrel.player.current.askedAt")
    assert told is not None and between - 1 <= int(told[1]) <= between + 500


def test_the_help_opens_at_its_beginning_on_a_phone(open_page: Any) -> None:
    page = open_page(viewport={"width": 360, "height": 640}, has_touch=True, is_mobile=True)
    page.page.locator("#help").tap()
    help_page = page.page.locator("#help-page")
    assert help_page.evaluate("(page) => page.scrollHeight > page.clientHeight && page.scrollTop === 0")
    assert page.evaluate("document.activeElement.textContent") == "How to play it"  # read out from here on
    page.page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "computer-keys"


@pytest.mark.parametrize("pitches", [[34, 94], [61, 70], [61, 61]])
def test_a_range_that_ends_on_black_keys_has_them_too(unopened: Any, pitches: list[int]) -> None:
    page = unopened

    def model(route: Any) -> None:
        response = route.fetch()
        route.fulfill(response=response, json={**response.json(), "pitch": pitches})

    page.page.route("**/api/model", model)
    page.page.set_viewport_size({"width": 2000, "height": 900})
    page.open()
    for key, octave in zip(pitches, ("octave-down", "octave-up"), strict=True):
        for _ in range(3):
            page.page.locator(f"#{octave}").click()
        box = page.page.locator(f".key[data-pitch='{key}']").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 2000
        page.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 20)
        assert page.evaluate("timbrel.player.current.request.pitch") == key
    page.wait_for_silence()


def test_a_page_that_a_browser_translated_is_played_as_before(page: Any) -> None:
    place = "(name) => document.querySelector(name).getBoundingClientRect().x"
    white, black, next_white = (f".key[data-pitch='{pitch}']" for pitch in (60, 61, 62))
    before = [page.evaluate(place, each) for each in (white, black, next_white)]
    page.evaluate("document.documentElement.dir = 'rtl'")  # into Arabic
    assert [page.evaluate(place, each) for each in (white, black, next_white)] == before
    slider = page.page.locator("#velocity").bounding_box()
    page.page.mouse.click(slider["x"] + slider["width"] - 2, slider["y"] + slider["height"] / 2)
    assert page.state()["v"] == 127  # where its track is coloured up to the thumb
    page.evaluate("document.querySelector('label[for=velocity]').textContent = 'Geschwindigkeit'")
    assert page.evaluate("""() => {
      const [label, slider] = document.getElementById("velocity").parentElement.children;
      return label.scrollWidth <= label.clientWidth && slider.clientWidth > 100;
    }""")


def test_no_button_is_cut_off_on_a_small_laptop(open_page: Any) -> None:
    page = open_page(viewport={"width": 1440, "height": 900})
    page.page.locator("#instrument-open").click()
    assert page.evaluate(_CUT_OFF) == []
    page.page.locator("#instrument-form button[type=submit]").click()
    page.page.locator("#job-cancel").wait_for()
    assert page.evaluate(_CUT_OFF) == []
    page.page.locator("#job-cancel").click()
    page.page.locator("#job").wait_for(state="hidden")  # or it would be built beside the tests that follow


@pytest.mark.parametrize("width", [280, 320, 360])
def test_a_small_phone_has_room_for_all(open_page: Any, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 640}, has_touch=True, is_mobile=True)
    assert page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [width, width]
    assert page.page.locator("#wheel").bounding_box()["width"] >= 60
    assert not {"octave-up", "wheel", "pedal", "silence", "tuning", "midi"} & set(page.evaluate(_CUT_OFF))
    assert width < 360 or page.page.locator(".piano-bar").bounding_box()["height"] < 50  # all in a row
    fields = "[...document.querySelectorAll('input:not([type=range], [type=checkbox], [type=file]), select')]"
    sizes = page.evaluate(f"{fields}.map((each) => parseFloat(getComputedStyle(each).fontSize))")
    assert len(sizes) == 10 and min(sizes) >= 16  # an iPhone would zoom into others
    page.page.locator("#search").click()
    assert page.page.locator("#search-list").bounding_box()["width"] == width - 16


def test_nothing_lies_over_the_names_on_the_map(open_page: Any) -> None:
    page = open_page()
    for viewport in ((1440, 900), (390, 844), (360, 640)):
        page.page.set_viewport_size({"width": viewport[0], "height": viewport[1]})
        page.until("timbrel.disc.view.width === timbrel.disc.canvas.getBoundingClientRect().width")
        disc = page.page.locator("#disc").bounding_box()
        buttons = [each.bounding_box() for each in page.page.locator(".zoom button").all()]
        for chosen in ("Flute", "Oboe", "Celesta", "Trumpet"):
            left, top = page.place(*page.instrument(chosen))
            marker = {"x": left - 12, "y": top - 12, "width": 24, "height": 24}
            names = page.evaluate(_NAMES, page.instrument(chosen))
            assert chosen in [text for text, *_ in names]
            for text, x, y, width, height in names:
                name = {"x": disc["x"] + x, "y": disc["y"] + y, "width": width, "height": height}
                lies_over = [box for box in (marker, *buttons) if overlap(name, box)]
                assert not lies_over, (text, chosen, viewport)


def test_two_sliders_beside_each_other_have_their_names_where_a_page_is_twice_as_large(
    open_page: Any,
) -> None:
    page = open_page(viewport={"width": 720, "height": 450})
    for name in ("wheel", "volume"):
        assert page.page.locator(f".{name} span").bounding_box()["width"] > 20


@pytest.mark.parametrize("viewport", [(667, 320), (320, 256)])
def test_a_finger_scrolls_to_every_control_of_a_phone_on_its_side(
    open_page: Any, viewport: tuple[int, int]
) -> None:
    width, height = viewport
    page = open_page(viewport={"width": width, "height": height}, has_touch=True, is_mobile=True)
    session = page.page.context.new_cdp_session(page.page)
    start = page.page.locator("#place").bounding_box()
    left, top = start["x"] + 30, start["y"] + 5
    assert page.evaluate("(at) => document.elementFromPoint(...at).closest('.now') !== null", [left, top])
    for _ in range(5):
        for kind, up in [("touchStart", 0), *(("touchMove", 6 * step) for step in range(1, 11))]:
            touch = {"type": kind, "touchPoints": [{"x": left, "y": top - up}]}
            session.send("Input.dispatchTouchEvent", touch)
        session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        if page.evaluate(_AT_HOLD) == "hold":
            break
    assert page.evaluate(_AT_HOLD) == "hold"
    assert page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [width, width]


@pytest.mark.shared_page
def test_the_legend_hides_a_family_from_map_and_pointer(page: Any) -> None:
    x, y = page.instrument("Violin")
    near = "([x, y]) => timbrel.disc.pointAt(...timbrel.disc.view.toScreen(x, y)).instrument?.instrument"
    assert page.evaluate(near, [x, y]) == "Violin"
    page.page.locator("#legend button[data-family=Strings]").click()
    assert page.evaluate(near, [x, y]) is None
    page.page.locator("#families-all").click()
    assert page.evaluate(near, [x, y]) == "Violin"


def test_what_is_kept_is_there_on_the_next_visit(page: Any) -> None:
    page.click(*page.instrument("Cello"))
    page.page.locator("#keep").click()
    page.click(*page.instrument("Flute"))
    page.page.reload()
    page.page.wait_for_selector("html[data-ready]")
    kept = page.page.locator("#kept .sound")
    assert kept.all_inner_texts() == ["Cello\nC4"]
    kept.click()
    assert page.page.locator("#place").inner_text() == "Cello"


@pytest.mark.shared_page
def test_what_another_tab_keeps_is_shown_and_stays(page: Any) -> None:
    page.click(*page.instrument("Cello"))
    other = page.evaluate("({ ...timbrel.player.request(), x: 0.7 })")
    page.evaluate("(kept) => localStorage.setItem('timbrel.kept', JSON.stringify([kept]))", other)
    page.page.locator("#keep").click()
    assert [each["x"] for each in page.evaluate("JSON.parse(localStorage['timbrel.kept'])")][1] == 0.7
    page.evaluate("""() => {
      localStorage.removeItem("timbrel.kept");
      dispatchEvent(new StorageEvent("storage", { key: "timbrel.kept" }));
    }""")
    assert page.page.locator("#kept .sound").count() == 0
    assert page.page.locator("#keep").get_attribute("aria-pressed") == "false"


@pytest.mark.shared_page
def test_what_is_kept_of_another_bundle_is_not_shown_and_stays(page: Any) -> None:
    stored = "JSON.parse(localStorage['timbrel.kept'])"
    page.evaluate("""() => {
      const request = timbrel.player.request();
      const kept = [{ ...request, bundle: "another", x: 0.7 }, { ...request, x: 0.6 }];
      localStorage.setItem("timbrel.kept", JSON.stringify(kept));
      dispatchEvent(new StorageEvent("storage", { key: "timbrel.kept" }));
    }""")
    assert page.page.locator("#kept .sound").count() == 1
    page.page.locator("#keep").click()
    own = page.evaluate("timbrel.model.bundle_hash")
    kept = [(each.get("bundle"), each["x"]) for each in page.evaluate(stored)]
    assert kept == [(own, 0), (None, 0.6), ("another", 0.7)]
    page.page.locator("#kept .sound").nth(0).click()
    page.until("timbrel.player.current?.complete")
    page.page.locator("#kept .remove").nth(0).click()
    page.page.locator("#kept .remove").nth(0).click()
    assert [each["bundle"] for each in page.evaluate(stored)] == ["another"]


@pytest.mark.shared_page
def test_where_as_many_sounds_are_kept_as_can_be_none_is_lost_for_one_more(page: Any) -> None:
    stored = "JSON.parse(localStorage['timbrel.kept']).length"
    page.evaluate("""() => {
      const request = timbrel.player.request();
      const kept = Array.from({ length: 200 }, (_, seed) => ({ ...request, x: 0.6, seed }));
      localStorage.setItem("timbrel.kept", JSON.stringify(kept));
      dispatchEvent(new StorageEvent("storage", { key: "timbrel.kept" }));
    }""")
    keep = page.page.locator("#keep")
    keep.click()
    assert page.page.locator(".message").inner_text() == (
        "200 sounds are kept, as many as can be: forget one first."
    )
    assert (page.evaluate(stored), keep.get_attribute("aria-pressed")) == (200, "false")
    page.page.locator("#kept .remove").last.click()
    keep.click()
    assert (page.evaluate(stored), keep.get_attribute("aria-pressed")) == (200, "true")


def test_lists_of_sounds_stay_as_they_are_while_notes_begin_and_end(open_page: Any) -> None:
    page = open_page("#s=0.15")
    page.unlock()
    for name in ("Cello", "Flute"):
        page.click(*page.instrument(name))
        page.page.locator("#keep").click()
    recent = page.page.locator("#recent .sound")
    page.evaluate("window.entries = [...document.querySelectorAll('.sounds li')]; null")
    page.click(*page.instrument("Violin"))
    recent.filter(has_text="Cello").focus()
    page.until("timbrel.player.current.over")
    assert page.evaluate("entries.every((entry) => entry.isConnected)")
    page.page.keyboard.press("Enter")  # Cello again, which moves to the top
    assert page.evaluate("document.activeElement.textContent") == "CelloC4"
    assert [text.split("\n")[0] for text in recent.all_inner_texts()] == ["Cello", "Violin", "Flute"]
    fill = "getComputedStyle(entries[0].querySelector('.swatch > *')).fill"
    light = page.evaluate(fill)
    for _ in range(2):
        page.page.locator("#theme").click()
    assert page.evaluate(fill) != light  # and they follow the theme
    assert page.evaluate("entries.every((entry) => entry.isConnected)")


def test_a_page_of_another_bundle_loads_itself_anew_as_it_was(page: Any) -> None:
    page.evaluate("window.before = true; null")
    with page.page.expect_navigation():
        page.evaluate("""() => {
          timbrel.state.set({ p: 71 });
          timbrel.bridge.emit("hello", timbrel.model);
          timbrel.bridge.emit("hello", { bundle_hash: "another" });
        }""")
    page.page.wait_for_selector("html[data-ready]")
    page.until("timbrel.bridge.open")
    assert page.evaluate("window.before") is None
    assert page.state()["p"] == 71


def test_a_page_of_an_explorer_that_was_upgraded_offers_to_load_itself_anew(page: Any) -> None:
    hello = "timbrel.bridge.emit('hello', { ...timbrel.model, page: PAGE })"
    line = page.page.locator(".message")
    page.page.locator("#play").click()
    page.until("timbrel.player.current?.complete")  # the explorer's own greeting has come before it
    assert page.evaluate("timbrel.model.page") and line.count() == 0
    page.evaluate("window.before = true; timbrel.state.set({ p: 71 }); null")
    page.evaluate(hello.replace("PAGE", "'another'"))
    assert line.inner_text() == "The explorer has another version of this page.\nReload"
    page.evaluate(hello.replace("PAGE", "timbrel.model.page"))
    assert line.count() == 0
    page.evaluate(hello.replace("PAGE", "'another'"))
    with page.page.expect_navigation():
        line.get_by_text("Reload").click()
    page.page.wait_for_selector("html[data-ready]")
    page.until("timbrel.bridge.open")
    assert page.evaluate("window.before") is None and page.state()["p"] == 71


def test_the_map_is_never_older_than_the_model(page: Any) -> None:
    held: list[Any] = []
    asked: list[str] = []
    page.page.route("**/api/model", lambda route: held.append(route))
    page.page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    page.page.reload(wait_until="commit")
    while not held:
        page.page.wait_for_timeout(POLL_MILLISECONDS)
    page.page.wait_for_timeout(300)
    assert "map" not in asked  # or a reload between leaves an old map unnoticed
    held[0].continue_()
    page.page.wait_for_selector("html[data-ready]")
    assert "map" in asked


@pytest.mark.shared_page
def test_a_server_that_was_away_is_not_said_to_be_so_by_another_explorer(page: Any) -> None:
    said = page.evaluate("""() => {
      timbrel.bridge.emit("server", { state: "away" });
      timbrel.bridge.emit("closed", { wasOpen: true });
      const before = document.getElementById("messages").children.length;
      timbrel.bridge.emit("open");
      return [before, document.getElementById("messages").children.length];
    }""")
    assert said == [2, 0]


@pytest.mark.parametrize(("told", "shown"), [("", ""), ("no route", ": no route"), ("Gone.", ": Gone")])
@pytest.mark.shared_page
def test_short_messages_leave_those_that_stay(page: Any, told: str, shown: str) -> None:
    page.evaluate("(message) => timbrel.bridge.emit('server', { state: 'away', message })", told)
    page.evaluate("""() => {
      for (let n = 0; n < 6; n++) timbrel.notes.emit("failed", { code: "internal", message: `Failed ${n}.` });
    }""")
    said = page.page.locator(".message").all_inner_texts()
    assert said == [
        f"The server is away{shown}. It will be asked again by itself.",
        *(f"Failed {n}." for n in range(2, 6)),
    ]


def test_a_browser_that_keeps_nothing_is_told_so_and_plays_on(open_page: Any) -> None:
    page = open_page()
    page.evaluate(
        "Object.defineProperty(window, 'localStorage', { get: () => { throw new Error('not allowed'); } })"
    )
    page.unlock()
    page.page.locator("#keep").click()
    assert "keeps nothing" in page.page.locator(".message").inner_text()
    assert page.page.locator("#kept .sound").count() == 1


def test_the_map_is_sharp_on_another_screen(page: Any) -> None:
    page.evaluate("Object.defineProperty(window, 'devicePixelRatio', { value: 2 }); null")
    page.click(0.2, 0.2)
    page.until("timbrel.disc.canvas.width === Math.round(2 * timbrel.disc.view.width)")


def test_zooming_shows_names_that_had_no_room(open_page: Any) -> None:
    page = open_page(viewport={"width": 390, "height": 844})
    x, y = page.instrument("Oboe")
    before = page.evaluate("timbrel.disc.view.toScreen(0, 0)")
    page.page.mouse.move(*page.place(x, y))
    page.page.mouse.wheel(0, -900)
    page.until("timbrel.disc.view.zoom > 3")
    assert page.evaluate("timbrel.disc.pointAt(...timbrel.disc.view.toScreen(0, 0))") is not None
    page.page.locator("#zoom-home").click()
    assert page.evaluate("timbrel.disc.view.toScreen(0, 0)") == before
