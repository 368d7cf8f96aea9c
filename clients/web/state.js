// The state of the page, kept in the address' hash, with undo and redo.

import { Emitter } from "./browser.js";

const MOST_STEPS = 200;

/**
 * The sound that the next note has: x, y, and every one of `fields` (note_request.js) by its key, of which s(econds)
 * may be "hold"; the points a and b ([x, y] or null). Events: `change` {changed}, `history`.
 */
export class State extends Emitter {
  #values;
  #past = [];
  #future = [];
  #kept;
  #timer = 0;

  constructor(fields) {
    super();
    this.fields = fields;
    const firsts = fields.map(({ key, start, range }) => [key, clamp(start, range)]);
    const start = { x: 0, y: 0.4, ...Object.fromEntries(firsts), a: null, b: null }; // where a first visit begins
    this.#values = this.#allowed({ ...start, ...parseHash(location.hash) }, start);
    this.#kept = this.values;
    addEventListener("hashchange", () => this.#read());
  }

  get values() {
    return { ...this.#values };
  }

  get(key) {
    return this.#values[key];
  }

  /** Sets some values; with `keep` the result is a step that undo comes back to. */
  set(patch, { keep = false } = {}) {
    this.#become(this.#allowed({ ...this.#values, ...patch }, this.#values));
    if (keep) this.keep();
  }

  /** Makes a step of how things are now. */
  keep() {
    const now = this.values;
    if (!differing(now, this.#kept).length) return;
    this.#past.push(this.#kept);
    if (this.#past.length > MOST_STEPS) this.#past.shift();
    this.#future = [];
    this.#kept = now;
    this.emit("history");
  }

  get canUndo() {
    return this.#past.length > 0;
  }

  get canRedo() {
    return this.#future.length > 0;
  }

  undo() {
    this.#travel(this.#past, this.#future);
  }

  redo() {
    this.#travel(this.#future, this.#past);
  }

  /** The address of exactly this state. */
  get link() {
    const url = new URL(location.href);
    url.hash = formatHash(this.#values);
    return url.href;
  }

  /** Goes to a step, and leaves what was set since the last one and is no step, as the pitch of a key. */
  #travel(from, to) {
    if (!from.length) return;
    const since = differing(this.#values, this.#kept).map((key) => [key, this.#values[key]]);
    to.push(this.#kept);
    this.#kept = from.pop();
    this.#become({ ...this.#kept, ...Object.fromEntries(since) });
    this.emit("history");
  }

  #become(values) {
    const before = this.#values;
    this.#values = values;
    const changed = differing(values, before);
    if (!changed.length) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => history.replaceState(null, "", formatHash(this.#values)), 200);
    this.emit("change", { changed });
  }

  #read() {
    const given = { a: null, b: null, ...parseHash(location.hash) }; // a link has them, or they are not set
    if (location.hash !== formatHash(this.#values)) this.set(given, { keep: true });
  }

  #allowed(values, otherwise) {
    const [x, y] = intoDisc(number(values.x, otherwise.x), number(values.y, otherwise.y));
    const allowed = { x, y };
    for (const { key, range, decimals } of this.fields) {
      const held = key === "s" && values.s === "hold";
      allowed[key] = held ? "hold" : round(clamp(number(values[key], otherwise[key]), range), decimals);
    }
    return { ...allowed, a: point(values.a), b: point(values.b) };
  }
}

/** A seed that nobody chose. */
export function drawSeed() {
  return crypto.getRandomValues(new Uint32Array(1))[0] % 1_000_000;
}

export function clamp(value, [least, most]) {
  return Math.min(most, Math.max(least, value));
}

/** To so many decimals, without -0. */
export function round(value, decimals) {
  const unit = 10 ** decimals;
  return Math.round(value * unit) / unit + 0;
}

/** The nearest point that lies on the disc, to four decimals; one that was found so stays where it is. */
export function intoDisc(x, y) {
  const point = [round(x, 4), round(y, 4)];
  if (Math.hypot(...point) <= 0.9999) return point;
  const inside = 0.9998 / Math.hypot(x, y);
  return [round(x * inside, 4), round(y * inside, 4)];
}

export function parseHash(hash) {
  const given = Object.fromEntries(new URLSearchParams(hash.replace(/^#/, "")));
  for (const key of ["a", "b"]) if (key in given) given[key] = given[key].split(",").map(Number);
  return given;
}

export function formatHash({ a, b, ...values }) {
  const parameters = new URLSearchParams(values);
  if (a) parameters.set("a", a.join(","));
  if (b) parameters.set("b", b.join(","));
  return `#${parameters.toString().replaceAll("%2C", ",")}`;
}

function number(value, otherwise) {
  const read = typeof value === "number" ? value : Number.parseFloat(value);
  return Number.isFinite(read) ? read : typeof otherwise === "number" ? otherwise : 2;
}

function point(value) {
  return Array.isArray(value) && value.length === 2 && value.every(Number.isFinite) ? intoDisc(...value) : null;
}

/** The keys of what differs between two states. */
function differing(one, other) {
  return Object.keys(one).filter((key) => String(one[key]) !== String(other[key]));
}
