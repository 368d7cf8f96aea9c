// Families of instruments: each has a colour and a shape, so that nobody need tell colours apart; and their legend.
// Hues after Okabe and Ito, "Color Universal Design" (2008), lightened or darkened to suit each theme.

import { element, svg } from "./browser.js";

const HUES = {
  blue: { dark: "#6aa6ff", light: "#0b63b8" },
  orange: { dark: "#f2a93b", light: "#c77700" },
  green: { dark: "#2fc79a", light: "#00835f" },
  sky: { dark: "#8fd8ff", light: "#2b95cf" },
  vermillion: { dark: "#ff7f50", light: "#c84a00" },
  purple: { dark: "#e39ac6", light: "#ad4f88" },
  yellow: { dark: "#eedd55", light: "#9a8700" },
  grey: { dark: "#b9bfc9", light: "#666d78" },
};

const TWICE = 500; // milliseconds between two clicks, at most
const SHAPES = ["circle", "diamond", "square", "triangle"];

const KNOWN = new Map([
  ["Piano", ["blue", "circle"]],
  ["Chromatic Percussion", ["blue", "diamond"]],
  ["Organ", ["yellow", "circle"]],
  ["Guitar", ["orange", "circle"]],
  ["Bass", ["orange", "square"]],
  ["Strings", ["purple", "circle"]],
  ["Ensemble", ["purple", "diamond"]],
  ["Brass", ["vermillion", "circle"]],
  ["Reed", ["green", "circle"]],
  ["Pipe", ["sky", "circle"]],
  ["Synth Lead", ["grey", "circle"]],
  ["Synth Pad", ["grey", "diamond"]],
  ["Synth Effects", ["grey", "square"]],
  ["Ethnic", ["yellow", "diamond"]],
]);

/** Family to {hue: {dark, light}, shape}, a Map of all families of the points, those of General MIDI first. */
export function makePalette(points) {
  const families = [...new Set(points.map(({ family }) => family))];
  const order = [...KNOWN.keys()];
  const place = (family) => (order.includes(family) ? order.indexOf(family) : order.length);
  families.sort((a, b) => place(a) - place(b) || a.localeCompare(b));
  const looks = families.map((family) => KNOWN.get(family)).filter(Boolean);
  const taken = new Set(looks.map((look) => look.join()));
  const free = SHAPES.flatMap((shape) => Object.keys(HUES).map((hue) => [hue, shape])).filter(
    (look) => !taken.has(look.join()),
  );
  const palette = new Map();
  for (const family of families) {
    const [hue, shape] = KNOWN.get(family) ?? free.shift() ?? ["grey", "triangle"];
    palette.set(family, { hue: HUES[hue], shape });
  }
  return palette;
}

/** Adds a family's shape to a canvas path. */
export function traceShape(context, shape, x, y, radius) {
  context.beginPath();
  if (shape === "circle") context.arc(x, y, radius, 0, 2 * Math.PI);
  else {
    for (const [dx, dy] of CORNERS[shape]) context.lineTo(x + dx * radius, y + dy * radius);
    context.closePath();
  }
}

/** The same as an SVG element, 12 by 12, in the theme's of two colours. */
export function shapeIcon(shape, { light, dark }) {
  const colour = `light-dark(${light}, ${dark})`;
  const points = CORNERS[shape]?.map(([x, y]) => `${x * 4.6},${y * 4.6}`).join(" ");
  const mark = points ? svg("polygon", { points, fill: colour }) : svg("circle", { r: "4.6", fill: colour });
  return svg("svg", { viewBox: "-6 -6 12 12", class: "swatch" }, mark);
}

const CORNERS = {
  diamond: [[0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]],
  square: [[-0.95, -0.95], [0.95, -0.95], [0.95, 0.95], [-0.95, 0.95]],
  triangle: [[0, -1.2], [1.15, 0.85], [-1.15, 0.85]],
};

/** The list of families, and which of them are shown. */
export class Legend {
  #last = { family: null, time: 0 }; // click

  constructor(element, allButton, { points, palette, disc }) {
    this.element = element;
    this.allButton = allButton;
    this.points = points;
    this.palette = palette;
    this.disc = disc;
    this.shown = new Set(palette.keys());
    allButton.addEventListener("click", () => this.#show(palette.keys()));
    element.append(...[...palette.keys()].map((family) => this.#entry(family)));
  }

  #entry(family) {
    const { hue, shape } = this.palette.get(family);
    const count = this.points.filter((point) => point.family === family).length;
    const properties = {
      type: "button",
      title: "Click to hide or show; twice to see it alone",
      "data-family": family,
      "aria-pressed": String(this.shown.has(family)),
      onclick: ({ timeStamp }) => this.#clicked(family, timeStamp),
    };
    return element("button", properties, shapeIcon(shape, hue), family, element("small", {}, count));
  }

  /** Twice within half a second, by whatever means: keys and some phones have no double click. */
  #clicked(family, time) {
    const isTwice = family === this.#last.family && time - this.#last.time < TWICE;
    this.#last = { family, time };
    const next = new Set(isTwice ? [] : this.shown);
    if (!next.delete(family)) next.add(family);
    this.#show(next);
  }

  #show(families) {
    this.shown = new Set(families);
    for (const button of this.element.children) {
      button.setAttribute("aria-pressed", String(this.shown.has(button.dataset.family)));
    }
    if (document.activeElement === this.allButton) this.element.firstElementChild.focus(); // it is hidden now
    this.allButton.hidden = this.shown.size === this.palette.size;
    this.disc.filter(this.shown);
  }
}
