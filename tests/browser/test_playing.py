"""What is played is what is heard: measured at the end of the page's audio graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from requirements_gate import require_module

from browser.explorer_page import SAMPLE_RATE, ExplorerPage, opened

Measure = Callable[[npt.NDArray[np.float32]], float]
SILENCE = 1e-3


_PRESS = """(pinches) => {
  const { left, top, width, height } = document.getElementById("disc").getBoundingClientRect();
  const send = (type, pointerId, across) => document.getElementById("disc").dispatchEvent(
    new PointerEvent(type, {
      pointerId, pointerType: "touch", clientX: left + across * width, clientY: top + 0.4 * height,
    }));
  send("pointerdown", 71, 0.35);
  send("pointermove", 71, 0.4);
  if (pinches) {
    send("pointerdown", 72, 0.6);
    send("pointermove", 72, 0.7);
    send("pointerup", 71, 0.4);
    send("pointerup", 72, 0.7);
  } else send("pointercancel", 71, 0.4);
}"""
"""A finger on the map, and then a second one, or the browser takes it away."""


_LOOK = """() => {
  const [line, glow] = [".playhead", ".glow"].map((name) => document.querySelector(name));
  const matrix = (each) => new DOMMatrix(getComputedStyle(each).transform);
  window.seen = [];
  const look = () => {
    if (!window.seen) return;
    const now = [line.hidden ? -1 : matrix(line).m41, matrix(glow).a];
    if (String(now) !== String(seen.at(-1))) seen.push(now);
    requestAnimationFrame(look);
  };
  look();
}"""
"""Keeps where the line over the picture is, -1 while there is none, and how large the glow is."""


@pytest.fixture(scope="module")
def pitch_of() -> Measure:
    """The pitch of a recording with silence around it, as a fractional MIDI note number."""
    require_module("swift_f0", "demo")
    from timbrel.pitch import PitchMeter

    meter = PitchMeter()

    def measure(audio: npt.NDArray[np.float32]) -> float:
        loud = np.flatnonzero(np.abs(audio) > SILENCE)
        assert len(loud) > SAMPLE_RATE // 10, "hardly anything was heard"
        pitch = meter.measure(audio[loud[0] : loud[-1]].copy(), SAMPLE_RATE)
        assert pitch is not None, "what was heard has no pitch"
        return pitch

    return measure


def steepest(audio: npt.NDArray[np.float32]) -> float:
    """The largest difference of two samples in a row."""
    return float(np.abs(np.diff(audio)).max(initial=0))


def play_key(page: ExplorerPage, key: str, milliseconds: int) -> None:
    page.page.keyboard.down(key)
    page.until("timbrel.player.current?.soundedAt")
    page.page.wait_for_timeout(milliseconds)
    # A server that is held up writes it later than one hears.
    page.until(f"timbrel.player.current.length >= {milliseconds / 1000} * timbrel.player.current.sampleRate")
    page.page.keyboard.up(key)


def suspend(page: ExplorerPage) -> None:
    """Silences the page as a browser does, of which it has heard when this returns."""
    page.evaluate("""async () => {
      const { context } = timbrel.audio;
      const told = new Promise((done) => context.addEventListener("statechange", done, { once: true }));
      await context.suspend();
      await told;
    }""")


@pytest.mark.parametrize("interruption", [0.0, 0.6])
@pytest.mark.shared_page
def test_what_is_played_while_the_browser_is_silent_is_not_made_up_for(
    page: Any, interruption: float
) -> None:
    """As during a call on a phone; a key that ends the silence is heard."""
    page.set(p=69, s=1)
    suspend(page)
    page.page.wait_for_timeout(1000 * interruption)
    if interruption:
        page.evaluate("timbrel.audio.unlock = () => {}")  # a browser asks for a gesture
        page.evaluate("timbrel.player.strike({}, { held: false })")
        page.until("timbrel.player.current.complete")
        page.evaluate("delete timbrel.audio.unlock")
    with page.recording() as heard:
        if interruption:
            page.unlock()
            page.page.wait_for_timeout(500)
        else:
            play_key(page, "a", 300)
    assert (np.abs(heard[0]).max(initial=0) < SILENCE) == bool(interruption)


@pytest.mark.shared_page
def test_a_key_that_is_held_through_such_a_silence_is_not_written_on_unheard(page: Any) -> None:
    page.page.keyboard.down("a")
    page.until("timbrel.player.current?.soundedAt")
    suspend(page)
    page.page.wait_for_timeout(500)
    page.unlock()
    page.until("timbrel.notes.sounding === 0")
    assert page.evaluate("timbrel.bridge.live") == 0
    page.page.keyboard.up("a")


@pytest.mark.shared_page
def test_previews_at_the_maps_rim_are_allowed_everywhere(page: Any) -> None:
    """What is asked for there lies on the disc, as the server has it, however its numbers are rounded."""
    page.set(s=0.3)
    farthest, asked, n_sounding = page.evaluate("""() => {
      const { disc, player } = timbrel;
      const angles = Array.from({ length: 2000 }, (_, place) => (place * Math.PI) / 1000);
      const rim = angles.map((angle) => disc.view.toScreen(1.01 * Math.cos(angle), 1.01 * Math.sin(angle)));
      const places = rim.map((place) => disc.pointAt(...place));
      const distance = ({ x, y }) => Math.hypot(x, y);
      const [most] = places.sort((one, other) => distance(other) - distance(one));
      player.preview(most.x, most.y);
      return [distance(most), most, timbrel.notes.sounding];
    }""")
    assert farthest <= 1.0, asked
    assert n_sounding == 1
    page.wait_for_silence()
    assert page.page.locator(".message").count() == 0


@pytest.mark.parametrize("pitch", [52, 69])
@pytest.mark.shared_page
def test_a_click_plays_the_pitch_that_is_chosen(page: Any, pitch_of: Measure, pitch: int) -> None:
    page.set(p=pitch, s=0.7)
    with page.recording() as heard:
        page.click(*page.instrument("Clarinet"))
        page.until("timbrel.player.current?.over")
    assert np.count_nonzero(np.abs(heard[0]) > SILENCE) > 0.4 * SAMPLE_RATE  # zeros of its waves apart
    assert abs(pitch_of(heard[0]) - pitch) < 0.5


def test_a_device_of_another_rate_hears_the_same_pitch(browser: Any, explorer_url: str) -> None:
    """A phone's, say, which tells apart what is heard though it is switched to silent."""
    require_module("swift_f0", "demo")
    from timbrel.pitch import PitchMeter

    with opened(browser, explorer_url) as page:
        page.page.add_init_script(
            "const Plain = AudioContext; AudioContext = class extends Plain {"
            " constructor(options) { super({ ...options, sampleRate: 44100 }); } };"
            "navigator.audioSession = { type: 'auto' };"
        )
        page.open("#s=0.8&p=57").unlock()
        with page.recording() as heard:
            page.click(*page.instrument("Clarinet"))
            page.until("timbrel.player.current?.over")
        assert page.evaluate("timbrel.audio.context.sampleRate") == 44_100
        assert page.evaluate("navigator.audioSession.type") == "playback"
    loud = np.flatnonzero(np.abs(heard[0]) > SILENCE)
    pitch = PitchMeter().measure(heard[0][loud[0] : loud[-1]].copy(), 44_100)
    assert pitch is not None
    assert abs(pitch - 57) < 0.5


