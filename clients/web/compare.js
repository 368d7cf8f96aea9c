// Two points side by side: set A and B, play them in turn, or go from one to the other.

import { fill } from "./controls.js";
import { round } from "./state.js";

const $ = (id) => document.getElementById(id);

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
    fill($("blend"));
    this.player.strike({}, { held: false });
  }

  #blend() {
    const { a, b } = this.state.values;
    const part = Number($("blend").value);
    this.state.set({ x: round(a[0] + (b[0] - a[0]) * part, 4), y: round(a[1] + (b[1] - a[1]) * part, 4) });
    fill($("blend"));
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
    fill($("blend"));
    const words =
      a || b
        ? [a && `A: ${this.placeWords(...a).replace("Between ", "")}`, b && `B: ${this.placeWords(...b).replace("Between ", "")}`].filter(Boolean).join(" · ")
        : "Set two points; then go between them.";
    $("ab-words").textContent = $("ab-words").title = words;
  }
}
