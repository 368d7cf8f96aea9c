// Light, dark, or as the system has it; and the canvas' colours, which come from the style sheet.

import { remember, remembered } from "./storage.js";

const NAMES = { system: "as the system", light: "light", dark: "dark" };
const INKS = "disc grid rim ticks halo text label muted accent glow clear line".split(" ");

/** Event: `change`. */
export class Theme extends EventTarget {
  #system = matchMedia("(prefers-color-scheme: dark)");
  #still = matchMedia("(prefers-reduced-motion: reduce)");
  #inks = null;

  constructor(button) {
    super();
    this.choice = remembered("theme", "system");
    if (!(this.choice in NAMES)) this.choice = "system";
    this.button = button;
    button.addEventListener("click", () => this.#next());
    this.#system.addEventListener("change", () => this.#apply());
    this.#apply();
  }

  /** "light" or "dark", whatever chose it. */
  get shade() {
    if (this.choice !== "system") return this.choice;
    return this.#system.matches ? "dark" : "light";
  }

  get still() {
    return this.#still.matches;
  }

  /** {name: CSS colour} of the theme now. */
  ink() {
    this.#inks ??= readInks();
    return this.#inks;
  }

  #next() {
    const names = Object.keys(NAMES);
    this.choice = names[(names.indexOf(this.choice) + 1) % names.length];
    remember("theme", this.choice);
    this.#apply();
  }

  #apply() {
    const root = document.documentElement;
    if (this.choice === "system") delete root.dataset.theme;
    else root.dataset.theme = this.choice;
    this.#inks = null;
    this.button.setAttribute("aria-label", `Theme: ${NAMES[this.choice]}`);
    this.button.title = `Theme: ${NAMES[this.choice]}`;
    this.dispatchEvent(new CustomEvent("change"));
  }
}

function readInks() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const ink = {};
  for (const name of INKS) {
    probe.style.color = `var(--${name})`;
    ink[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return ink;
}
