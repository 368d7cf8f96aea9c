// Keys that are played: on the piano, on the computer's keyboard and over MIDI.

import { $, fill, remember, remembered } from "./browser.js";
import { MidiInput } from "./midi.js";
import { pitchName } from "./names.js";
import { LETTERS, Piano } from "./piano.js";
import { Tuning } from "./tuning.js";

const CODES = { ";": "Semicolon", "'": "Quote" };
const LETTER_CODES = [...LETTERS].map((letter) => CODES[letter] ?? `Key${letter}`);
const TURNING = /^(Arrow|Page|Home|End)/; // keys that move a slider
const OFFSETS = new Map(LETTER_CODES.map((code, offset) => [code, offset]));

/** The page's lower part: the piano, its octave and volume, and every other way to press its keys. */
export class KeyInput {
  constructor({ model, player, notes, audio, messages, onProgram }) {
    this.piano = new Piano($("keys"), {
      pitches: model.pitch,
      keys: { down: (pitch) => this.#pianoDown(pitch), up: (pitch) => this.held.up("piano", pitch) },
      onOctave: (base) => ($("octave").textContent = pitchName(base)),
    });
    const { bends } = model;
    const onEqual = () => player.state.set({ c: 0 }); // the last key's cents are the map's
    this.tuning = new Tuning($("tuning"), $("tuning-files"), { bends, messages, onEqual });
    this.held = new HeldKeys(player, notes, this.piano, this.tuning);
    const pedal = (this.pedal = new Pedal($("pedal"), this.held));
    new ComputerKeyboard(this.held, this.piano, pedal);
    if (bends) new Wheel($("wheel"), notes);
    else $("wheel-label").hidden = true;
    this.midi = new MidiInput($("midi"), this.held, notes, { bends, messages, onProgram });
    this.audio = audio;
    $("octave").textContent = pitchName(this.piano.base);
    $("octave-down").addEventListener("click", () => this.piano.turn(-1));
    $("octave-up").addEventListener("click", () => this.piano.turn(1));
    $("volume").value = remembered("volume", 0.8);
    $("volume").addEventListener("input", () => this.#setVolume());
    this.#setVolume();
    addEventListener("blur", () => this.held.release("piano")); // MIDI is heard in whatever window one works
  }

  /** Every key and pedal comes up. */
  release() {
    this.midi.release();
    this.held.release();
    this.pedal.up();
  }

  #pianoDown(pitch) {
    if (isWriting(document.activeElement)) document.activeElement.blur(); // letters play again
    this.held.down("piano", pitch);
  }

  #setVolume() {
    const volume = Number($("volume").value);
    fill($("volume"));
    $("volume").setAttribute("aria-valuetext", `${Math.round(100 * volume)} %`);
    this.audio.setVolume(volume ** 2 / 0.64); // 0.8 is as the model has it
    remember("volume", volume);
  }
}

/** Which keys are held, each press with a note of its own. */
class HeldKeys {
  #held = new Map(); // source and pitch to note
  #pedalled = new Map(); // notes that the page's pedal holds, each with its key
  #isPedalDown = false;
  #chord = { notes: [], requests: [] }; // what went down together, and is down

  constructor(player, notes, piano, tuning) {
    this.player = player;
    this.notes = notes;
    this.piano = piano;
    this.tuning = tuning;
  }

