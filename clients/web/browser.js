// Helpers over the browser's own means: elements, events, and memory between visits.

const PREFIX = "timbrel.";
const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

/** A new element; names that are no properties of it become attributes. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** A new SVG element, which is not read out. */
export function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  if (tag === "svg") made.setAttribute("aria-hidden", "true");
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** One of the page's symbols. */
export function icon(name) {
  return svg("svg", { class: "icon" }, svg("use", { href: `#i-${name}` }));
}

/** Colours a slider's track up to its thumb. */
export function fill(input) {
  const [least, most] = [Number(input.min), Number(input.max)];
  input.style.setProperty("--part", `${(100 * (Number(input.value) - least)) / (most - least || 1)}%`);
}

/** Whoever listens is told with a `detail`. */
export class Emitter extends EventTarget {
  emit(type, detail = {}) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/**
 * A value of an earlier visit, or with `where` "sessionStorage" of this tab's; where the browser keeps nothing, the page
 * works all the same.
 */
export function remembered(name, otherwise, where = "localStorage") {
  try {
    const text = globalThis[where].getItem(PREFIX + name);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

/** Calls `then` where another tab has kept something else under a name. */
export function onRemembered(name, then) {
  addEventListener("storage", ({ key }) => (key === PREFIX + name || key === null) && then());
}

/** Keeps a value for later visits; returns whether it could. */
export function remember(name, value, where = "localStorage") {
  try {
    globalThis[where].setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