@pytest.mark.shared_page
def test_the_second_click_comes_from_the_cache_and_sounds_as_it_was_written(page: Any) -> None:
    page.set(s=0.5)
    page.click(*page.instrument("Flute"))
    page.until("timbrel.player.current?.over")
    written = page.written()
    with page.recording() as heard:
        page.click(*page.instrument("Flute"))
        page.until("timbrel.player.current.over")
    assert page.evaluate("timbrel.player.current.cached")
    first_heard, first_written = (np.flatnonzero(np.abs(each) > SILENCE)[0] for each in (heard[0], written))
    beginning = slice(SAMPLE_RATE // 4)
    np.testing.assert_allclose(
        heard[0][first_heard:][beginning], written[first_written:][beginning], atol=2e-3
    )


@pytest.mark.shared_page
def test_resting_on_the_map_previews_and_leaving_ends_it(page: Any) -> None:
    page.set(s=8)  # it does not end by itself meanwhile
    x, y = page.instrument("Violin")
    page.page.mouse.move(*page.place(x, y))
    page.until("timbrel.notes.sounding === 1")
    assert page.evaluate("timbrel.player.current") is None
    page.page.mouse.move(*page.place(x + 0.2, y + 0.1))
    page.page.mouse.move(5, 5)
    page.wait_for_silence()
    assert page.evaluate("timbrel.bridge.live") == 0


@pytest.mark.shared_page
def test_a_click_is_not_followed_by_a_preview_of_itself(page: Any) -> None:
    page.set(s=4)
    left, top = page.place(*page.instrument("Violin"))
    page.page.mouse.click(left, top)
    page.page.mouse.move(left + 1, top)
    page.page.wait_for_timeout(400)
    assert page.evaluate("timbrel.notes.sounding") == 1
    for place in (left + 40, left):  # elsewhere there is one, and here again
        page.page.mouse.move(place, top)
        page.until("timbrel.disc.hover?.previewing")


@pytest.mark.shared_page
def test_a_preview_that_was_heard_out_makes_the_click_instant(page: Any) -> None:
    page.set(s=0.3)
    x, y = page.instrument("Violin")
    page.page.mouse.move(*page.place(x, y))
    page.until("timbrel.notes.cache.size === 1")
    page.click(x, y)
    assert page.evaluate("timbrel.player.current.cached")


@pytest.mark.shared_page
def test_a_key_sounds_while_it_is_down_and_dies_away_after(page: Any, pitch_of: Measure) -> None:
    with page.recording() as heard:
        began = time.monotonic()
        play_key(page, "d", 700)  # the E above middle C
        page.until("timbrel.player.current.complete")
        took = time.monotonic() - began
        page.wait_for_silence()
    assert abs(pitch_of(heard[0]) - 64) < 0.5
    note = page.evaluate("timbrel.player.current.request")
    assert 0.6 < note["seconds"] <= took + 1.0 and note["seconds"] != 4  # of four: the release was heard


@pytest.mark.shared_page
def test_three_keys_are_three_voices(page: Any) -> None:
    for key in "adg":
        page.page.keyboard.down(key)
    page.until("timbrel.notes.sounding === 3 && timbrel.player.current.soundedAt")
    assert page.page.locator(".key.down").evaluate_all("(keys) => keys.map((k) => k.dataset.pitch)") == [
        "60",
        "64",
        "67",
    ]
    for key in "adg":
        page.page.keyboard.up(key)
    assert page.page.locator(".key.down").count() == 0
    page.wait_for_silence()


def test_a_chord_is_one_entry_of_what_was_played_and_is_played_again_whole(page: Any) -> None:
    recent = page.page.locator("#recent .sound")
    for keys in ("adg", "s"):
        for key in keys:
            page.page.keyboard.down(key)
        page.until("timbrel.player.current?.soundedAt")
        for key in keys:
            page.page.keyboard.up(key)
        page.wait_for_silence()
    assert [text.split("\n")[1] for text in recent.all_inner_texts()] == ["D4", "C4 E4 G4"]
    page.evaluate(
        "window.most = 0; timbrel.player.addEventListener('current', "
        "() => { window.most = Math.max(window.most, timbrel.notes.sounding); }); null"
    )
    recent.nth(1).click()
    page.until("window.most === 3")  # on a busy machine they may have died away by the first look
    assert [text.split("\n")[1] for text in recent.all_inner_texts()] == ["C4 E4 G4", "D4"]
    page.wait_for_silence()


@pytest.mark.shared_page
def test_the_octave_shifts_and_every_chord_lets_go_when_the_window_is_left(page: Any) -> None:
    page.page.keyboard.press("x")
    page.page.keyboard.down("a")
    assert page.state()["p"] == 72
    page.evaluate("window.dispatchEvent(new Event('blur'))")
    page.wait_for_silence()
    page.page.keyboard.press("z")
    page.page.keyboard.up("a")


def test_each_press_on_a_touched_pianos_octave_buttons_moves_its_keys(open_page: Any) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    ends = "[document.querySelector('.key').dataset.pitch, document.getElementById('octave').textContent]"
    for name, presses in (("#octave-up", 5), ("#octave-down", 9)):
        for _ in range(presses):
            page.page.locator(name).tap()
        before = page.evaluate(ends)
        page.page.locator(name).tap()  # there are no more
        assert page.evaluate(ends) == before
        page.page.locator("#octave-down" if name == "#octave-up" else "#octave-up").tap()
        assert page.evaluate(ends)[0] != before[0]


@pytest.mark.shared_page
def test_letters_play_again_once_the_piano_was_touched(page: Any) -> None:
    page.page.locator("#search").click()
    page.page.keyboard.type("d")
    page.page.locator(".key[data-pitch='60']").click()
    page.page.keyboard.down("d")
    page.until("timbrel.player.current.request.pitch === 64")
    page.page.keyboard.up("d")
    assert page.page.locator("#search").input_value() == "d"
    page.wait_for_silence()


@pytest.mark.shared_page
def test_dragging_over_the_piano_slides_from_key_to_key(page: Any) -> None:
    boxes = [page.page.locator(f".key[data-pitch='{pitch}']").bounding_box() for pitch in (60, 62, 64)]
    started = page.evaluate(
        "window.started = []; timbrel.player.addEventListener('current', "
        "({ detail }) => window.started.push(detail.note.request.pitch)); window.started"
    )
    assert started == []
    first = boxes[0]
    bottom = first["y"] + first["height"] - 8
    page.page.mouse.move(first["x"] + 10, bottom)
    page.page.mouse.down()
    for box in boxes[1:]:
        page.page.mouse.move(box["x"] + 10, bottom, steps=4)
    page.page.mouse.up()
    assert page.evaluate("window.started") == [60, 62, 64]
    page.wait_for_silence()


def test_two_fingers_play_two_keys(open_page: Any) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.unlock()
    session = page.page.context.new_cdp_session(page.page)
    points = []
    for pitch in (60, 64):
        box = page.page.locator(f".key[data-pitch='{pitch}']").bounding_box()
        points.append({"x": box["x"] + 12, "y": box["y"] + box["height"] - 10, "id": pitch})
    session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": points[:1]})
    session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": points})
    page.until("timbrel.notes.sounding === 2")
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.page.locator(".key.down").first.wait_for(state="detached")
    page.wait_for_silence()


@pytest.mark.shared_page
def test_a_key_that_two_fingers_hold_comes_up_with_the_last(page: Any) -> None:
    found = page.evaluate("""() => {
      const piano = document.getElementById("keys");
      const send = (type, pointerId, pitch) => {
        const { left, bottom } = piano.querySelector(`[data-pitch="${pitch}"]`).getBoundingClientRect();
        piano.dispatchEvent(new PointerEvent(type, { pointerId, clientX: left + 5, clientY: bottom - 8 }));
      };
      send("pointerdown", 71, 60);
      const note = timbrel.player.current;
      const states = [note.isOff];
      const then = (...event) => {
        send(...event);
        states.push(note.isOff);
      };
      then("pointerdown", 72, 60);
      then("pointerup", 71, 60);
      then("pointerdown", 73, 60);
      then("pointermove", 72, 62);
      then("pointerup", 72, 62);
      then("pointerup", 73, 60);
      return states;
    }""")
    assert found == [False] * 6 + [True]
    assert page.page.locator(".key.down").count() == 0
    page.wait_for_silence()


def test_keys_are_tuned_by_scalas_files_and_by_midi(page: Any, tmp_path: Path) -> None:
    (tmp_path / "thirds.scl").write_text("!\nneutral thirds\n 4\n!\n 350.\n 702.\n 1050.\n 2/1\n")
    (tmp_path / "bad.scl").write_text("!\nnone\n 1\n!\n two\n")
    x, y = page.instrument("Trumpet")
    page.evaluate(f"timbrel.state.set({{ x: {x}, y: {y} }})")
    files = page.page.locator("#tuning-files")
    files.set_input_files(tmp_path / "bad.scl")
    page.page.locator(".message", has_text="bad.scl, line 5: 'two' is no pitch").wait_for()
    files.set_input_files(tmp_path / "thirds.scl")
    page.page.locator(".message", has_text="Tuned: thirds.scl").wait_for()
    page.page.keyboard.down("w")  # C#4, the scale's first degree above C4
    page.until("timbrel.player.current?.soundedAt")
    page.until_it_sounds(63.5)
    page.page.keyboard.up("w")
    assert "E4 \N{MINUS SIGN}50 ¢, MIDI 64" in page.page.locator("#facts").inner_text()
    page.wait_for_silence()
    page.page.locator("#play").click()  # the point plays what the key did
    assert page.evaluate("timbrel.player.current.request.cents") in (50, -50)
    page.page.locator("#tuning").click()
    assert "E4, MIDI 64" in page.page.locator("#facts").inner_text()  # and the point with them
    take = "(bytes) => timbrel.midi.take(Uint8Array.from(bytes))"
    page.evaluate(take, [0x90, 60, 100])
    page.until("timbrel.player.current?.soundedAt")
    plain = page.until_it_sounds(60.0)
    page.evaluate(take, [0xF0, 0x7F, 0x7F, 8, 2, 0, 1, 60, 60, 32, 0, 0xF7])  # a quarter of a semitone up
    page.until_it_sounds(plain + 0.25)  # a note wavers by some cents of its own
    page.evaluate(take, [0x80, 60, 0])
    page.evaluate(
        take, [0xF0, 0x7E, 0x7F, 8, 8, 3, 0x7F, 0x7F, *([64 - 30] * 12), 0xF7]
    )  # all, 30 cents down
    page.evaluate(take, [0x90, 64, 100])
    page.until("timbrel.player.current.request.cents === -30")
    page.evaluate(take, [0x80, 64, 0])
    page.evaluate(take, [0xF0, 0x41, 0x10, 0xF7])
    page.until_said("a system exclusive message is not performed")
    page.wait_for_silence()
    page.faults[:] = [fault for fault in page.faults if "status of 4" not in fault]  # the refusal itself


@pytest.mark.shared_page
def test_master_tuning_moves_notes_of_every_channel(page: Any) -> None:
    """Fine and coarse add up; what else is said to the whole device is named."""
    take = "(bytes) => timbrel.midi.take(Uint8Array.from(bytes))"
    x, y = page.instrument("Trumpet")
    page.evaluate(f"timbrel.state.set({{ x: {x}, y: {y} }})")
    page.evaluate(take, [0x95, 60, 100])
    page.until("timbrel.player.current?.soundedAt")
    plain = page.until_it_sounds(60.0)
    page.evaluate(take, [0xF0, 0x7F, 0x7F, 4, 3, 0, 80, 0xF7])  # a quarter of a semitone up
    page.evaluate(take, [0xF0, 0x7F, 0x7F, 4, 4, 0, 62, 0xF7])  # two semitones down
    page.until_it_sounds(plain - 1.75)
    page.evaluate(take, [0x85, 60, 0])
    assert "is not performed" not in page.evaluate("document.body.textContent")
    page.evaluate(take, [0xF0, 0x7F, 0x7F, 4, 2, 0, 64, 0xF7])  # the master balance
    page.until_said("a system exclusive message is not performed")
    page.wait_for_silence()


@pytest.mark.shared_page
def test_a_note_follows_a_drag(page: Any) -> None:
    page.evaluate(
        "window.path = []; window.begun = 0; "
        "timbrel.player.addEventListener('current', () => { window.begun += 1; }); "
        "const move = timbrel.bridge.move.bind(timbrel.bridge); "
        "timbrel.bridge.move = (id, x, y) => { window.path.push([id, x, y]); move(id, x, y); }; null"
    )
    page.page.mouse.move(*page.place(-0.6, 0.45))
    page.page.mouse.down()
    for step in range(1, 9):
        page.page.mouse.move(*page.place(-0.6 + 0.12 * step, 0.45))
        page.page.wait_for_timeout(120)
    page.page.wait_for_timeout(100)  # what moved is drawn
    page.page.mouse.up()
    path = np.array(page.evaluate("window.path"))
    assert len(path) >= 5 and len(set(path[:, 0])) == 1
    assert (np.diff(path[:, 1]) > 0).all()
    assert page.evaluate("window.begun") <= 2  # the note that was struck, and the one that is held
    page.until("timbrel.disc.trail.length < 2")  # though the pointer rests
    page.wait_for_silence()


@pytest.mark.shared_page
def test_a_note_cut_short_ends_without_a_click(page: Any) -> None:
    page.set(s=1, p=45)
    x, y = page.instrument("Cello")
    page.click(x, y)
    page.until("timbrel.player.current?.complete")
    page.page.keyboard.press("Escape")
    page.wait_for_silence()
    written = page.written()
    with page.recording() as heard:
        page.click(x, y)  # from the cache: on a busy machine a note that is being written may have gaps
        page.until("timbrel.player.current.cached && timbrel.player.current.soundedAt")
        page.page.wait_for_timeout(500)
        page.page.keyboard.press("Escape")
        page.wait_for_silence()
    audio = heard[0]
    last = np.flatnonzero(np.abs(audio) > SILENCE)[-1]
    fade = audio[max(0, last - SAMPLE_RATE // 25) : last + 2]
    assert steepest(fade) <= steepest(written) + 2e-3


@pytest.mark.shared_page
def test_a_chord_at_full_velocity_stays_below_full_scale(page: Any) -> None:
    page.set(v=127)
    page.click(*page.instrument("Trumpet"))
    with page.recording() as heard:
        for key in "adgkl":
            page.page.keyboard.down(key)
        page.until("timbrel.notes.sounding >= 5 && timbrel.player.current.soundedAt")
        page.until_sounded(0.6)
        page.page.keyboard.press("Escape")
        page.wait_for_silence()
    for key in "adgkl":
        page.page.keyboard.up(key)
    assert 0.05 < np.abs(heard[0]).max() <= 1.0


@pytest.mark.shared_page
def test_holding_the_map_plays_until_it_is_let_go(page: Any) -> None:
    page.set(s="hold")
    page.page.mouse.move(*page.place(*page.instrument("Oboe")))
    began = time.monotonic()
    page.page.mouse.down()
    page.until("timbrel.player.current?.soundedAt")
    page.page.wait_for_timeout(400)
    page.page.mouse.up()
    page.until("timbrel.player.current.complete")
    seconds = page.evaluate("timbrel.player.current.request.seconds")
    assert seconds != 4 and seconds <= time.monotonic() - began + 1.0  # of four: the release was heard


def test_a_finger_that_moves_while_it_holds_the_button_holds_the_note(open_page: Any) -> None:
    page = open_page("#s=hold", viewport={"width": 390, "height": 640}, has_touch=True, is_mobile=True)
    box = page.page.locator("#play").bounding_box()
    left, top = box["x"] + 20, box["y"] + 20
    session = page.page.context.new_cdp_session(page.page)

    def touch(kind: str, *places: tuple[float, float]) -> None:
        points = [{"x": x, "y": y} for x, y in places]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", (left, top))
    for step in range(8):
        touch("touchMove", (left, top - 6 * step))
    page.until("timbrel.player.current")
    page.page.wait_for_timeout(100)
    assert page.evaluate("timbrel.player.current.isOff") is False
    assert page.evaluate("document.querySelector('.stage').scrollTop") == 0
    touch("touchEnd")
    page.until("timbrel.player.current.isOff")
    page.wait_for_silence()


@pytest.mark.shared_page
def test_the_pedal_holds_what_was_played_until_it_comes_up(page: Any) -> None:
    """By the space bar for as long as that is down, and by its button until the next press."""
    keyboard, button = page.page.keyboard, page.page.locator("#pedal")
    page.evaluate("""() => {
      window.played = [];
      timbrel.player.addEventListener("current", ({ detail }) => played.push(detail.note));
    }""")
    off = lambda: page.evaluate("played.map((note) => note.isOff)")  # noqa: E731
    keyboard.down(" ")
    assert button.get_attribute("aria-pressed") == "true"
    keyboard.press("a")
    keyboard.press("d")
    assert off() == [False, False]
    keyboard.press("a")  # struck again, as on a piano
    assert off() == [True, False, False]
    keyboard.up(" ")
    assert off() == [True] * 3 and button.get_attribute("aria-pressed") == "false"
    button.click()
    keyboard.press("g")
    keyboard.down("h")
    assert off()[3:] == [False, False]
    button.click()
    assert off()[3:] == [True, False]  # a key that is down sounds on
    keyboard.up("h")
    button.click()
    keyboard.press("a")
    keyboard.press("Escape")
    assert off()[4:] == [True, True] and button.get_attribute("aria-pressed") == "false"


@pytest.mark.shared_page
def test_the_pedal_on_the_page_holds_notes_of_a_midi_keyboard_too(page: Any) -> None:
    found = page.evaluate("""() => {
      const send = (...bytes) => timbrel.midi.receiver.take(bytes);
      const strike = (key) => (send(0x90, key, 90), timbrel.player.current);
      document.getElementById("pedal").click();
      send(0xb0, 64, 127);
      const [first, second] = [strike(60), strike(64)];
      for (const key of [60, 64]) send(0x80, key, 0);
      send(0xb0, 64, 0);
      const third = strike(60);
      const found = [first.isOff, second.isOff];
      send(0x80, 60, 0);
      document.getElementById("pedal").click();
      return [found, [first, second, third].map((note) => note.isOff)];
    }""")
    assert found == [[True, False], [True] * 3]


@pytest.mark.parametrize("touch", [False, True])
def test_the_wheel_bends_what_is_held_and_springs_back(open_page: Any, touch: bool) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    page = open_page(**(phone if touch else {}))
    page.unlock()
    page.evaluate("""() => {
      window.bends = [];
      const { setBend } = timbrel.audio;
      timbrel.audio.setBend = (id, cents) => (bends.push(cents), setBend.call(timbrel.audio, id, cents));
      window.last = () => bends.at(-1) ?? 0;
    }""")
    page.page.keyboard.down("a")
    box = page.page.locator("#wheel").bounding_box()
    middle, end = box["x"] + box["width"] / 2, box["x"] + box["width"] - 4
    across = box["y"] + box["height"] / 2
    if touch:
        finger = page.page.context.new_cdp_session(page.page)
        send = lambda kind, *at: finger.send(  # noqa: E731
            "Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": across} for x in at]}
        )
        send("touchStart", middle)
        send("touchMove", (middle + end) / 2)
        send("touchMove", end)
    else:
        page.page.mouse.move(middle, across)
        page.page.mouse.down()
        page.page.mouse.move(end, across, steps=4)
    page.until("last() === 200")
    page.page.keyboard.down("d")  # a note that begins meanwhile
    page.until(
        "timbrel.player.current.request.pitch === 64 && bends.filter((each) => each === 200).length === 2"
    )
    page.page.keyboard.up("a")
    assert page.evaluate("last()") == 200  # a letter that comes up is no hand on the wheel
    if touch:
        send("touchEnd")
    else:
        page.page.mouse.up()
    page.until("last() === 0 && document.getElementById('wheel').value === '0'")
    page.evaluate("timbrel.notes.bend(timbrel.player.current, 2390), timbrel.notes.turn(200)")
    assert page.evaluate("bends.at(-1)") == 2400  # no further, as by a MIDI keyboard
    page.evaluate("timbrel.notes.bend(timbrel.player.current, 0), timbrel.notes.turn(0)")
    page.page.locator("#wheel").focus()
    page.page.keyboard.down("ArrowRight")
    page.until("last() > 0")
    page.page.keyboard.up("ArrowRight")
    assert page.evaluate("last()") == 0