  /**
   * A key goes down; `source` tells apart two ways of pressing the same key, `place` where it sounds. Returns its note,
   * if it has one.
   */
  down(source, pitch, velocity, place = this.tuning.place(pitch)) {
    const name = `${source} ${pitch}`;
    if (this.#held.has(name) || !place) return null;
    const down = new Set(this.#held.values());
    if (!this.#chord.notes.every((note) => down.has(note))) this.#chord = { notes: [], requests: [] };
    this.#endPedalled(pitch); // struck again, as on a piano
    const note = this.player.key(place, velocity, this.#chord.requests);
    if (!note) return null;
    this.#chord.notes.push(note);
    this.#held.set(name, note);
    this.piano.mark(pitch, true);
    return note;
  }

  /** A key goes up, and its note ends, unless a pedal holds it. */
  up(source, pitch, pedalled = false) {
    const name = `${source} ${pitch}`;
    const note = this.#held.get(name);
    if (!note) return;
    this.#held.delete(name);
    this.piano.mark(pitch, false);
    if (!pedalled) this.end(note, pitch);
  }

  /** A note of a key that is up ends, unless the page's pedal holds it. */
  end(note, pitch) {
    if (this.#isPedalDown) this.#pedalled.set(note, pitch);
    else this.notes.off(note);
  }

  /** The page's pedal, which is every key's. */
  pedal(down) {
    this.#isPedalDown = down;
    if (!down) this.#endPedalled();
  }

  #endPedalled(only = null) {
    for (const [note, pitch] of this.#pedalled) {
      if (only !== null && pitch !== only) continue;
      this.#pedalled.delete(note);
      this.notes.off(note);
    }
  }

  /** Keys come up: those of one source, or all. */
  release(only = null) {
    for (const name of [...this.#held.keys()]) {
      const [source, pitch] = name.split(" ");
      if (only === null || source === only) this.up(source, Number(pitch));
    }
  }
}

/** The pedal on the page: a press puts it down, the next one up; the space bar has it down for as long as it is. */
class Pedal {
  #isPressed = false;
  #isHeld = false;

  constructor(button, held) {
    this.button = button;
    this.held = held;
    button.addEventListener("click", () => this.#set(!this.#isPressed, this.#isHeld));
  }

  hold(down) {
    this.#set(this.#isPressed, down);
  }

  up() {
    this.#set(false, false);
  }

  #set(isPressed, isHeld) {
    [this.#isPressed, this.#isHeld] = [isPressed, isHeld];
    const down = isPressed || isHeld;
    this.button.setAttribute("aria-pressed", String(down));
    this.held.pedal(down);
  }
}

/** The pitch wheel on the page: in the middle again as soon as it is let go of. */
class Wheel {
  constructor(input, notes) {
    this.input = input;
    this.notes = notes;
    input.addEventListener("input", () => this.#turn(Number(input.value)));
    // Of a finger that comes while another scrolls the page, a browser tells by touches alone.
    const ends = ["pointerup", "pointercancel", "touchend", "touchcancel", "blur"];
    for (const type of ends) input.addEventListener(type, () => this.#turn(0));
    input.addEventListener("keyup", ({ key }) => TURNING.test(key) && this.#turn(0)); // letters play meanwhile
  }

  #turn(cents) {
    this.input.value = cents;
    this.input.setAttribute("aria-valuetext", `${cents / 100} semitones`);
    this.notes.turn(cents);
  }
}

/** The letters of the computer's keyboard as piano keys, by their place and not by what is printed on them. */
class ComputerKeyboard {
  #down = new Map(); // code to the pitch it plays
  #learned = new Map(); // code to the letter it prints, where that is another than in the US

  constructor(held, piano, pedal) {
    this.held = held;
    this.piano = piano;
    this.pedal = pedal;
    $("computer-keys").checked = this.enabled = remembered("letters", true) !== false;
    $("computer-keys").addEventListener("change", ({ target }) => {
      this.enabled = target.checked;
      remember("letters", target.checked);
    });
    addEventListener("keydown", (event) => this.#pressed(event));
    addEventListener("keyup", (event) => {
      if (event.key === "Meta") this.#allUp(); // macOS tells of no letter that comes up before it
      else this.#released(event.code);
    });
    addEventListener("blur", () => this.#allUp());
    this.#printLetters();
  }

  /** Names the keys by what is printed on them, as a browser tells or presses show; the page has the letters of the US. */
  async #printLetters() {
    const layout = await navigator.keyboard?.getLayoutMap?.().catch(() => null);
    if (layout) this.#print(layout);
    else addEventListener("keydown", (event) => this.#learn(event));
  }

  #print(layout) {
    const printed = (code, otherwise) => layout.get(code)?.toUpperCase() ?? otherwise;
    this.piano.print(LETTER_CODES.map((code, offset) => printed(code, LETTERS[offset])));
    for (const each of document.querySelectorAll("[data-code]")) {
      each.textContent = printed(each.dataset.code, each.textContent);
    }
  }

  /** A key that prints another letter than in the US has changed places with that one's, as on AZERTY and QWERTZ. */
  #learn({ code = "", key = "", altKey, ctrlKey, metaKey }) {
    const letter = key.toUpperCase();
    const usual = code.replace("Key", "");
    if (!/^\p{L}$/u.test(key) || altKey || ctrlKey || metaKey || letter === (this.#learned.get(code) ?? usual)) return;
    this.#learned.set(code, letter);
    if (!this.#learned.has(`Key${letter}`) && usual.length === 1) this.#learned.set(`Key${letter}`, usual);
    this.#print(this.#learned);
  }

  #pressed(event) {
    if (!this.enabled || event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target)) return;
    if (event.code === "KeyZ" || event.code === "KeyX") {
      if (!event.repeat) this.piano.shift(event.code === "KeyZ" ? -1 : 1);
      return;
    }
    if (event.code === "Space") {
      if (event.target.closest("button, input, a, label")) return; // which it presses
      event.preventDefault();
      this.pedal.hold(true);
      return;
    }
    const offset = OFFSETS.get(event.code);
    if (offset === undefined) return;
    event.preventDefault(); // of its repeats, too: Firefox would search for an apostrophe
    if (event.repeat || this.#down.has(event.code)) return;
    const pitch = this.piano.base + offset;
    this.#down.set(event.code, pitch);
    this.held.down("computer", pitch);
  }

  #released(code) {
    if (code === "Space") this.pedal.hold(false);
    const pitch = this.#down.get(code);
    if (pitch === undefined) return;
    this.#down.delete(code);
    this.held.up("computer", pitch);
  }

  #allUp() {
    for (const code of ["Space", ...this.#down.keys()]) this.#released(code);
  }
}

/** Whether keys that go to this element write something, or choose in a list. */
export function isWriting(element) {
  if (!(element instanceof Element) || element.closest("dialog")) return true;
  if (element.matches("textarea, select, [contenteditable]")) return true;
  return element.matches("input") && !["range", "checkbox", "button"].includes(element.type);
}
