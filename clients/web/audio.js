// The loudspeaker: one AudioContext with the mixer of worklet.js in it, which hears of the page by the worker.

import { Emitter } from "./browser.js";

const LEAST_PREBUFFER = 0.015; // seconds a voice waits for before it sounds
const MOST_PREBUFFER = 0.3;
const LEAD = 0.18; // seconds that a held note is written ahead of time, of which a bend of two semitones up leaves
// 0.16; and by as many more as a voice waits for
const INTERRUPTION = 300; // milliseconds without sound, after which what was played meanwhile is forgotten

/**
 * Events: `level` {rms}, `sound` {id, wall, at}, `done` {id}, `starved` {id}, `stolen` {id, fade} of a voice that is to
 * end, as nobody hears it, `blocked` {message}, `running`.
 * Browsers let a page sound only after a gesture: call `unlock` in one.
 */
export class AudioOutput extends Emitter {
  #worker;
  #started = false;
  #starting = null;

  constructor(worker) {
    super();
    this.#worker = worker;
    this.context = null;
    this.prebuffer = LEAST_PREBUFFER;
  }

  /** How many seconds ahead of time a held note is to be written. */
  get lead() {
    return LEAD + this.prebuffer - LEAST_PREBUFFER;
  }

  get running() {
    return this.context?.state === "running" && this.#started;
  }

  /** Seconds from the mixer to the ear, as far as the browser tells. */
  get latency() {
    return this.context?.outputLatency || this.context?.baseLatency || 0;
  }

  /** Whether what is played without a gesture, as over MIDI, is heard; says what is missing where it is not. */
  mayPlay() {
    if (this.running || navigator.userActivation?.hasBeenActive !== false) return true;
    this.unlock(); // some browsers let a page sound that was visited often
    this.emit("blocked", { message: "Click the page once, so that it may sound." });
    return false;
  }

  /** Lets the page sound; where the mixer did not load, the next gesture tries again. Harmless where it does. */
  unlock() {
    this.#starting ??= this.#start().catch(() => {
      this.#starting = null;
      this.emit("blocked", { message: "The sound did not start; the next click or key tries again." });
    });
    if (this.context && this.context.state !== "running") {
      this.#forgetUnheard();
      this.context.resume().catch(() => {});
    }
    return this.#starting;
  }

  /** A new voice; `rate` in samples per second. */
  start(id, rate, { gain = 1, whole = false } = {}) {
    this.#voices.add(id);
    this.#send({ type: "start", id, rate, gain, prebuffer: whole ? 0 : this.prebuffer });
  }

  /** More of a voice that no server writes, float32 samples; they are copied. */
  push(id, samples) {
    const copy = samples.slice();
    this.#send({ type: "push", id, samples: copy }, [copy.buffer]);
  }

  /** Nothing more will come for this voice. */
  finish(id) {
    this.#send({ type: "finish", id });
  }

  /** Fades a voice out and forgets it. */
  stop(id, fade = 0.03) {
    this.#send({ type: "stop", id, fade });
  }

  /** How loud a voice is from now on: 1 is as it came. */
  setGain(id, value) {
    this.#send({ type: "setGain", id, value });
  }

  /** How loud a voice's partials above a corner in Hz are from now on, beside those below: 1 is as they came. */
  setBrightness(id, value, corner) {
    this.#send({ type: "setBrightness", id, value, corner });
  }

  /** How far a voice is from its pitch from now on, in cents: by what of that does not lie in its sound. */
  setBend(id, cents) {
    this.#send({ type: "setBend", id, cents });
  }

  setVolume(value) {
    this.#send({ type: "setVolume", value });
  }

  /** Hands every block that the mixer puts out to `take`, with its place in the context's time, or to nobody (null). */
  tap(take) {
    this.#tapped = take;
    this.#send({ type: "tap", on: take !== null });
  }

  #tapped = null;
  #voices = new Set(); // that are not done
  #silentSince = null; // when the browser fell silent: for a call, say, or as headphones were pulled out

  /** What was played while nothing could be heard is not made up for. */
  #forgetUnheard() {
    const isLong = this.#silentSince !== null && performance.now() - this.#silentSince > INTERRUPTION;
    this.#silentSince = null;
    if (isLong) for (const id of this.#voices) this.emit("stolen", { id, fade: 0 });
  }

  async #start() {
    const Context = globalThis.AudioContext ?? globalThis.webkitAudioContext;
    if (navigator.audioSession) navigator.audioSession.type = "playback"; // heard on an iPhone switched to silent, too
    this.context ??= makeContext(Context);
    if (!this.context.audioWorklet) {
      const message =
        "Browsers play sound on the network over HTTPS only: start timbrel explore with --certfile and --keyfile.";
      this.emit("blocked", { message });
      this.#playToNobody();
      return;
    }
    const tell = () => {
      if (this.running) {
        this.#forgetUnheard();
        this.emit("running");
      } else if (this.#started) this.#silentSince ??= performance.now();
    };
    this.context.onstatechange = tell;
    await this.context.audioWorklet.addModule(new URL("worklet.js", import.meta.url));
    const node = new AudioWorkletNode(this.context, "timbrel-mixer", {
      numberOfInputs: 0,
      outputChannelCount: [2],
    });
    node.connect(this.context.destination);
    node.port.onmessage = ({ data }) => this.#take(data);
    const { port1, port2 } = new MessageChannel();
    node.port.postMessage({ type: "listen", port: port1 }, [port1]);
    this.#worker.postMessage({ port: port2 }, [port2]);
    this.#started = true;
    tell();
  }

  /** In place of a mixer: notes are over once all of them has come, as they would be kept for one for ever. */
  #playToNobody() {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data: { type, id } }) => ["finish", "stop"].includes(type) && this.#take({ type: "done", id });
    this.#worker.postMessage({ port: port2 }, [port2]);
  }

  #send(message, moved = []) {
    this.#worker.postMessage({ mixer: message, moved }, moved);
  }

  #take(data) {
    if (data.type === "tapped") {
      this.#tapped?.(data.samples, data.frame);
      return;
    }
    if (data.type === "starved") this.prebuffer = Math.min(MOST_PREBUFFER, this.prebuffer * 2);
    if (data.type === "done") this.#voices.delete(data.id);
    if (data.type === "done") this.prebuffer = Math.max(LEAST_PREBUFFER, this.prebuffer * 0.95);
    this.emit(data.type, { ...data, at: performance.now() });
  }
}

/** At the model's rate where the browser can; the mixer resamples where it cannot. */
function makeContext(Context) {
  try {
    return new Context({ latencyHint: "interactive", sampleRate: 48000 });
  } catch {
    return new Context({ latencyHint: "interactive" });
  }
}