def test_the_wheel_springs_back_while_another_finger_scrolls_the_page(open_page: Any) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    box = page.page.locator("#wheel").bounding_box()
    end = (box["x"] + box["width"] - 4, box["y"] + box["height"] / 2)
    finger = page.page.context.new_cdp_session(page.page)

    def send(kind: str, **at: tuple[float, float]) -> None:
        points = [{"x": x, "y": y, "id": int(name[1:])} for name, (x, y) in at.items()]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    send("touchStart", f1=(60, 650))
    for y in (630, 610, 590):
        send("touchMove", f1=(60, y))
    page.until("document.querySelector('.stage').scrollTop > 0")
    send("touchStart", f1=(60, 590), f2=end)
    page.until("document.getElementById('wheel').value > 100")
    send("touchEnd", f2=end)
    page.until("document.getElementById('wheel').value === '0'")
    send("touchEnd", f1=(60, 590))


def test_a_lock_keeps_the_seed_and_without_it_every_note_has_its_own(page: Any) -> None:
    seeds = []
    for _ in range(2):
        page.click(0.3, -0.3)
        seeds.append(page.evaluate("timbrel.player.current.request.seed"))
    assert seeds[0] == seeds[1] == 1
    page.page.locator("#seed-lock").click()
    for _ in range(2):
        page.click(0.3, -0.3)
        seeds.append(page.evaluate("timbrel.player.current.request.seed"))
    assert len(set(seeds)) == 3
    assert page.page.locator("#seed").input_value() == str(seeds[-1])


