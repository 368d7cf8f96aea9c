// Notes that sound: asked for over the link, or taken from the cache, and put into the loudspeaker.

/** One note. Events: `samples` {samples}, `end`, `failed` {code, message}, `sound` {at}. */
export class Note extends EventTarget {
  constructor(id, request) {
    super();
    this.id = id;
    this.request = request; // {x, y, pitch, velocity, seconds, seed, temperature}
    this.chunks = [];
    this.length = 0; // samples so far
    this.sampleRate = 48000;
    this.complete = false; // all samples are here
    this.over = false; // it sounds no more
    this.held = false; // its length is known once it has ended
    this.cached = false;
    this.truncated = false;
    this.soundedAt = null;
  }

  /** All samples in one piece. */
  whole() {
    const samples = new Float32Array(this.length);
    let place = 0;
    for (const chunk of this.chunks) {
      samples.set(chunk, place);
      place += chunk.length;
    }
    return samples;
  }

  emit(type, detail = {}) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** Events: `start` {note}, `end` {note}, `failed` {note, code, message}. */
export class Notes extends EventTarget {
  #sounding = new Map();

  constructor(link, audio, cache, sampleRate) {
    super();
    this.link = link;
    this.audio = audio;
    this.cache = cache;
    this.sampleRate = sampleRate;
    audio.addEventListener("sound", ({ detail }) => this.#sounded(detail));
    audio.addEventListener("done", ({ detail }) => this.#done(detail.id));
  }

  get sounding() {
    return this.#sounding.size;
  }

  /**
   * Plays a note. With `held` its key stays down until `off`, and `request.seconds` is the most;
   * without, it comes as fast as it can be written, or from the cache.
   */
  play(request, { held = false, gain = 1 } = {}) {
    const note = new Note(this.link.newId(), request);
    note.sampleRate = this.sampleRate;
    note.held = held;
    this.#sounding.set(note.id, note);
    const samples = held ? undefined : this.cache.get(request);
    this.audio.start(note.id, this.sampleRate, { gain, whole: samples !== undefined });
    if (samples === undefined) this.#ask(note, held);
    else this.#repeat(note, samples);
    this.#emit("start", { note });
    return note;
  }

  /** The key goes up. */
  off(note) {
    this.link.off(note.id);
  }

  /** Ends a note now, wherever it is. */
  cancel(note, fade = 0.03) {
    if (!note.complete) {
      this.link.cancel(note.id);
      this.audio.finish(note.id);
    }
    this.audio.stop(note.id, fade);
  }

  /** Ends every note. */
  silence(fade = 0.05) {
    for (const note of this.#sounding.values()) this.cancel(note, fade);
  }

  #repeat(note, samples) {
    note.cached = true;
    this.#append(note, samples);
    this.#complete(note);
  }

  #ask(note, held) {
    const { x, y, pitch, velocity, seconds, seed, temperature } = note.request;
    const message = { x, y, pitch, velocity, seed, temperature, live: held };
    if (!held || seconds !== undefined) message.seconds = seconds;
    const asked = this.link.on(note.id, message, {
      start: ({ sample_rate }) => (note.sampleRate = sample_rate ?? note.sampleRate),
      audio: (samples) => this.#append(note, samples),
      end: (end) => this.#ended(note, end),
      error: (error) => this.#failed(note, error),
    });
    if (!asked) {
      const message = "The explorer does not answer.";
      queueMicrotask(() => this.#failed(note, { code: "unavailable", message, quiet: true }));
    }
  }

  #append(note, samples) {
    note.chunks.push(samples);
    note.length += samples.length;
    this.audio.push(note.id, samples);
    note.emit("samples", { samples });
  }

  #ended(note, { held_seconds, truncated }) {
    note.truncated = Boolean(truncated);
    if (note.held && held_seconds !== undefined) note.request = { ...note.request, seconds: tidy(held_seconds) };
    const whole = note.whole();
    note.chunks = [whole];
    this.cache.put(note.request, whole);
    this.#complete(note);
  }

  #complete(note) {
    note.complete = true;
    this.audio.finish(note.id);
    note.emit("end");
    this.#emit("end", { note });
  }

  #failed(note, error) {
    if (note.over) return;
    this.audio.finish(note.id);
    this.audio.stop(note.id, 0.03);
    note.emit("failed", error);
    this.#emit("failed", { note, ...error });
  }

  #sounded({ id, at, wall }) {
    const note = this.#sounding.get(id);
    if (!note) return;
    note.soundedAt = at;
    note.emit("sound", { at });
    this.#emit("sound", { note, at, wall });
  }

  #done(id) {
    const note = this.#sounding.get(id);
    if (!note) return;
    note.over = true;
    this.#sounding.delete(id);
    note.emit("over");
    this.#emit("over", { note });
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** Seconds as they are shown and asked for again: to a tenth of a millisecond. */
function tidy(seconds) {
  return Math.round(seconds * 1e4) / 1e4;
}
