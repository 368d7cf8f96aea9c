// The sliders of the sound: they follow the state, and the state follows them.

import { secondsName } from "./names.js";
import { drawSeed } from "./state.js";

const $ = (id) => document.getElementById(id);

export class Controls {
  #seconds = 2; // to come back to from "hold"

  constructor(state, player, model) {
    this.state = state;
    this.player = player;
    [$("velocity").min, $("velocity").max] = model.velocity;
    [$("seconds").min, $("seconds").max] = [Math.max(0.15, model.seconds[0]), model.seconds[1]];
    this.#slider("velocity", "v");
    this.#slider("seconds", "s");
    this.#slider("temperature", "t");
    $("hold").addEventListener("change", () => this.#hold($("hold").checked));
    $("seed").addEventListener("change", () => this.#seed($("seed").value));
    $("seed").addEventListener("keydown", ({ key }) => key === "Enter" && $("seed").blur());
    $("seed-lock").addEventListener("click", () => this.#lock(!player.locked));
    $("seed-dice").addEventListener("click", () => this.#roll());
    state.addEventListener("change", () => this.#show());
    this.#show();
  }

  #slider(id, key) {
    const input = $(id);
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
    const { v, s, seed, t } = this.state.values;
    this.#place("velocity", v, String(v));
    this.#place("temperature", t, t.toFixed(2));
    this.#place("seconds", s === "hold" ? this.#seconds : s, secondsName(s));
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

/** Colours a slider's track up to its thumb. */
export function fill(input) {
  const [least, most] = [Number(input.min), Number(input.max)];
  input.style.setProperty("--part", `${(100 * (Number(input.value) - least)) / (most - least || 1)}%`);
}