@pytest.mark.shared_page
def test_a_and_b_are_played_and_gone_between(page: Any) -> None:
    a, b = page.instrument("Violin"), page.instrument("Oboe")
    page.click(*a)
    page.page.locator("#set-a").click()
    page.click(*b)
    page.page.locator("#set-b").click()
    page.page.locator("#play-a").click()
    assert page.page.locator("#place").inner_text() == "Violin"
    page.page.locator("#blend").fill("0.5")
    state = page.state()
    np.testing.assert_allclose([state["x"], state["y"]], (np.array(a) + np.array(b)) / 2, atol=2e-4)


@pytest.mark.shared_page
def test_the_picture_of_the_note_fills_as_it_comes(page: Any) -> None:
    page.until_painted()
    page.evaluate("window.picture = () => document.getElementById('scope').toDataURL()")
    page.evaluate("window.blank = picture(); null")
    page.click(*page.instrument("Violin"))
    page.until("timbrel.player.current?.complete")
    page.until("picture() !== blank")


@pytest.mark.shared_page
def test_a_line_goes_over_the_picture_as_long_as_the_note_sounds(page: Any) -> None:
    """Whether it comes from the server or from the cache; and the marker glows as loud as it is."""
    page.evaluate("([x, y]) => timbrel.state.set({ x, y, s: 4 })", page.instrument("Violin"))
    page.evaluate(_LOOK)
    at_rest = "seen.at(-1)[0] === -1 && seen.at(-1)[1] === 0"
    page.until(at_rest)
    for cached in (False, True):
        page.evaluate("seen.splice(0, seen.length - 1)")
        page.page.locator("#play").click()
        page.until("seen.filter(([place]) => place >= 0).some(([place], _, all) => place > all[0][0] + 5)")
        page.until("seen.some(([, glow]) => glow > 0.2)")
        page.until("timbrel.player.current.complete")
        assert page.evaluate("timbrel.player.current.cached") == cached
        page.page.keyboard.press("Escape")
        page.until(f"timbrel.player.current.over && {at_rest}")
    page.evaluate("delete window.seen")


