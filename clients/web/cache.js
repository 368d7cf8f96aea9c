// Whole notes by what was asked for, the least recently used first to go.

/** Bounded by the bytes of its samples. */
export class Cache {
  #notes = new Map();

  constructor(mostBytes = 24 * 2 ** 20) {
    this.mostBytes = mostBytes;
    this.bytes = 0;
  }

  /** Float32Array of the whole note, or undefined. */
  get(request) {
    const key = keyOf(request);
    const samples = this.#notes.get(key);
    if (samples === undefined) return undefined;
    this.#notes.delete(key);
    this.#notes.set(key, samples);
    return samples;
  }

  put(request, samples) {
    const key = keyOf(request);
    this.#drop(key);
    this.#notes.set(key, samples);
    this.bytes += samples.byteLength;
    for (const oldest of this.#notes.keys()) {
      if (this.bytes <= this.mostBytes) break;
      this.#drop(oldest);
    }
  }

  get size() {
    return this.#notes.size;
  }

  #drop(key) {
    const samples = this.#notes.get(key);
    if (samples === undefined) return;
    this.bytes -= samples.byteLength;
    this.#notes.delete(key);
  }
}

/** Equal requests, equal sound: every field that a note depends on. */
function keyOf({ x, y, pitch, velocity, seconds, seed, temperature }) {
  return [x, y, pitch, velocity, seconds, seed, temperature].join(" ");
}
