// Notes that sound: asked for at the bridge, or taken from the cache, and put into the loudspeaker.

import { Emitter } from "./browser.js";
import { textOf } from "./note_request.js";
import { clamp, round } from "./state.js";

const BRIGHT_FROM = 3; // times a note's pitch: partials above are made louder or softer beside those below
export const MOST_CENTS = [-2400, 2400]; // that a note is bent by
const MOST_KEPT_SECONDS = 120; // of a note's samples: what it sounds on for is heard, and not kept

/** One note. Events: `samples`, `end`, `sound`. */
export class Note extends Emitter {
  constructor(id, request) {
    super();
    this.id = id;
    this.request = request;
    this.samples = new Float32Array(0); // the first `length` of them count
    this.length = 0;
    this.sampleRate = 0; // that of the bundle
    this.complete = false; // all samples have come
    this.cut = false; // more have come than are kept
    this.over = false; // it sounds no more
    this.held = false; // its length is known once it has ended
    this.cents = 0; // that it is bent by
    this.isOff = false; // its key went up
    this.changed = false; // it did not keep the timbre or the pitch that was asked for
    this.cached = false;
    this.askedAt = performance.now();
    this.soundedAt = null;
  }

  /** All samples in one piece. */
  whole() {
    return this.samples.slice(0, this.length);
  }

  /** Adds samples to its end, as far as they are kept; the first are taken over, not copied. */
  append(samples) {
    const length = this.length + samples.length;
    this.cut ||= length > MOST_KEPT_SECONDS * this.sampleRate;
    if (this.cut) return;
    if (this.length === 0) this.samples = samples;
    else if (length > this.samples.length) {
      const grown = new Float32Array(2 * length);
      grown.set(this.samples.subarray(0, this.length));
      this.samples = grown;
    }
    if (this.length > 0) this.samples.set(samples, this.length);
    this.length = length;
    this.emit("samples");
  }
}

/** Events: `sound` {note, at, wall}, `letGo` {seconds}, `failed` {note, code, message}. */
export class Notes extends Emitter {
  #sounding = new Map();
  #wheel = 0; // cents that all held notes are bent by, beside what each is

  constructor(bridge, audio, cache, sampleRate) {
    super();
    this.bridge = bridge;
    this.audio = audio;
    this.cache = cache;
    this.sampleRate = sampleRate;
    audio.addEventListener("sound", ({ detail }) => this.#sounded(detail));
    audio.addEventListener("done", ({ detail }) => this.#done(detail.id));
    audio.addEventListener("stolen", ({ detail }) => this.#stolen(detail));
  }

  get sounding() {
    return this.#sounding.size;
  }

  /**
   * Plays a note. With `held` its key stays down until `off`, however long that is; without, it comes as fast as it
   * can be written, or from the cache.
   */
  play(request, { held = false, gain = 1 } = {}) {
    const note = new Note(this.bridge.newId(), request);
    note.sampleRate = this.sampleRate;
    note.held = held;
    this.#sounding.set(note.id, note);
    const samples = held ? undefined : this.cache.get(request);
    this.audio.start(note.id, this.sampleRate, { gain, whole: samples !== undefined });
    if (samples === undefined) this.#ask(note, held);
    else {
      note.cached = true;
      this.audio.push(note.id, samples);
      note.append(samples);
      this.audio.finish(note.id);
      this.#complete(note);
    }
    if (held && this.#wheel) this.#bend(note);
    return note;
  }

  /** The key goes up. */
  off(note) {
    note.isOff = true;
    this.bridge.off(note.id);
  }

  /**
   * A held note sounds so many cents from where it was asked for from now on: what the server writes, and what it has
   * written and is still to sound.
   */
  bend(note, cents) {
    note.cents = cents;
    this.#bend(note);
  }

  /** All held notes, those to come among them, sound so many cents higher still. */
  turn(cents) {
    if (cents === this.#wheel) return;
    this.#wheel = cents;
    for (const note of this.#sounding.values()) if (note.held) this.#bend(note);
  }

  /** All keys that are down take on the timbre of another point; true where there are any. */
  move(x, y) {
    const down = [...this.#sounding.values()].filter((note) => note.held && !note.complete && !note.isOff);
    for (const note of down) {
      note.changed = true;
      this.bridge.move(note.id, x, y);
    }
    return down.length > 0;
  }

  /** How loud a note is from now on: 1 is as it came. */
  setGain(note, value) {
    this.audio.setGain(note.id, value);
  }

  /** How bright a note is from now on: 1 is as it came, more makes its high partials louder. */
  setBrightness(note, value) {
    const hertz = 440 * 2 ** ((note.request.pitch - 69) / 12);
    this.audio.setBrightness(note.id, value, BRIGHT_FROM * hertz);
  }

  /** Ends a note now, wherever it is. */
  cancel(note, fade = 0.03) {
    if (!note.complete) {
      this.bridge.cancel(note.id);
      this.audio.finish(note.id);
    }
    this.audio.stop(note.id, fade);
  }

  /** Ends every note. */
  silence(fade = 0.05) {
    for (const note of this.#sounding.values()) this.cancel(note, fade);
  }

  #bend(note) {
    note.changed = true;
    const cents = clamp(note.cents + this.#wheel, MOST_CENTS);
    this.bridge.bend(note.id, cents);
    this.audio.setBend(note.id, cents);
  }

  #ask(note, held) {
    const wanted = held ? { ...note.request, seconds: undefined, lead: this.audio.lead } : note.request;
    const asked = this.bridge.on(note.id, { ...wanted, live: held }, {
      audio: (samples) => note.append(samples),
      end: (end) => this.#ended(note, end),
      late: () => this.cancel(note),
      error: (error) => this.#failed(note, error),
    });
    const error = { code: "unavailable", message: "The explorer does not answer.", quiet: true };
    if (!asked) queueMicrotask(() => this.#failed(note, error));
  }

  #ended(note, { held_seconds, let_go }) {
    if (note.held && held_seconds !== undefined) note.request = { ...note.request, seconds: round(held_seconds, 4) };
    if (let_go) this.emit("letGo", { seconds: held_seconds });
    note.samples = note.whole();
    if (!note.cut && !note.changed) this.cache.put(note.request, note.samples);
    this.#complete(note);
  }

  #complete(note) {
    note.complete = true;
    note.emit("end");
  }

  #failed(note, error) {
    this.audio.finish(note.id);
    this.audio.stop(note.id, 0.03);
    this.emit("failed", { note, ...error });
  }

  #sounded({ id, at, wall }) {
    const note = this.#sounding.get(id);
    if (!note) return;
    note.soundedAt = at;
    note.emit("sound");
    this.emit("sound", { note, at, wall });
  }

  /** A note that nobody hears any more is not written on, whatever holds it. */
  #stolen({ id, fade }) {
    const note = this.#sounding.get(id);
    if (note) this.cancel(note, fade);
  }

  #done(id) {
    const note = this.#sounding.get(id);
    if (note) note.over = true;
    this.#sounding.delete(id);
  }
}

/** Whole notes by what was asked for, the least recently used first to go; bounded by the bytes of its samples. */
export class NoteCache {
  #notes = new Map();

  constructor(mostBytes = 24 * 2 ** 20) {
    this.mostBytes = mostBytes;
    this.bytes = 0;
  }

  /** Float32Array of the whole note, or undefined. */
  get(request) {
    const key = textOf(request);
    const samples = this.#notes.get(key);
    if (samples === undefined) return undefined;
    this.#notes.delete(key);
    this.#notes.set(key, samples);
    return samples;
  }

  put(request, samples) {
    const key = textOf(request);
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