@pytest.mark.shared_page
def test_the_map_is_painted_anew_only_where_it_changed(page: Any) -> None:
    painted = page.evaluate("""() => {
      let count = 0;
      timbrel.disc.redraw = () => (count += 1);
      return [{ p: 61, v: 90, seed: 7 }, { x: 0.1 }, { a: [0.1, 0.2] }].map((patch) => {
        timbrel.state.set(patch);
        return count;
      });
    }""")
    assert painted == [0, 1, 2]


@pytest.mark.shared_page
def test_the_picture_of_a_long_note_is_drawn_of_so_many_points_at_most(page: Any) -> None:
    """Of 32 s, 3,000 columns; and its loudest sample is among them, wherever it lies."""
    drawn = page.evaluate("""async () => {
      const { Scope } = await import("/static/scope.js");
      const canvas = document.createElement("canvas");
      canvas.style.cssText = "position: fixed; width: 300px; height: 100px";
      document.body.append(canvas);
      const theme = Object.assign(new EventTarget(), { shade: "dark", ink: () => ({}) });
      const scope = new Scope(canvas, theme);
      const samples = new Float32Array(32 * 48000);
      samples[1001 * 512 + 7] = 0.9;
      samples[3000 * 512 - 1] = -0.8;
      const note = Object.assign(new EventTarget(), { request: { seconds: 32 }, sampleRate: 48000, samples });
      scope.follow(Object.assign(note, { length: samples.length, complete: true }));
      let points;
      scope.context.beginPath = () => (points = []);
      scope.context.lineTo = (...point) => points.push(point);
      while (scope.columns < 3000) await new Promise(requestAnimationFrame);
      canvas.remove();
      return [scope.columns, scope.peak, points];
    }""")
    columns, peak, points = drawn
    across, down = np.array(points).T
    assert (columns, round(peak, 6)) == (3000, 0.9) and len(points) <= 4096
    assert across[down.argmin()] == pytest.approx(300 * 1001 / 3000, abs=0.3)
    assert across[down.argmax()] == pytest.approx(300 * 2999 / 3000, abs=0.3)


