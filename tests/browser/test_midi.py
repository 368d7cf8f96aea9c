"""What comes over MIDI: notes and pedals, bends, zones and levels; keyboards plugged in and out."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from waiting import wait_for

from browser.explorer_page import SAMPLE_RATE
from timbrel_bundle.yin import Yin, track_pitch

MIDDLE_C = 440.0 * 2 ** (-9 / 12)
WINDOW = 8192
"""Samples that a spectrum is taken of."""

_SAWTOOTH = """(hertz) => {
  const { audio, player: { current } } = timbrel;
  const samples = Float32Array.from({ length: 60 * current.sampleRate }, (_, at) => {
    const turn = ((hertz * at) / current.sampleRate) % 1;
    return 0.1 * (turn - 0.5);
  });
  audio.push(current.id, samples);
}"""
"""A minute of a sound that stays as it is, for the note that was struck last."""

_BENDS = """() => {
  window.bends = [];
  const now = performance.now.bind(performance);
  let [asked, behind, stands] = [now(), 0, null];
  performance.now = () => (asked = stands ?? now() - behind);
  window.stopTime = () => (stands = performance.now());
  window.letTimeGo = () => {
    behind = now() - stands;
    stands = null;
  };
  const bend = timbrel.bridge.bend.bind(timbrel.bridge);
  timbrel.bridge.bend = (id, cents) => {
    bends.push([asked / 1000, cents]);
    bend(id, cents);
  };
}"""
"""Keeps to how many cents the page bends notes, and the moment that it last asked for: that of the bend. Time
stands still for the page between `stopTime` and `letTimeGo`."""

_PLAYER = """() => {
  window.send = (...bytes) => timbrel.midi.take(bytes);
  window.strike = (channel, key) => {
    send(0x90 + channel, key, 100);
    return timbrel.player.current;
  };
}"""

_PEDALS = """() => {
  const computer = timbrel.player.current;
  const found = {};
  send(0xb0, 64, 127);
  const pedalled = strike(0, 60);
  send(0x80, 60, 0);
  const down = strike(0, 64);
  for (const control of [123, 120]) send(0xb1, control, 0);
  send(0xb5, 64, 0);
  found["other channels end nothing"] = !pedalled.isOff && !down.isOff;
  send(0xb0, 123, 0);
  found["the pedal holds when all keys come up"] = !pedalled.isOff && !down.isOff;
  const again = strike(0, 60);
  found["struck again, the note that the pedal held ends"] = pedalled.isOff && !again.isOff;
  send(0x80, 60, 0);
  send(0xb0, 121, 0);
  found["a reset lifts the pedal"] = down.isOff && again.isOff;
  const [caught, later] = [strike(0, 72), (send(0xb0, 66, 127), strike(0, 74))];
  for (const key of [72, 74]) send(0x80, key, 0);
  found["sostenuto holds what was down, and nothing else"] = !caught.isOff && later.isOff;
  send(0xb0, 64, 127);
  send(0xb0, 66, 0);
  found["another pedal holds it on"] = !caught.isOff;
  send(0xb0, 64, 0);
  found["until that comes up"] = caught.isOff;
  const last = strike(0, 76);
  send(0xb0, 66, 127);
  send(0x80, 76, 0);
  send(0xb0, 121, 0);
  found["a reset lifts the pedals"] = last.isOff;
  const soft = [(send(0xb0, 67, 127), strike(0, 79)), (send(0xb0, 67, 0), strike(0, 81))];
  const velocities = soft.map(({ request }) => request.velocity);
  found["a soft pedal softens what is struck meanwhile"] = `${velocities}` === "75,100";
  send(0xb0, 67, 127);
  send(0xb0, 121, 0);
  found["a reset lifts it, too"] = strike(0, 83).request.velocity === 100;
  for (const control of [123, 124, 125, 126, 127]) {
    const note = strike(0, 62);
    send(0xb0, control, 0);
    found[`${control} ends notes`] = note.isOff;
  }
  for (const [control, value] of [[101, 0], [100, 6], [6, 3]]) send(0xb0, control, value);
  send(0xb0, 64, 127);
  const member = strike(2, 67);
  send(0x82, 67, 0);
  found["a zone's pedal holds its members"] = !member.isOff;
  send(0xb0, 64, 0);
  found["and lets them go"] = member.isOff;
  strike(0, 65);
  send(0xb0, 120, 0);
  found["all sound off leaves none that is being written"] = timbrel.bridge.live === 1;
  found["the computer's key is held all the while"] = !computer.isOff;
  return found;
}"""

_MEMBERS = """() => {
  const heard = new Map();
  const names = ["bend", "setGain", "setBrightness"];
  for (const name of names) timbrel.notes[name] = (note, value) => heard.set(`${note.id} ${name}`, value);
  const of = ({ id }) => names.map((name) => heard.get(`${id} ${name}`) ?? null);
  for (const [control, value] of [[101, 0], [100, 6], [6, 3]]) send(0xb0, control, value);
  const first = strike(1, 60);
  send(0x81, 60, 0);
  send(0xe1, 0, 72);
  send(0xd1, 127);
  send(0xb1, 74, 127);
  const second = strike(1, 64);
  const found = { first: of(first), second: of(second) };
  send(0xe0, 0, 96);
  return { ...found, later: of(first) };
}"""

_KEY_PRESSURE = """(member) => {
  const gains = new Map();
  timbrel.notes.setGain = ({ id }, value) => gains.set(id, value);
  const gain = ({ id }) => gains.get(id) ?? 1;
  if (member) for (const [control, value] of [[101, 0], [100, 6], [6, 3]]) send(0xb0, control, value);
  send(0xa0 + member, 60, 127);
  const first = strike(member, 60);
  const found = { struck: gain(first) };
  send(0xa0 + member, 60, 127);
  found.pressed = gain(first);
  send(0x80 + member, 60, 0);
  const second = strike(member, 60);
  return { ...found, again: gain(second), before: gain(first) };
}"""

_LEFT = """() => {
  const bends = new Map();
  timbrel.notes.bend = ({ id }, cents) => bends.set(id, cents);
  const configure = (size) => {
    for (const [control, value] of [[101, 0], [100, 6], [6, size]]) send(0xb0, control, value);
  };
  for (const [control, value] of [[101, 0], [100, 0], [6, 12]]) send(0xb0, control, value);
  configure(3);
  send(0xe0, 0, 96);
  const member = strike(1, 60);
  send(0xe1, 0, 72);
  send(0xb0, 64, 127);
  configure(0);
  const left = strike(1, 64);
  send(0x81, 64, 0);
  const found = [bends.get(member.id), bends.get(left.id) ?? 0, left.isOff];
  send(0xe2, 0, 96);
  return [...found, bends.get(strike(2, 67).id)];
}"""

_TUNED = """() => {
  const bends = new Map();
  timbrel.notes.bend = ({ id }, cents) => bends.set(id, cents);
  const choose = (channel, program) => {
    for (const [control, value] of [[101, 0], [100, 3], [6, program]]) send(0xb0 + channel, control, value);
  };
  const tune = (program, ...change) => send(0xf0, 0x7f, 0x7f, 8, 2, program, 1, ...change, 0, 0xf7);
  const sounds = ({ id, request }) => 100 * request.pitch + request.cents + (bends.get(id) ?? 0);
  tune(1, 60, 60, 32);
  tune(2, 60, 59, 64);
  tune(2, 67, 64, 64);
  choose(0, 1);
  const first = strike(0, 60);
  send(0xb0, 96, 0);
  const found = { first: sounds(first) };
  send(0x80, 60, 0);
  for (const [control, value] of [[5, 127], [84, 60]]) send(0xb0, control, value);
  found.glides = sounds(strike(0, 67));
  for (const [control, value] of [[101, 0], [100, 6], [6, 3]]) send(0xb0, control, value);
  found.member = sounds(strike(1, 60));
  return found;
}"""

_RESET = """(reset) => {
  const said = [];
  timbrel.midi.messages.show = (words) => said.push(words);
  const [heard, names] = [{}, ["bend", "setGain", "setBrightness"]];
  for (const name of names) timbrel.notes[name] = (note, value) => ((heard[note.id] ??= {})[name] = value);
  for (const [control, value] of [[101, 0], [100, 0], [6, 12], [7, 0], [11, 64], [74, 127], [64, 127]]) {
    send(0xb0, control, value);
  }
  for (const [control, value] of [[101, 0], [100, 6], [6, 3], [65, 127]]) send(0xb0, control, value);
  send(0xf0, 0x7f, 0x7f, 4, 1, 0, 16, 0xf7);
  send(0xf0, 0x7f, 0x7f, 4, 3, 0, 64, 0xf7);
  send(0xf0, 0x7e, 0x7f, 8, 8, 3, 0x7f, 0x7f, ...Array(12).fill(94), 0xf7);
  send(0xe0, 0, 96);
  const pedalled = strike(0, 60);
  send(0x80, 60, 0);
  send(...reset);
  const after = strike(1, 72);
  send(0xe0, 0, 96);
  const own = strike(0, 72);
  return [pedalled.isOff, heard[after.id] ?? null, heard[own.id], said];
}"""

_OVERLAPPING = """() => {
  let now = performance.now();
  performance.now = () => now;
  const take = (port, ...bytes) => timbrel.midi.take(bytes, port);
  const first = strike(0, 60);
  const second = strike(0, 60);
  take("other", 0x80, 60, 0);
  const found = [second !== first, first.isOff, second.isOff];
  send(0x80, 60, 0);
  found.push(first.isOff, second.isOff);
  take("other", 0x90, 60, 100);
  found.push(timbrel.player.current === second);
  send(0x90, 60, 0);
  found.push(second.isOff);
  const stuck = strike(0, 62); // its end is lost
  now += 1000;
  const again = strike(0, 62);
  now += 100;
  send(0x80, 62, 0);
  found.push(stuck.isOff, again.isOff);
  const pads = [64, 64, 64, 64].map((key) => strike(0, key)); // which say no ends
  found.push(pads.map(({ isOff }) => isOff).join());
  now += 100;
  send(0x80, 64, 0);
  return [...found, timbrel.piano.element.querySelectorAll(".down").length];
}"""

_MISSED = """(messages) => {
  const said = [];
  timbrel.midi.messages.show = (words) => said.push(words);
  for (const bytes of messages) send(...bytes);
  return said;
}"""

_PLUGGED = """async () => {
  const accesses = [];
  navigator.requestMIDIAccess = async () => {
    const input = { id: "7", name: "Keys", state: "connected" };
    accesses.push(Object.assign(new EventTarget(), { inputs: new Map([[input.id, input]]) }));
    return accesses.at(-1);
  };
  const plug = (state) => {
    const access = accesses.at(-1);
    const port = access.inputs.get("7");
    port.state = state;
    const event = Object.assign(new Event("statechange"), { port });
    access.dispatchEvent(event);
    access.onstatechange?.(event);
  };
  const hear = (access, ...bytes) => access.inputs.get("7").onmidimessage?.({ data: bytes });
  await timbrel.midi.connect();
  await timbrel.midi.connect();
  const found = {};
  hear(accesses[0], 0x90, 55, 100);
  found["a first connection is heard no more"] = timbrel.player.current === null;
  send(0x90, 52, 100);
  const other = timbrel.player.current;
  hear(accesses[1], 0x90, 60, 100);
  const down = timbrel.player.current;
  hear(accesses[1], 0xb0, 64, 127);
  hear(accesses[1], 0x90, 64, 100);
  const pedalled = timbrel.player.current;
  hear(accesses[1], 0x80, 64, 0);
  found["keys and pedal hold"] = !down.isOff && !pedalled.isOff;
  plug("disconnected");
  found["unplugged, they let go"] = down.isOff && pedalled.isOff;
  found["another keyboard's keys are held"] = !other.isOff;
  plug("connected");
  hear(accesses[1], 0x90, 60, 100);
  const again = timbrel.player.current;
  found["plugged in again, the key plays"] = again !== pedalled && !again.isOff;
  hear(accesses[1], 0x80, 60, 0);
  found["and the pedal is up"] = again.isOff;
  return found;
}"""


_PLUG_IN = """async () => {
  const input = { id: "7", name: "Keys", state: "connected" };
  navigator.requestMIDIAccess = async () => ({ inputs: new Map([[input.id, input]]) });
  await timbrel.midi.connect();
  window.hear = (...bytes) => input.onmidimessage({ data: bytes });
}"""


def without_gaps(audio: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[windows, WINDOW] of a recording: those that hold no gap, which a busy machine leaves."""
    windows = np.lib.stride_tricks.sliding_window_view(audio, WINDOW)[:: WINDOW // 4]
    peaks = np.abs(windows.reshape(len(windows), -1, 512)).max(axis=2)
    return windows[peaks.min(axis=1) > 0.2 * np.median(peaks)]


@pytest.mark.shared_page
def test_midi_plays_with_velocity_and_pedal(page: Any) -> None:
    take = "(bytes) => timbrel.midi.take(bytes)"
    page.evaluate(take, [0xB0, 64, 127])
    began = time.monotonic()
    page.evaluate(take, [0x90, 57, 40])
    page.evaluate(take, [0x80, 57, 0])
    page.until("timbrel.player.current?.soundedAt")
    assert page.evaluate("timbrel.player.current.request.velocity") == 40
    assert page.evaluate("timbrel.player.current.request.pitch") == 57
    page.page.wait_for_timeout(200)
    assert not page.evaluate("timbrel.player.current.complete")  # the pedal holds it
    page.evaluate(take, [0xB0, 64, 0])
    page.until("timbrel.player.current.complete")
    seconds = page.evaluate("timbrel.player.current.request.seconds")
    assert seconds != 4 and seconds <= time.monotonic() - began + 1.0  # of four: the release was heard
    page.evaluate(take, [0x90, 5, 100])  # further down than notes bend: nothing, and no fault
    page.wait_for_silence()


@pytest.mark.shared_page
def test_a_program_change_goes_to_the_instrument_that_plays_it(page: Any) -> None:
    page.evaluate(_PLAYER)
    sounding = page.evaluate("(({ request: { x, y } }) => [x, y])(strike(0, 60))")
    page.evaluate("send(0xc0, 41)")  # a viola, which the map has not
    assert page.page.locator("#place").inner_text() == "Violin"
    page.evaluate("send(0xc5, 16)")  # of any channel
    assert page.page.locator("#place").inner_text() == "Tonewheel Organ"
    assert page.evaluate(_MISSED, [[0xC9, 0], [0xC0, 127]]) == [
        "MIDI: a program of drums or noises is not performed here."
    ]
    assert page.page.locator("#place").inner_text() == "Tonewheel Organ"
    moved = "timbrel.player.current.request"
    assert [page.evaluate(f"{moved}.x"), page.evaluate(f"{moved}.y")] == sounding  # it sounds on as it is
    page.evaluate("send(0x80, 60, 0); strike(0, 62); send(0x80, 62, 0)")
    place = page.evaluate(
        "(({ request: { x, y } }) => timbrel.disc.nearest(x, y, 1)[0])(timbrel.player.current)"
    )
    assert place["point"]["instrument"] == "Tonewheel Organ"
    page.page.locator("#undo").click()
    assert page.page.locator("#place").inner_text() == "Violin"
    page.wait_for_silence()


@pytest.mark.shared_page
def test_a_key_is_kept_with_its_own_velocity(page: Any) -> None:
    page.set(s="hold", v=100)
    for bytes_ in ([0x90, 64, 37], [0x80, 64, 0]):
        page.evaluate("(bytes) => timbrel.midi.take(bytes)", bytes_)
        page.until("timbrel.player.current.soundedAt")
    page.until("timbrel.player.current.complete")
    page.page.locator("#keep").click()
    [kept] = page.evaluate("JSON.parse(localStorage['timbrel.kept'])")
    assert (kept["pitch"], kept["velocity"]) == (64, 37)
    assert page.page.locator("#keep").get_attribute("aria-pressed") == "true"
    page.page.locator("#velocity").fill("90")  # what would sound now is another
    assert page.page.locator("#keep").get_attribute("aria-pressed") == "false"


@pytest.mark.slow
@pytest.mark.shared_page
def test_midi_bends_notes_each_in_an_mpe_zone_and_sets_their_level(page: Any) -> None:
    """A key of a zone: as it is, bent by its own wheel, by the manager's, and tuned and made softer by it;
    the master volume comes on top."""

    def send(*messages: list[int]) -> None:
        page.evaluate("(all) => all.forEach((bytes) => timbrel.midi.take(bytes))", list(messages))

    def rpn(channel: int, number: int, value: int) -> list[list[int]]:
        return [[0xB0 + channel, *pair] for pair in ((101, 0), (100, number), (6, value), (100, 127))]

    def heard(*before: list[int]) -> tuple[float, float]:
        """The pitch of channel 2's middle C, and the level of its beginning in the loudspeaker beside its
        own: what most of it is below, for a busy machine may leave gaps, where the peak is."""
        send(*before)
        with page.recording() as blocks:
            send([0x91, 60, 100])
            page.until("timbrel.player.current.length > 0.7 * timbrel.player.current.sampleRate")
            page.until_sounded(0.4)
            send([0x81, 60, 0])
            page.until("timbrel.player.current.complete")
            page.wait_for_silence()
        samples = page.written()
        rate = page.evaluate("timbrel.player.current.sampleRate")
        pitch = Yin().measure(samples[round(0.2 * rate) :], rate)
        assert pitch is not None
        begin = slice(round(0.35 * SAMPLE_RATE))
        levels = [np.quantile(np.abs(each[each != 0][begin]), 0.9) for each in (*blocks, samples)]
        return pitch, float(levels[0] / levels[1])

    x, y = page.instrument("Trumpet")
    page.evaluate(f"timbrel.state.set({{ x: {x}, y: {y} }})")
    plain, loudness = heard(*rpn(0, 6, 15))
    own, _ = heard([0xE1, 0, 65])  # 128 steps of 8192, of 48 semitones
    assert own - plain == pytest.approx(0.75, abs=0.1)
    both, _ = heard([0xE0, 0, 96])  # half of the manager's two semitones
    assert both - plain == pytest.approx(1.75, abs=0.1)
    tuned, soft = heard([0xE0, 0, 64], [0xE1, 0, 64], *rpn(1, 1, 32), [0xB0, 7, 50])
    assert tuned - plain == pytest.approx(-0.5, abs=0.1)
    assert soft / loudness == pytest.approx(0.25, rel=0.1)
    _, softest = heard([0xF0, 0x7F, 0x7F, 4, 1, 65, 90, 0xF7])  # 0.71 of the most
    assert softest / soft == pytest.approx(0.5, rel=0.1)
    send([0xB1, 71, 3])
    page.until_said("controller 71 is not performed")


@pytest.mark.shared_page
def test_a_bend_is_heard_in_what_the_server_has_written_already(page: Any) -> None:
    """The server is not told of the bend: what comes of it is the page's own."""
    x, y = page.instrument("Clarinet")
    page.evaluate(f"timbrel.state.set({{ x: {x}, y: {y} }})")
    page.evaluate("timbrel.bridge.bend = () => {}")
    page.evaluate("timbrel.midi.take([0x90, 69, 100])")
    page.until("timbrel.player.current?.soundedAt")
    pitches = []
    for bytes_ in ([0xE0, 0, 64], [0xE0, 0, 96], [0xE0, 0, 32]):  # and a semitone either way
        page.evaluate("(bytes) => timbrel.midi.take(bytes)", bytes_)
        with page.recording() as blocks:
            page.until_sounded(0.5)
        sound = blocks[0][blocks[0] != 0][SAMPLE_RATE // 10 :]  # it is there by then, however late it was
        pitches.append(Yin().measure(sound, SAMPLE_RATE))
    assert np.diff(pitches) == pytest.approx([1.0, -2.0], abs=0.1), pitches
    page.evaluate("timbrel.midi.take([0x80, 69, 0])")


@pytest.mark.shared_page
def test_midi_slides_and_pressure_make_notes_brighter(page: Any) -> None:
    """One note, first as it is, then with its slide up and down; the slide leaves its level as it was. It is
    no server's, whose notes are not as steady."""

    def send(*messages: list[int]) -> None:
        page.evaluate("(all) => all.forEach((bytes) => timbrel.midi.take(bytes))", list(messages))

    def heard() -> tuple[float, float]:
        """The high partials beside the low ones, and the level, in dB, of what is heard once it is steady."""
        with page.recording() as blocks:
            page.until_sounded(0.9)
        [audio] = blocks
        begin = np.flatnonzero(audio)[0] + round(0.3 * SAMPLE_RATE)
        windows = without_gaps(audio[begin:].astype(np.float64))
        assert len(windows) >= 4, "hardly anything without a gap was heard"
        power = np.square(np.abs(np.fft.rfft(windows * np.hanning(WINDOW)))).mean(axis=0)
        partial = np.fft.rfftfreq(WINDOW, 1 / SAMPLE_RATE) / MIDDLE_C
        shares = power[partial > 7.5].sum(), power[(partial > 0.5) & (partial < 2.5)].sum()
        level = np.median(np.square(windows).mean(axis=1))
        return 10 * np.log10(shares[0] / shares[1]), 10 * np.log10(level)

    page.evaluate("timbrel.bridge.on = () => true")
    send([0xB0, 101, 0], [0xB0, 100, 6], [0xB0, 6, 2], [0x91, 60, 100])
    page.evaluate(_SAWTOOTH, MIDDLE_C)
    plain = heard()
    found = []
    for gestures in ([[0xB1, 74, 127]], [[0xB1, 74, 0]], [[0xB1, 74, 64], [0xD1, 127]]):
        send(*gestures)
        found.append(np.subtract(heard(), plain))
    print("brightness and level, in dB beside the note as it is:", np.round(found, 1).tolist())
    (bright, bright_level), (dull, dull_level), (pressed, pressed_level) = found
    assert 5.0 < bright < 12.0 and -12.0 < dull < -5.0 and 2.0 < pressed < 6.0
    assert [bright_level, dull_level, pressed_level] == pytest.approx([0.0, 0.0, 6.0], abs=0.8)
    assert "is not performed" not in page.evaluate("document.body.textContent")


@pytest.mark.slow
@pytest.mark.shared_page
def test_midi_vibrates_and_glides(page: Any) -> None:
    """A note without gestures, one with the modulation wheel up, and one that comes from a fifth below."""

    def send(*messages: list[int]) -> None:
        page.evaluate("(all) => all.forEach((bytes) => timbrel.midi.take(bytes))", list(messages))

    def track(key: int, *before: list[int], glides: bool = False) -> npt.NDArray[np.float64]:
        """Cents of a note from its key, from 0.1 s on to 1.6 s, or half a second longer than it glides."""
        send(*before, [0x90, key, 100])
        if glides:
            page.until(f"timbrel.player.current.length > 0.3 * {rate}")
            page.evaluate("letTimeGo()")
            page.until("bends.at(-1)[1] === 0")
            page.until_it_sounds(key + np.median(plain) / 100, within=0.2)
        page.until(f"timbrel.player.current.length > 1.1 * {rate}")
        end = page.evaluate("timbrel.player.current.length") + rate // 2
        page.until(f"timbrel.player.current.length > {end}")
        send([0x80, key, 0])
        page.until("timbrel.player.current.complete")
        page.wait_for_silence()
        found = track_pitch(page.written()[round(0.1 * rate) : end], rate)
        return 1200 * np.log2(found.hertz[found.voiced] / (440 * 2 ** ((key - 69) / 12)))

    rate = page.evaluate("timbrel.model.sample_rate")
    x, y = page.instrument("Trumpet")
    page.evaluate(f"timbrel.state.set({{ x: {x}, y: {y} }})")
    plain, wavering = track(60), track(60, [0xB0, 1, 127])
    page.evaluate(_BENDS)
    page.evaluate("stopTime()")  # until the server has begun: else part of a glide may be over by then
    gliding = track(67, [0xB0, 1, 0], [0xB0, 65, 127], [0xB0, 5, 96], glides=True)
    width = [float(np.ptp(np.percentile(cents, [5, 95]))) / 2 for cents in (plain, wavering)]
    print("half the width without and with modulation, cents:", width, "a glide:", gliding[::20].round())
    assert width[0] < 15.0 and 30.0 < width[1] < 65.0
    assert -720.0 < gliding.min() < -650.0
    assert abs(np.median(gliding[-20:]) - np.median(plain)) < 20.0
    # The page bends the note as time goes by. A busy machine does so late, and then in a leap: but always to
    # where the glide is at that moment.
    moments, cents = np.array(page.evaluate("bends")).T
    seconds = 2.0 * (96 / 127) ** 2
    began = moments[0] - seconds * (1 + cents[0] / 700.0)
    asked = -700.0 * np.maximum(0.0, 1 - (moments - began) / seconds)
    assert cents[0] < -650.0 and (np.diff(cents) > 0.0).all()
    assert np.abs(cents - asked).max() < 1.0, "the glide leaves its line"


@pytest.mark.shared_page
def test_pedals_and_channel_modes_are_each_channels_own_as_in_timbrel_play(page: Any) -> None:
    page.page.keyboard.down("a")
    page.evaluate(_PLAYER)
    found = page.evaluate(_PEDALS)
    page.page.keyboard.up("a")
    assert [what for what, holds in found.items() if not holds] == []


@pytest.mark.shared_page
def test_an_mpe_notes_release_is_not_moved_by_the_next_note_of_its_channel(page: Any) -> None:
    page.evaluate(_PLAYER)
    found = page.evaluate(_MEMBERS)
    assert found["first"] == [None, None, None] and None not in found["second"]
    assert found["second"][0] == 600 and found["later"] == [100, None, None]  # the manager's is for both


@pytest.mark.parametrize("member", [0, 1])
@pytest.mark.shared_page
def test_each_stroke_of_a_key_begins_without_pressure(page: Any, member: int) -> None:
    """On a plain channel, and on one of an MPE zone, where a note that was let go of keeps its own."""
    page.evaluate(_PLAYER)
    found = page.evaluate(_KEY_PRESSURE, member)
    louder = pytest.approx(10 ** (6 / 20))
    assert found == {"struck": 1, "pressed": louder, "again": 1, "before": louder if member else 1}


@pytest.mark.shared_page
def test_an_mpe_zones_ranges_are_its_own_and_gone_with_it(page: Any) -> None:
    page.evaluate(_PLAYER)
    assert page.evaluate(_LEFT) == [0, 0, True, 100]


@pytest.mark.shared_page
def test_of_overlapping_notes_of_a_key_each_sounds_and_the_oldest_ends_first(page: Any) -> None:
    """As sequencers write notes that follow one another without a gap; another port's are its own. A note
    that is stuck ends with the next stroke of its key; of pads that let nothing go two sound."""
    page.evaluate(_PLAYER)
    *found, of_pads, n_down = page.evaluate(_OVERLAPPING)
    assert found == [True, False, False, True, False, True, True, True, True]
    assert (of_pads, n_down) == ("true,true,false,false", 0)


@pytest.mark.shared_page
def test_midi_keys_and_pedals_hold_while_one_works_in_another_window(page: Any) -> None:
    """What comes up there is told by MIDI, too; of the piano's keys it is not."""
    page.evaluate(_PLAYER)
    held = page.evaluate("""() => {
      const midi = strike(0, 60);
      send(0xb0, 64, 127);
      const pedalled = strike(0, 64);
      send(0x80, 64, 0);
      timbrel.piano.keys.down(67);
      const clicked = timbrel.player.current;
      dispatchEvent(new Event("blur"));
      const found = [midi.isOff, pedalled.isOff, clicked.isOff];
      send(0x80, 60, 0);
      found.push(midi.isOff);
      send(0xb0, 64, 0);
      return [...found, midi.isOff, pedalled.isOff];
    }""")
    assert held == [False, False, True, False, True, True]


@pytest.mark.parametrize(
    "body",
    [[0x7E, 0x7F, 9, 1], [0x41, 16, 0x42, 0x12, 0x40, 0, 0x7F, 0, 0x41], [0x43, 16, 0x4C, 0, 0, 0x7E, 0]],
    ids=["General MIDI", "GS", "XG"],
)
@pytest.mark.shared_page
def test_a_reset_of_the_device_puts_everything_back(page: Any, body: list[int]) -> None:
    """A song that faded out leaves no silent keyboard, wide wheel, zone or tuning."""
    page.evaluate(_PLAYER)
    is_off, after, own, said = page.evaluate(_RESET, [0xF0, *body, 0xF7])
    assert (is_off, after, own, said) == (True, None, {"bend": 100}, [])


@pytest.mark.shared_page
def test_bends_of_notes_that_do_not_bend_are_named(page: Any) -> None:
    """As of bundles of other codecs: the server refuses them without a word, since a note may have ended."""
    page.evaluate(_PLAYER)
    page.evaluate(_BENDS)
    page.evaluate("timbrel.midi.receiver.bends = false")
    said = page.evaluate(_MISSED, [[0x90, 60, 100], [0xE0, 0, 96], [0xE0, 0, 97], [0x80, 60, 0]])
    assert said == ["MIDI: what bends or tunes this bundle's notes is not performed here."]
    assert page.evaluate("[timbrel.player.current.changed, bends.length]") == [False, 0]


@pytest.mark.shared_page
def test_keys_are_tuned_and_glide_as_in_timbrel_play(page: Any) -> None:
    """A note keeps the tuning program that its key was struck with, a glide begins at the pitch of the key
    that it comes from, and a zone's keys are in its manager's program."""
    page.evaluate(_PLAYER)
    found = page.evaluate(_TUNED)
    assert found == {"first": 6025, "glides": pytest.approx(5950, abs=5), "member": 5950}


def test_what_is_not_performed_is_named_once_and_what_asks_for_nothing_is_not(page: Any) -> None:
    def control(channel: int, *pairs: tuple[int, int]) -> list[list[int]]:
        return [[0xB0 + channel, *pair] for pair in pairs]

    page.evaluate(_PLAYER)
    # Centres, and data for no parameter; then what a channel is alone with, and a zone's member of its own.
    idle = control(0, (71, 64), (10, 64), (91, 0), (126, 0), (101, 127), (100, 127), (6, 9))
    asked = control(0, (71, 0), (93, 9), (99, 1), (98, 8), (6, 70), (101, 1), (100, 0), (6, 4), (126, 1))
    asked += control(2, (101, 0), (100, 6), (6, 3))
    asked += control(0, (101, 0), (100, 6), (6, 3)) + control(1, (7, 100), (7, 30), (11, 90))
    asked += [*control(5, (101, 0), (100, 0), (6, 96)), [0xE5, 0, 127], [0x95, 60, 100], [0x85, 60, 0]]
    asked += [[0x95, 8, 100], [0x85, 8, 0], [0x95, 121, 100], [0x85, 121, 0]]
    assert page.evaluate(_MISSED, idle) == []
    assert page.evaluate(_MISSED, asked + asked) == [
        f"MIDI: {what} is not performed here."
        for what in (
            "controller 71",
            "controller 93",
            "a non-registered parameter (NRPN)",
            "registered parameter 128",
            "mono mode",
            "an MPE zone on another channel than 1 and 16",
            "volume of single MPE notes",
            "expression of single MPE notes",
            "part of a bend or glide beyond two octaves",
            "a key beyond those of this bundle",
        )
    ]
    page.wait_for_silence()


@pytest.mark.shared_page
def test_a_key_beyond_the_bundles_pitches_is_the_nearest_of_them_bent(page: Any) -> None:
    page.evaluate(_PLAYER)
    lowest, highest = page.evaluate("timbrel.model.pitch")
    for key, pitch in ((lowest - 5, lowest), (highest + 24, highest)):
        asked = page.evaluate(f"strike(0, {key}).request")
        assert (asked["pitch"], asked["cents"]) == (pitch, 100 * (key - pitch))
        page.evaluate(f"send(0x80, {key}, 0)")
    page.wait_for_silence()


@pytest.mark.shared_page
def test_of_more_notes_than_sound_at_once_none_is_written_on_unheard(page: Any) -> None:
    """The mixer has 48 voices: those that made room for others are over at the server, too."""
    page.evaluate(_PLAYER)
    page.evaluate("""() => {
      send(0xb0, 64, 127);
      window.struck = Array.from({ length: 52 }, (_, place) => strike(0, 37 + place));
      for (const { request } of struck) send(0x80, request.pitch, 0);
    }""")
    page.until("struck.slice(0, 4).every(({ over }) => over)")
    assert page.evaluate("[send(0xb0, 1, 0), send(0xb0, 120, 0), timbrel.bridge.live].at(-1)") == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [("NotAllowedError", "MIDI was not allowed: "), ("InvalidStateError", "MIDI did not start: ")],
)
@pytest.mark.shared_page
def test_what_keeps_midi_away_is_told(page: Any, name: str, words: str) -> None:
    page.evaluate(
        "(name) => { navigator.requestMIDIAccess = async () => { throw new DOMException('No.', name); }; }",
        name,
    )
    page.page.locator("#midi").click()
    page.page.locator(".message[data-kind=bad]", has_text=words).wait_for()


@pytest.mark.shared_page
def test_a_keyboard_that_is_unplugged_holds_nothing(page: Any) -> None:
    page.evaluate(_PLAYER)
    found = page.evaluate(_PLUGGED)
    assert [what for what, holds in found.items() if not holds] == []


def test_of_two_tabs_the_one_that_was_used_last_hears_the_keyboard(page: Any) -> None:
    other = page.page.context.new_page()
    other.goto(page.page.url)
    other.wait_for_selector("html[data-ready]")
    down = ".key.down"
    for each in (page.page, other):
        each.evaluate(_PLUG_IN)
    for user, rest in ((other, page.page), (page.page, other), (other, page.page)):
        user.keyboard.press("Shift")
        for each in (page.page, other):
            each.evaluate("hear(0x90, 60, 100)")
        rest.locator(down).wait_for(state="detached")  # at the latest as it hears of the other
        rest.evaluate("hear(0x90, 60, 100)")
        assert (user.locator(down).count(), rest.locator(down).count()) == (1, 0)
    page.page.keyboard.press("Shift")
    other.locator(down).wait_for(state="detached")  # who has it no more holds nothing


def test_of_two_tabs_that_are_taken_up_at_once_one_hears_the_keyboard(page: Any) -> None:
    """As where a browser opens two windows again that it had."""
    tabs = [page.page.context.new_page() for _ in range(2)]
    for tab in tabs:
        tab.goto(page.page.url)
        tab.wait_for_selector("html[data-ready]")
        tab.keyboard.press("Shift")  # it may sound
        tab.evaluate(_PLUG_IN)
    page.page.keyboard.press("Shift")  # neither of them hears it now
    at = tabs[0].evaluate("Date.now() + 1500")
    for tab in tabs:
        tab.evaluate(
            """(at) => {
              const take = () => {
                while (Date.now() < at);
                dispatchEvent(new Event("focus"));
                window.taken = true;
              };
              setTimeout(take, at - Date.now() - 100);
            }""",
            at,
        )
    for tab in tabs:
        wait_for(lambda tab=tab: tab.evaluate("window.taken"), "it to be taken up")  # type: ignore[misc]

    def n_down() -> list[int]:
        for tab in tabs:
            tab.evaluate("hear(0x80, 60, 0)")
            tab.evaluate("hear(0x90, 60, 100)")
        return sorted(tab.locator(".key.down").count() for tab in tabs)

    wait_for(lambda: n_down() == [0, 1], "one of them to hear it", seen=n_down)  # the other may still be told


def test_what_is_played_before_a_page_may_sound_is_not_heard_later(open_page: Any) -> None:
    page = open_page()
    page.evaluate(_PLAYER)
    before = page.evaluate("""() => {
      window.activation = { hasBeenActive: false };
      Object.defineProperty(navigator, "userActivation", { get: () => window.activation });
      for (let key = 40; key < 70; key++) {
        send(0x90, key, 100);
        send(0x80, key, 0);
      }
      return [timbrel.notes.sounding, document.getElementById("messages").textContent];
    }""")
    assert before == [0, "Click the page once, so that it may sound."]
    page.evaluate("window.activation.hasBeenActive = true")
    page.unlock()
    page.page.locator(".message", has_text="Click the page").wait_for(state="detached")
    page.evaluate("strike(0, 60)")
    page.until("timbrel.player.current?.soundedAt")
    assert page.evaluate("timbrel.notes.sounding") == 1
