// The controls of the sound, and two points to compare: they follow the state, and the state follows them.

import { $, fill } from "./browser.js";
import { drawSeed, round } from "./state.js";

/** A slider for each field that has one in the page, the seed, and whether notes are held. */
export class Controls {
  #seconds = 2; // to come back to from "hold"

  constructor(state, player, fields) {
    this.state = state;
    this.player = player;
    this.sliders = fields.filter(({ name }) => $(name)?.type === "range");
    for (const field of this.sliders) this.#slider(field);
    $("hold").addEventListener("change", () => this.#hold($("hold").checked));
    $("seed").addEventListener("change", () => this.#seed($("seed").value));
    $("seed").addEventListener("keydown", ({ key }) => key === "Enter" && $("seed").blur());
    $("seed-lock").addEventListener("click", () => this.#lock(!player.locked));
    $("seed-dice").addEventListener("click", () => this.#roll());
    state.addEventListener("change", () => this.#show());
    this.#show();
  }

  #slider({ name, key, least, range, farthest = Infinity }) {
    const input = $(name);
    [input.min, input.max] = [least, Math.min(range[1], farthest)];
    input.addEventListener("input", () => this.state.set({ [key]: Number(input.value) }));
    input.addEventListener("change", () => this.state.keep());
  }

  #hold(on) {
    const now = this.state.get("s");
    if (now !== "hold") this.#seconds = now;
    this.state.set({ s: on ? "hold" : this.#seconds }, { keep: true });
  }

  #seed(text) {
    const seed = Number.parseInt(text, 10);
    if (Number.isFinite(seed)) this.state.set({ seed }, { keep: true });
    this.#show();
  }

  #lock(locked) {
    this.player.locked = locked;
    $("seed-lock").setAttribute("aria-pressed", String(locked));
    $("seed-lock").title = locked ? "Keep the seed: the same note again" : "A new seed for every note";
  }

  #roll() {
    this.state.set({ seed: drawSeed() }, { keep: true });
    this.player.strike({}, { held: false });
  }

  #show() {
    const { values } = this.state;
    const { s, seed } = values;
    for (const { name, key, words } of this.sliders) {
      this.#place(name, values[key] === "hold" ? this.#seconds : values[key], words(values[key]));
    }
    $("seconds").disabled = s === "hold";
    $("hold").checked = s === "hold";
    if (document.activeElement !== $("seed") || $("seed").value === "") $("seed").value = seed;
    else if (Number($("seed").value) !== seed) $("seed").value = seed;
  }

  #place(id, value, words) {
    const input = $(id);
    input.value = value;
    input.setAttribute("aria-valuetext", words);
    fill(input);
    $(`${id}-out`).textContent = words;
  }
}

/** Two points side by side: set A and B, play them in turn, or go from one to the other. */
export class Compare {
  constructor(state, player, disc, placeWords) {
    this.state = state;
    this.player = player;
    this.disc = disc;
    this.placeWords = placeWords;
    for (const side of ["a", "b"]) {
      $(`set-${side}`).addEventListener("click", () => this.#set(side));
      $(`play-${side}`).addEventListener("click", () => this.#play(side));
    }
    $("blend").addEventListener("input", () => this.#blend());
    $("blend").addEventListener("change", () => this.#blended());
    state.addEventListener("change", () => this.#show());
    this.#show();
  }

  #set(side) {
    const { x, y } = this.state.values;
    this.state.set({ [side]: [x, y] }, { keep: true });
  }

  #play(side) {
    const [x, y] = this.state.get(side);
    this.disc.goTo(x, y);
    $("blend").value = side === "a" ? 0 : 1;
    this.#showBlend();
    this.player.strike({}, { held: false });
  }

  #blend() {
    const { a, b } = this.state.values;
    const part = Number($("blend").value);
    this.state.set({ x: round(a[0] + (b[0] - a[0]) * part, 4), y: round(a[1] + (b[1] - a[1]) * part, 4) });
    this.#showBlend();
  }

  #showBlend() {
    fill($("blend"));
    $("blend").setAttribute("aria-valuetext", `${Math.round(100 * Number($("blend").value))} % B`);
  }

  #blended() {
    this.state.keep();
    this.player.strike({}, { held: false });
  }

  #show() {
    const { a, b } = this.state.values;
    $("play-a").disabled = !a;
    $("play-b").disabled = !b;
    $("blend").disabled = !(a && b);
    this.#showBlend();
    const words = (name, point) => point && `${name}: ${this.placeWords(...point).replace("Between ", "")}`;
    const both = [words("A", a), words("B", b)].filter(Boolean).join(" · ");
    $("ab-words").textContent = $("ab-words").title = both || "Set two points; then go between them.";
  }
}