@pytest.mark.shared_page
def test_a_key_of_the_map_is_let_go_wherever_it_comes_up(page: Any) -> None:
    page.set(s="hold")
    page.evaluate("window.isOff = () => timbrel.player.current.isOff; null")
    leaving = ("Tab", "/")
    for key in leaving:
        page.page.locator("#disc").focus()
        page.page.keyboard.down("Enter")
        assert not page.evaluate("isOff()")
        page.page.keyboard.press(key)
        assert page.evaluate("isOff()"), key
        page.page.keyboard.up("Enter")
    page.page.locator("#disc").focus()
    page.page.keyboard.down("Enter")
    page.evaluate("timbrel.state.set({ s: 2 })")  # as undo may
    page.page.keyboard.up("Enter")
    assert page.evaluate("isOff()")
    page.evaluate("timbrel.state.set({ s: 'hold' })")
    page.evaluate("document.getElementById('play').setPointerCapture = () => {}")
    pointer = "(type) => document.getElementById('play').dispatchEvent(new PointerEvent(type, { button: 0 }))"
    page.evaluate(pointer, "pointerdown")
    assert not page.evaluate("isOff()")
    page.evaluate("timbrel.state.set({ s: 2 })")
    page.evaluate(pointer, "pointercancel")
    assert page.evaluate("isOff()")
    page.evaluate("delete document.getElementById('play').setPointerCapture")


