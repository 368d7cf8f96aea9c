// The page around the sound: light or dark; panels side by side, or one at a time; messages.

import { Emitter, element, icon, remember, remembered } from "./browser.js";

const NAMES = { system: "as the system", light: "light", dark: "dark" };
const STAY = 5000; // milliseconds
const NARROW = "(max-width: 1119px)";
const INKS = "disc grid rim ticks halo text label muted accent line".split(" ");

/** The theme, and the canvas' colours, which come from the style sheet. Event: `change`. */
export class Theme extends Emitter {
  #system = matchMedia("(prefers-color-scheme: dark)");
  #still = matchMedia("(prefers-reduced-motion: reduce)");
  #forced = matchMedia("(forced-colors: active)"); // the system's few, in place of the page's
  #contrast = matchMedia("(prefers-contrast: more)");
  #inks = null;

  constructor(button) {
    super();
    this.choice = remembered("theme", "system");
    if (!Object.hasOwn(NAMES, this.choice)) this.choice = "system";
    this.button = button;
    button.addEventListener("click", () => this.#next());
    for (const query of [this.#system, this.#forced, this.#contrast]) query.addEventListener("change", () => this.#apply());
    this.#apply();
  }

  /** "light" or "dark", whatever chose it. */
  get shade() {
    if (this.choice !== "system" && !this.#forced.matches) return this.choice;
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
    this.emit("change");
  }
}

/** Panels beside one another where there is room; one at a time, behind tabs, where there is not. */
export class Tabs {
  #narrow = matchMedia(NARROW);

  constructor(list) {
    this.tabs = [...list.children];
    this.panels = this.tabs.map((tab) => document.getElementById(tab.getAttribute("aria-controls")));
    this.labels = this.panels.map((panel) => panel.getAttribute("aria-labelledby"));
    this.tabs.forEach((tab, index) => {
      tab.addEventListener("click", () => this.#choose(index));
      tab.addEventListener("keydown", (event) => this.#key(event, index));
    });
    this.#narrow.addEventListener("change", () => this.#apply());
    this.#choose(0);
    this.#apply();
  }

  #apply() {
    this.panels.forEach((panel, index) => {
      if (this.#narrow.matches) panel.setAttribute("role", "tabpanel");
      else panel.removeAttribute("role");
      panel.setAttribute("aria-labelledby", this.#narrow.matches ? this.tabs[index].id : this.labels[index]);
    });
  }

  #choose(index) {
    this.tabs.forEach((tab, other) => {
      tab.setAttribute("aria-selected", String(other === index));
      tab.tabIndex = other === index ? 0 : -1;
      this.panels[other].classList.toggle("chosen", other === index);
    });
  }

  #key(event, index) {
    const count = this.tabs.length;
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: count - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.#choose((to + count) % count);
    this.tabs[(to + count) % count].focus();
  }
}

/** Messages: short lines that go by themselves, lines that stay, and words for screen readers only. */
export class Messages {
  #standing = new Map(); // lines that stay until taken back, by name
  #latest = new Map(); // texts on show
  #before = null; // the element that had the focus before a line did

  constructor(list, spoken) {
    this.list = list;
    this.spoken = spoken;
  }

  /** A line; `kind`: plain, good or bad. The same line is not shown twice at once. */
  show(text, kind = "plain", stay = STAY) {
    this.#remove(this.#latest.get(text));
    const line = this.#line(text, kind);
    this.#latest.set(text, line);
    const forget = () => {
      this.#remove(line);
      if (this.#latest.get(text) === line) this.#latest.delete(text);
    };
    setTimeout(forget, kind === "bad" ? stay * 1.6 : stay);
    const passing = this.list.querySelectorAll(".message:not([data-text])");
    if (passing.length > 4) this.#remove(passing[0]); // lines that stay, do
  }

  /** A line that stays until `clear(name)`; `action`: [words, what they do] of a button in it. */
  stand(name, text, kind = "bad", action = null) {
    if (this.#standing.get(name)?.dataset.text === text) return;
    this.clear(name);
    const line = this.#line(text, kind, action);
    line.dataset.text = text;
    this.#standing.set(name, line);
  }

  stands(name) {
    return this.#standing.has(name);
  }

  clear(name) {
    this.#remove(this.#standing.get(name));
    return this.#standing.delete(name);
  }

  /** For screen readers. */
  say(text) {
    this.spoken.textContent = text;
  }

  #line(text, kind, action = null) {
    const close = { type: "button", className: "plain", "aria-label": "Dismiss", onclick: () => this.#remove(line) };
    const parts = [element("span", {}, text), element("button", close, icon("close"))];
    if (action) parts.splice(1, 0, element("button", { type: "button", className: "quiet", onclick: action[1] }, action[0]));
    const line = element("div", { className: "message", "data-kind": kind }, ...parts);
    // The focus goes back to where it came from, if anywhere, once no line is left that could have it.
    line.addEventListener("focusin", ({ relatedTarget: from }) => {
      if (!this.list.contains(from)) this.#before = from;
    });
    this.list.append(line);
    return line;
  }

  #remove(line) {
    if (!line?.isConnected) return;
    const next = line.nextElementSibling ?? line.previousElementSibling;
    const focused = line.contains(document.activeElement);
    line.remove();
    const before = this.#before;
    if (focused) (next?.querySelector("button.plain") ?? before)?.focus(); // to dismiss that, too, not to do what it offers
    this.#before = before; // whence it came to the line that is gone
  }
}

function readInks() {
  const probe = element("span");
  probe.style.forcedColorAdjust = "none"; // or every ink would be the text's
  document.body.append(probe);
  const ink = {};
  for (const name of INKS) {
    probe.style.color = `var(--${name})`;
    ink[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return ink;
}
