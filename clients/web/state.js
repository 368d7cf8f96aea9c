// What the page is set to: the URL's hash, and what undo goes back to.

const MOST_STEPS = 200;

/**
 * The sound that the next note has: x, y, p(itch), v(elocity), s(econds, or "hold"), seed, t(emperature);
 * the points a and b ([x, y] or null). Events: `change` {keys}, `history`.
 */
export class State extends EventTarget {
  #values;
  #past = [];
  #future = [];
  #kept;
  #timer = 0;

  constructor(start, ranges) {
    super();
    this.ranges = ranges; // {p: [least, most], v: ..., s: ..., t: ...}
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
    const next = this.#allowed({ ...this.#values, ...patch }, this.#values);
    const keys = Object.keys(next).filter((key) => !same(next[key], this.#values[key]));
    this.#values = next;
    if (keys.length) this.#changed(keys);
    if (keep) this.keep();
  }

  /** Makes a step of how things are now. */
  keep() {
    const now = this.values;
    if (equal(now, this.#kept)) return;
    this.#past.push(this.#kept);
    if (this.#past.length > MOST_STEPS) this.#past.shift();
    this.#future = [];
    this.#kept = now;
    this.#emit("history");
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

  #travel(from, to) {
    if (!from.length) return;
    to.push(this.#kept);
    const before = this.#values;
    this.#values = from.pop();
    this.#kept = this.values;
    this.#changed(Object.keys(this.#values).filter((key) => !same(before[key], this.#values[key])));
    this.#emit("history");
  }

  #changed(keys) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#write(), 200);
    this.dispatchEvent(new CustomEvent("change", { detail: { keys } }));
  }

  #write() {
    history.replaceState(null, "", formatHash(this.#values));
  }

  #read() {
    const now = formatHash(this.#values);
    if (location.hash !== now) this.set(parseHash(location.hash), { keep: true });
  }

  #allowed(values, otherwise) {
    const { p, v, s, t } = this.ranges;
    const [x, y] = intoDisc(number(values.x, otherwise.x), number(values.y, otherwise.y));
    return {
      x,
      y,
      p: Math.round(clamp(number(values.p, otherwise.p), p)),
      v: Math.round(clamp(number(values.v, otherwise.v), v)),
      s: values.s === "hold" ? "hold" : round(clamp(number(values.s, otherwise.s), s), 3),
      seed: Math.round(clamp(number(values.seed, otherwise.seed), [0, 2 ** 32 - 1])),
      t: round(clamp(number(values.t, otherwise.t), t), 2),
      a: point(values.a),
      b: point(values.b),
    };
  }

  #emit(type) {
    this.dispatchEvent(new CustomEvent(type));
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

/** The nearest point that lies on the disc, to four decimals. */
export function intoDisc(x, y) {
  const distance = Math.hypot(x, y);
  const inside = distance > 0.9999 ? 0.9999 / distance : 1;
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

function same(one, other) {
  return one === other || (Array.isArray(one) && Array.isArray(other) && one.join() === other.join());
}

function equal(one, other) {
  return Object.keys(one).every((key) => same(one[key], other[key]));
}