@pytest.mark.shared_page
def test_what_a_mouse_holds_is_let_go_when_the_window_is_left(page: Any) -> None:
    """Its button comes up elsewhere, which no page hears of: one that comes back with it up only hovers."""
    page.set(s="hold")
    page.page.locator("#previews").uncheck()
    for where in ("#disc", "#play", ".key[data-pitch='60']"):
        page.page.locator(where).hover(position={"x": 20, "y": 20} if where == "#play" else None)
        page.page.mouse.down()
        assert page.evaluate("timbrel.player.current !== window.note"), where
        page.evaluate("window.note = timbrel.player.current")
        assert page.evaluate("note && !note.isOff"), where
        page.evaluate("window.dispatchEvent(new Event('blur'))")
        assert page.evaluate("note.isOff"), where
        before = page.state()
        page.page.locator(where).hover(position={"x": 12, "y": 25})
        page.page.locator(".key[data-pitch='64']").hover()
        assert page.evaluate("timbrel.player.current === note") and page.state() == before, where
        page.page.mouse.up()
    page.page.locator("#previews").check()
    page.wait_for_silence()


def test_a_press_that_turns_into_something_else_leaves_all_as_it_was(page: Any) -> None:
    page.page.locator("#seed-lock").click()
    page.click(*page.instrument("Oboe"))
    before = page.state()
    for pinches in (True, False):
        page.evaluate(_PRESS, pinches)
        assert page.state() == before
    page.page.keyboard.press("Control+z")
    assert page.state()["x"] != before["x"]  # what is undone is the step before
    page.page.keyboard.press("Control+Shift+z")
    assert page.state() == before


