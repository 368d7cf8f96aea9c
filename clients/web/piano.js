// The piano: mouse, many fingers, arrow keys; dragging slides from key to key.

import { $, element } from "./browser.js";
import { isBlack, pitchName } from "./names.js";
import { clamp } from "./state.js";

const LEAST_KEY = 34; // CSS pixels a white key has, at least
const PRESS = 1000; // milliseconds that a key is down which a screen reader presses
/** The computer's keys that play, from the base on. */
export const LETTERS = "AWSEDFTGYHUJKOLP;'";

/**
 * Keys of `pitches` ([least, most]), as many as fit, from a C on.
 * `keys`: down(pitch) and up(pitch), both for one press each.
 */
export class Piano {
  #pointers = new Map(); // pointer id to pitch
  #down = new Map(); // pitch to how often it is pressed
  #keys = new Map(); // pitch to its button
  #held = null; // by Enter or Space

  constructor(element, { pitches, keys, onOctave }) {
    this.element = element;
    this.pitches = this.reached = pitches;
    this.keys = keys;
    this.onOctave = onOctave;
    this.chosen = 60;
    this.base = 60; // the C where the computer's keys begin
    this.letters = [...LETTERS]; // as they are printed on the computer's keys
    new ResizeObserver(() => this.#layOut()).observe(element);
    element.addEventListener("pointerdown", (event) => this.#pressed(event));
    element.addEventListener("pointermove", (event) => this.#slid(event));
    for (const type of ["pointerup", "pointercancel"]) {
      element.addEventListener(type, (event) => this.#released(event));
    }
    addEventListener("blur", () => {
      for (const pointerId of this.#pointers.keys()) this.#released({ pointerId }); // in another window nobody tells of it
    });
    element.addEventListener("click", (event) => this.#clicked(event));
    element.addEventListener("contextmenu", (event) => event.preventDefault());
    element.addEventListener("keydown", (event) => this.#key(event));
    element.addEventListener("keyup", (event) => this.#keyUp(event));
    element.addEventListener("focusout", () => this.#letGo());
    this.#layOut();
  }

  /** Moves the computer's keys, and the window where not all keys fit. */
  shift(octaves) {
    const [least, most] = this.pitches;
    const base = this.base + 12 * octaves;
    if (base + 11 < least || base > most) return;
    this.base = base;
    this.#layOut();
    this.onOctave(base);
  }

  /** Moves the window by a button; where no letters are shown, not past where it would stay as it is. */
  turn(octaves) {
    const moves = `${this.#ends(this.base + 12 * octaves)}` !== `${this.#ends(this.base)}`;
    if (moves || !isTouched()) this.shift(octaves);
  }

  /** Shows other letters on the keys. */
  print(letters) {
    this.letters = letters;
    this.#layOut();
  }

  /** Marks the pitch that the map plays. */
  choose(pitch) {
    if (pitch === this.chosen && this.#keys.get(pitch)?.classList.contains("chosen")) return;
    const focused = this.element.contains(document.activeElement);
    this.#keys.get(this.chosen)?.classList.remove("chosen");
    this.chosen = pitch;
    this.#keys.get(pitch)?.classList.add("chosen");
    if (!focused) this.#rove(this.#keys.has(pitch) ? pitch : this.#keys.keys().next().value);
  }

  /** Shades the keys beyond these two: nobody taught the instrument how it sounds there. */
  reach(lowest, highest) {
    this.reached = [lowest, highest];
    for (const [pitch, button] of this.#keys) this.#shade(pitch, button);
    $("beyond").hidden = lowest <= this.pitches[0] && highest >= this.pitches[1];
  }

  /** Shows a key down or up, whoever presses it. */
  mark(pitch, down) {
    const count = Math.max(0, (this.#down.get(pitch) ?? 0) + (down ? 1 : -1));
    if (count) this.#down.set(pitch, count);
    else this.#down.delete(pitch);
    this.#keys.get(pitch)?.classList.toggle("down", count > 0);
  }

  #layOut() {
    const [first, last] = this.#ends(this.base);
    const signature = `${first} ${last} ${this.base} ${this.letters}`;
    if (signature === this.signature) return;
    this.signature = signature;
    const focused = this.element.contains(document.activeElement);
    this.#keys.clear();
    const buttons = [];
    const shown = whites(first, last);
    for (let pitch = first; pitch <= last; pitch++) {
      buttons.push(this.#button(pitch, this.letters[pitch - this.base] ?? "", shown));
    }
    this.element.replaceChildren(...buttons);
    const roving = this.#keys.has(this.chosen) ? this.chosen : first;
    this.#rove(roving);
    if (focused) this.#keys.get(roving).focus();
  }

  /**
   * The first and the last key: as many white ones as fit, from the base on where there are enough above it; and a
   * black one at an end of the range.
   */
  #ends(base) {
    const all = whites(...this.pitches);
    const fits = Math.min(all.length, Math.max(8, Math.floor((this.element.clientWidth || 1) / LEAST_KEY)));
    const at = all.findIndex((pitch) => pitch >= base);
    const start = Math.max(0, Math.min(at < 0 ? all.length : at, all.length - fits));
    const first = start === 0 ? this.pitches[0] : all[start];
    return [first, start + fits === all.length ? this.pitches[1] : all[start + fits - 1]];
  }

  #button(pitch, letter, shown) {
    const name = pitch % 12 === 0 ? pitchName(pitch) : "";
    const innerText = [isTouched() ? "" : letter, name].filter(Boolean).join("\n");
    const properties = {
      type: "button",
      tabIndex: -1,
      className: `key ${isBlack(pitch) ? "black" : "white"}`,
      "data-pitch": pitch,
      "aria-label": pitchName(pitch).replace("♯", " sharp "),
    };
    const words = element("span", { "aria-hidden": "true", innerText });
    const button = element("button", properties, element("i"), words);
    button.classList.toggle("chosen", pitch === this.chosen);
    button.classList.toggle("down", this.#down.has(pitch));
    this.#shade(pitch, button);
    if (isBlack(pitch)) {
      const before = shown.filter((white) => white < pitch).length;
      const width = 100 / Math.max(1, shown.length);
      const left = clamp(before * width - width * 0.3, [0, 100 - width * 0.6]); // at an end of the range there is no more room
      button.style.left = `${left}%`;
      button.style.width = `${width * 0.6}%`;
    }
    this.#keys.set(pitch, button);
    return button;
  }

  #shade(pitch, button) {
    const beyond = pitch < this.reached[0] || pitch > this.reached[1];
    button.classList.toggle("beyond", beyond);
    if (beyond) button.setAttribute("aria-describedby", "beyond");
    else button.removeAttribute("aria-describedby");
  }

  #pitchAt(event) {
    const under = document.elementFromPoint(event.clientX, event.clientY)?.closest?.(".key");
    return under && this.element.contains(under) ? Number(under.dataset.pitch) : null;
  }

  #pressed(event) {
    if (event.button !== 0) return;
    const pitch = this.#pitchAt(event);
    if (pitch === null) return;
    event.preventDefault();
    if (event.isTrusted) this.element.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, pitch);
    this.keys.down(pitch);
  }

  #slid(event) {
    if (!this.#pointers.has(event.pointerId)) return;
    const before = this.#pointers.get(event.pointerId);
    const pitch = this.#pitchAt(event);
    if (pitch === before) return;
    this.#pointers.set(event.pointerId, pitch);
    if (before !== null) this.#up(before);
    if (pitch !== null) this.keys.down(pitch);
  }

  #released(event) {
    const pitch = this.#pointers.get(event.pointerId);
    this.#pointers.delete(event.pointerId);
    if (pitch !== undefined && pitch !== null) this.#up(pitch);
  }

  /** A key comes up where nothing else holds it. */
  #up(pitch) {
    if (pitch !== this.#held && ![...this.#pointers.values()].includes(pitch)) this.keys.up(pitch);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const pitch = Number(document.activeElement?.dataset?.pitch);
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    const pitches = [...this.#keys.keys()];
    if (step) this.#focus(pitch + step);
    else if (event.key === "Home") this.#focus(pitches[0]);
    else if (event.key === "End") this.#focus(pitches.at(-1));
    else if (event.key === "Enter" || event.key === " ") this.#hold(pitch, event.repeat);
    else return;
    event.preventDefault();
  }

  #keyUp(event) {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault(); // no click follows
    this.#letGo();
  }

  /** A screen reader presses a key without pointer or keyboard, and never says for how long. */
  #clicked(event) {
    const button = event.target.closest(".key");
    if (event.detail !== 0 || !button) return;
    const pitch = Number(button.dataset.pitch);
    this.keys.down(pitch);
    setTimeout(() => this.#up(pitch), PRESS);
  }

  #hold(pitch, repeat) {
    if (repeat || this.#held !== null) return;
    this.#held = pitch;
    this.keys.down(pitch);
  }

  #letGo() {
    const held = this.#held;
    this.#held = null;
    if (held !== null) this.#up(held);
  }

  #focus(pitch) {
    if (!this.#keys.has(pitch)) return;
    this.#rove(pitch);
    this.#keys.get(pitch).focus();
  }

  /** One key is in the order of tabs. */
  #rove(pitch) {
    for (const [other, button] of this.#keys) button.tabIndex = other === pitch ? 0 : -1;
  }
}

/** Whether fingers play it, and letters are not shown. */
function isTouched() {
  return matchMedia("(hover: none)").matches;
}

function whites(first, last) {
  return Array.from({ length: last - first + 1 }, (_, index) => first + index).filter((pitch) => !isBlack(pitch));
}
