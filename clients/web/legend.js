// The families: which colour and shape is whose, and which are shown.

import { shapeIcon } from "./palette.js";

export class Legend {
  constructor(element, allButton, { points, palette, theme, disc }) {
    this.element = element;
    this.allButton = allButton;
    this.points = points;
    this.palette = palette;
    this.theme = theme;
    this.disc = disc;
    this.shown = new Set(Object.keys(palette));
    allButton.addEventListener("click", () => this.#show(Object.keys(palette)));
    this.build();
  }

  /** Draws the list anew, as in another theme. */
  build() {
    this.element.replaceChildren(...Object.keys(this.palette).map((family) => this.#entry(family)));
  }

  #entry(family) {
    const { hue, shape } = this.palette[family];
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.family = family;
    button.title = "Click to hide or show; twice to see it alone";
    button.setAttribute("aria-pressed", String(this.shown.has(family)));
    const count = document.createElement("small");
    count.textContent = this.points.filter((point) => point.family === family).length;
    button.append(shapeIcon(shape, hue[this.theme.shade]), family, count);
    button.addEventListener("click", () => this.#toggle(family));
    button.addEventListener("dblclick", () => this.#show([family]));
    return button;
  }

  #toggle(family) {
    const next = new Set(this.shown);
    if (!next.delete(family)) next.add(family);
    this.#show(next);
  }

  #show(families) {
    this.shown = new Set(families);
    for (const button of this.element.children) {
      button.setAttribute("aria-pressed", String(this.shown.has(button.dataset.family)));
    }
    this.allButton.hidden = this.shown.size === Object.keys(this.palette).length;
    this.disc.filter(this.shown);
  }
}