@pytest.mark.shared_page
def test_a_pinch_goes_on_with_other_fingers_where_it_was(page: Any) -> None:
    zooms = page.evaluate("""() => {
      const disc = document.getElementById("disc");
      const { left, top } = disc.getBoundingClientRect();
      const touch = (type, pointerId, x, y) => {
        const place = { clientX: left + x, clientY: top + y };
        const finger = { pointerId, pointerType: "touch", bubbles: true, ...place };
        disc.dispatchEvent(new PointerEvent(type, finger));
        return timbrel.disc.view.zoom;
      };
      touch("pointerdown", 11, 300, 300);
      touch("pointerdown", 12, 340, 300);
      const before = touch("pointermove", 12, 380, 300);
      touch("pointerdown", 13, 600, 600);
      touch("pointerup", 11, 300, 300);
      const after = touch("pointermove", 13, 601, 600);
      touch("pointerup", 12, 380, 300);
      touch("pointerup", 13, 601, 600);
      return [before, after];
    }""")
    assert zooms[0] == 2 and abs(zooms[1] - 2) < 0.1
    page.wait_for_silence()


def test_letters_are_named_as_they_are_printed_on_the_keyboard(page: Any) -> None:
    hint = page.page.locator(".piano-hint")
    assert hint.inner_text() == "A\u2009\u2013\u2009' play, Z and X shift the octave, Space pedals"
    page.page.add_init_script("""
      const french = { KeyA: "q", KeyW: "z", KeyZ: "w", Semicolon: "m", Quote: "ù", KeyS: "s" };
      Object.defineProperty(navigator, "keyboard", {
        value: { getLayoutMap: async () => new Map(Object.entries(french)) },
      });
    """)
    page.page.reload()
    page.page.locator(".key[data-pitch='60']", has_text="Q").wait_for()
    assert hint.inner_text() == "Q\u2009\u2013\u2009Ù play, W and X shift the octave, Space pedals"
    keys = {
        pitch: page.page.locator(f".key[data-pitch='{pitch}']").inner_text() for pitch in (61, 62, 64, 76)
    }
    assert keys == {61: "Z", 62: "S", 64: "D", 76: "M"}
    assert page.page.locator("#help-page kbd[data-code=KeyW]").text_content() == "Z"


def test_letters_are_learned_from_presses_where_the_browser_does_not_tell_them(unopened: Any) -> None:
    page = unopened
    page.page.add_init_script("Object.defineProperty(navigator, 'keyboard', { value: undefined })")
    page.open()
    hint = page.page.locator(".piano-hint")
    for code, key in (("KeyS", "s"), ("KeyQ", "a"), ("KeyW", "z"), ("Semicolon", "m"), ("Digit2", "é")):
        page.evaluate(
            "(options) => dispatchEvent(new KeyboardEvent('keydown', options))", {"code": code, "key": key}
        )
    assert hint.inner_text() == "Q\u2009\u2013\u2009' play, W and X shift the octave, Space pedals"
    keys = {
        pitch: page.page.locator(f".key[data-pitch='{pitch}']").inner_text() for pitch in (60, 61, 62, 76)
    }
    assert keys == {60: "Q\nC4", 61: "Z", 62: "S", 76: "M"}


@pytest.mark.shared_page
def test_letters_are_let_go_with_the_command_key_and_repeat_nothing_else(page: Any) -> None:
    found = page.evaluate("""() => {
      const send = (type, options) => {
        const event = new KeyboardEvent(type, { bubbles: true, cancelable: true, ...options });
        document.body.dispatchEvent(event);
        return event.defaultPrevented;
      };
      const quote = { code: "Quote", key: "'" };
      const isTaken = [send("keydown", quote), send("keydown", { ...quote, repeat: true })];
      const note = timbrel.player.current;
      send("keydown", { code: "MetaLeft", key: "Meta" });
      send("keyup", { code: "MetaLeft", key: "Meta" }); // macOS told of no letter that came up
      return { isTaken, isOff: note.isOff };
    }""")
    assert found == {"isTaken": [True, True], "isOff": True}


def test_a_mixer_that_did_not_load_is_asked_for_again(open_page: Any) -> None:
    page = open_page()
    page.evaluate("""() => {
      const { addModule } = AudioWorklet.prototype;
      AudioWorklet.prototype.addModule = async function () {
        AudioWorklet.prototype.addModule = addModule;
        throw new DOMException("Unable to load a worklet's module.", "AbortError");
      };
    }""")
    page.page.keyboard.press("Shift")
    page.page.locator(".message", has_text="sound did not start").wait_for()
    page.unlock()
    page.page.locator(".message").wait_for(state="detached")
