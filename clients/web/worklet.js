// The mixer: runs on the audio thread, holds one voice for each note and adds them up.
//
// In:  start {id, rate, gain, prebuffer} | push {id, samples} | finish {id} | stop {id, fade} | setGain {id, value}
//      | setBrightness {id, value, corner} | setVolume {value} | tap {on} | skipTo {id, seconds, within}
//      | setBend {id, cents} | bent {id, cents, after, within}, of what lies in the sound that is pushed from then on
//      | listen {port}, where these come from
// Out: sound {id, wall} at a voice's first sample above -60 dBFS | done {id} | starved {id} | level {rms}
//      | stolen {id}, of a voice that made room for another | tapped {samples, frame} for whoever listens in

const AUDIBLE = 0.001; // -60 dBFS
const JOIN_SECONDS = 0.003; // fades at the edges of a gap
const JOIN = 1 / (JOIN_SECONDS * sampleRate); // of such a fade, in each sample
const MORE_SECONDS = 0.06; // a voice that ran dry goes on so much further behind than would have been enough ...
const MOST_WAITED_FOR_SECONDS = 0.5; // ... but waits for no more than this
const LEVEL_SECONDS = 1 / 30;
const SKIP_SECONDS = 0.012; // a skip is faded over in so long, and leads to within half as much of its target
const BEHIND_SKIP_SECONDS = 0.03; // so much more is to be there, if it comes in time: nothing is left to wait with
const BALANCE_SECONDS = 0.02; // over so long a brighter or duller voice is as loud as it was
const BEND_SHARE = 0.25; // of the way to a new bend that is made in a block
const NO_CENTS = 0.01; // fewer are none
const LEAST_POWER = 1e-12;
const MOST_VOICES = 48;

/** Samples in, samples out, in order; memory is kept and reused. */
class Fifo {
  constructor() {
    this.data = new Float32Array(0);
    this.start = 0;
    this.end = 0;
  }

  get length() {
    return this.end - this.start;
  }

  push(samples) {
    if (this.length === 0) {
      this.data = samples; // whole notes are taken over, not copied
      this.start = 0;
      this.end = samples.length;
      return;
    }
    if (this.end + samples.length > this.data.length) this.#grow(this.length + samples.length);
    this.data.set(samples, this.end);
    this.end += samples.length;
  }

  drop(count) {
    this.start += count;
  }

  #grow(needed) {
    const grown = new Float32Array(Math.max(needed * 2, 16384));
    grown.set(this.data.subarray(this.start, this.end));
    this.end -= this.start;
    this.start = 0;
    this.data = grown;
  }
}

/** A note's brightness: partials above a corner are made louder or softer, and the whole stays as loud as it is. */
class Shelf {
  constructor(corner) {
    this.gain = 1;
    this.wantedGain = 1;
    this.low = 0; // what a low-pass of the first order leaves
    this.keep = Math.exp((-2 * Math.PI * corner) / sampleRate);
    this.forget = 1 / (BALANCE_SECONDS * sampleRate);
    this.lows = this.both = this.highs = 0; // mean products of its two parts, whatever the gain was
  }

  take(value) {
    this.gain += (this.wantedGain - this.gain) * 0.002;
    this.low += (value - this.low) * (1 - this.keep);
    const { low, gain, forget } = this;
    const high = value - low;
    this.lows += (low * low - this.lows) * forget;
    this.both += (low * high - this.both) * forget;
    this.highs += (high * high - this.highs) * forget;
    const before = Math.max(0, this.lows + 2 * this.both + this.highs) + LEAST_POWER;
    const after = Math.max(0, this.lows + 2 * gain * this.both + gain * gain * this.highs) + LEAST_POWER;
    return (low + gain * high) * Math.sqrt(before / after);
  }
}

/**
 * How far a note is bent. The server bends what it writes, which is heard a while later; so what has come is bent by
 * what is missing. A voice of which nobody says what lies in its sound is left as it came.
 */
class Bend {
  constructor() {
    this.wanted = this.cents = 0; // the latter is on its way to the former
    this.marks = []; // [source sample, cents that lie in the sound there], with lines between
  }

  /** Between two source samples the sound goes over to so many cents. */
  mark(from, to, cents) {
    if (this.marks.length === 0) this.marks.push([0, cents]); // it begins with them
    else this.marks.push([from, this.marks.at(-1)[1]], [to, cents]);
  }

  /** How many times as fast as it came the sound goes by, one block later, at a source sample. */
  ratio(place) {
    if (this.marks.length === 0) return 1;
    while (this.marks.length > 1 && this.marks[1][0] <= place) this.marks.shift();
    const [[from, cents], next] = this.marks;
    const inSound = next ? cents + ((next[1] - cents) * Math.max(0, place - from)) / (next[0] - from) : cents;
    this.cents += (this.wanted - this.cents) * BEND_SHARE;
    if (Math.abs(this.wanted - this.cents) < NO_CENTS) this.cents = this.wanted;
    const missing = this.cents - inSound;
    return Math.abs(missing) < NO_CENTS ? 1 : 2 ** (missing / 1200);
  }
}

/** One note: plays what it has, fades where it runs dry, and comes back when there is more. Told by messages. */
class Voice {
  constructor({ id, rate, gain, prebuffer }) {
    this.id = id;
    this.rate = rate;
    this.pace = rate / sampleRate; // source samples for each output sample ...
    this.step = this.pace; // ... as the note is bent now
    this.bend = new Bend();
    this.gain = gain;
    this.wantedGain = gain;
    this.shelf = null; // of a voice that was made brighter or duller
    this.fifo = new Fifo();
    this.pushed = 0; // source samples that have come, in all
    this.target = Infinity; // the one that is skipped to ...
    this.patience = 0; // ... once there is enough behind it, or after so many output samples with less
    this.released = false; // it was told to skip: what it had ahead is gone, what follows comes as fast as it can
    this.fraction = 0; // between two source samples
    this.needed = prebuffer * rate; // source samples to wait for before sounding
    this.most = 0; // source samples that it has had at once
    this.late = null; // source samples for which nothing came, since it ran dry
    this.level = 1; // the fade's place, 0 to 1
    this.fade = JOIN;
    this.waiting = true;
    this.finished = false; // nothing more will come
    this.stopping = false;
    this.heard = false;
    this.before = 0; // the sample before the Fifo's first, for interpolation
  }

  push({ samples }) {
    this.fifo.push(samples);
    this.pushed += samples.length;
    if (this.pushed >= this.target + this.#skipNeeds + BEHIND_SKIP_SECONDS * this.rate) this.#skip();
  }

  /** Nothing more will come. */
  finish() {
    this.finished = true;
    if (this.target === Infinity) return;
    this.target = Math.min(this.target, this.pushed - this.#skipNeeds); // where hardly anything follows it
    this.#skip();
  }

  /** What comes before this second of the note, and has not sounded, is left out: within so long if what follows is there. */
  skipTo({ seconds, within }) {
    this.target = Math.round(seconds * this.rate);
    this.patience = within * sampleRate;
    this.released = true;
  }

  get #skipWidth() {
    return Math.round(SKIP_SECONDS * this.rate);
  }

  /** Samples around a skip's target that it reads and writes, to either side. */
  get #skipNeeds() {
    return Math.ceil(1.5 * this.#skipWidth);
  }

  #skip() {
    const { data, start, length } = this.fifo;
    const width = this.#skipWidth;
    const wanted = this.target - (this.pushed - length);
    this.target = Infinity;
    if (this.waiting && this.late !== null) {
      this.fifo.drop(Math.max(0, Math.min(wanted, length))); // it ran dry and is silent
      this.needed = Math.min(this.needed, BEHIND_SKIP_SECONDS * this.rate);
    }
    if (this.waiting || !(wanted >= this.#skipNeeds)) return;
    let [best, skipped] = [-Infinity, wanted];
    for (let count = Math.ceil(wanted - width / 2); count <= wanted + width / 2; count++) {
      let [product, power] = [0, LEAST_POWER];
      for (let i = 0; i < width; i += 4) {
        const next = data[start + count + i];
        product += data[start + i] * next;
        power += next * next;
      }
      const likeness = product / Math.sqrt(power); // where the sound goes on most as it was, however loud
      if (likeness > best) [best, skipped] = [likeness, count];
    }
    for (let i = 0; i < width; i++) {
      const part = i / width;
      data[start + skipped + i] = data[start + i] * (1 - part) + data[start + skipped + i] * part;
    }
    this.fifo.drop(skipped);
  }

  stop({ fade }) {
    this.stopping = true;
    this.fade = 1 / Math.max(1, fade * sampleRate);
  }

  setGain({ value }) {
    this.wantedGain = value;
  }

  setBrightness({ value, corner }) {
    (this.shelf ??= new Shelf(corner)).wantedGain = value;
  }

  setBend({ cents }) {
    this.bend.wanted = cents;
  }

  bent({ cents, after, within }) {
    this.bend.mark(this.pushed + after, this.pushed + after + within, cents);
  }

  /** Adds this voice to `out`; returns whether it is heard in it for the first time. */
  mix(out) {
    this.patience -= out.length;
    if (this.patience <= 0 && this.pushed >= this.target + this.#skipNeeds) this.#skip();
    if (this.waiting && !this.#ready(out.length)) return false;
    this.most = Math.max(this.most, this.fifo.length);
    const wasHeard = this.heard;
    const { fifo } = this;
    if (!this.heard) {
      this.gain = this.wantedGain;
      this.bend.cents = this.bend.wanted;
    }
    if (!this.heard && this.shelf) this.shelf.gain = this.shelf.wantedGain;
    let step = this.step;
    this.step = this.pace * this.bend.ratio(this.pushed - fifo.length + out.length * step);
    const change = (this.step - step) / out.length;
    const needs = change === 0 ? this.#needs : 3;
    for (let i = 0; i < out.length; i++) {
      step += change;
      if (fifo.length < needs) {
        this.#dry();
        break;
      }
      const left = fifo.length / step;
      const wanted = this.stopping || (!this.finished && left * this.fade < 1) ? 0 : 1;
      if (this.level < wanted) this.level = Math.min(1, this.level + this.fade);
      else if (this.level > wanted) this.level = Math.max(0, this.level - this.fade);
      this.gain += (this.wantedGain - this.gain) * 0.002;
      const tail = this.finished ? Math.min(1, left * JOIN) : 1; // however slowly it is stopped meanwhile
      const sound = needs === 1 ? fifo.data[fifo.start] : this.#between();
      const value = (this.shelf ? this.shelf.take(sound) : sound) * this.level * tail * this.gain;
      out[i] += value;
      this.heard ||= Math.abs(value) > AUDIBLE;
      this.#advance(step);
      if (this.stopping && this.level === 0) break;
    }
    return this.heard && !wasHeard;
  }

  get over() {
    const silent = this.stopping && (this.level === 0 || this.waiting);
    return silent || (this.finished && this.fifo.length < this.#needs);
  }

  /** Source samples that the next output sample is made of. */
  get #needs() {
    return this.step === 1 && this.fraction === 0 ? 1 : 3;
  }

  #ready(passed) {
    if (this.late !== null && this.fifo.length < this.#needs) {
      this.late += passed * this.step;
      const wanted = this.released ? BEHIND_SKIP_SECONDS * this.rate : this.most + this.late + this.rate * MORE_SECONDS;
      this.needed = Math.min(wanted, this.rate * MOST_WAITED_FOR_SECONDS);
    }
    if (this.fifo.length === 0 || (this.fifo.length < this.needed && !this.finished)) return false;
    this.waiting = false;
    return true;
  }

  #dry() {
    if (this.finished) return;
    this.waiting = true;
    this.starved = !this.released;
    this.level = 0;
    this.late = 0;
  }

  #advance(step) {
    this.fraction += step;
    const whole = Math.floor(this.fraction);
    if (whole === 0) return;
    this.fraction -= whole;
    const last = Math.min(whole, this.fifo.length);
    this.before = this.fifo.data[this.fifo.start + last - 1];
    this.fifo.drop(last);
  }

  /** Catmull-Rom between the four samples around the place. */
  #between() {
    const { data, start } = this.fifo;
    const [a, b, c, d, t] = [this.before, data[start], data[start + 1], data[start + 2], this.fraction];
    return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
  }
}

/** Keeps the sum below full scale: looks a millisecond ahead, turns down in that time and up again slowly. */
class Limiter {
  constructor() {
    this.delay = new Float32Array(Math.round(sampleRate / 1000));
    this.place = 0;
    this.envelope = 0;
    this.gain = 1;
    this.release = Math.exp(-1 / (0.12 * sampleRate));
    this.attack = 1 - Math.exp(-5 / this.delay.length);
  }

  process(out) {
    for (let i = 0; i < out.length; i++) {
      this.envelope = Math.max(Math.abs(out[i]), this.envelope * this.release);
      const wanted = this.envelope > 0.9 ? 0.9 / this.envelope : 1;
      this.gain += (wanted - this.gain) * (wanted < this.gain ? this.attack : 0.002);
      const late = this.delay[this.place] * this.gain;
      this.delay[this.place] = out[i];
      this.place = (this.place + 1) % this.delay.length;
      out[i] = Math.max(-1, Math.min(1, late));
    }
  }
}

class Mixer extends AudioWorkletProcessor {
  constructor() {
    super();
    this.voices = new Map();
    this.limiter = new Limiter();
    this.volume = 1;
    this.wantedVolume = 1;
    this.energy = 0;
    this.counted = 0;
    this.quiet = true;
    this.tapping = false;
    this.port.onmessage = ({ data }) => this.hear(data);
  }

  /** Does what a message says; where that is a voice's to do, has the one of its id do it, if it is still there. */
  hear(message) {
    const doer = message.type in this ? this : this.voices.get(message.id);
    doer?.[message.type](message);
  }

  listen({ port }) {
    port.onmessage = this.port.onmessage;
  }

  start(message) {
    const playing = [...this.voices.values()].filter(({ stopping }) => !stopping);
    if (playing.length >= MOST_VOICES) this.#steal(playing[0]);
    this.voices.set(message.id, new Voice(message));
  }

  setVolume({ value }) {
    this.wantedVolume = value;
  }

  tap({ on }) {
    this.tapping = on;
  }

  process(_inputs, [channels]) {
    const out = channels[0];
    for (const voice of this.voices.values()) this.#mix(voice, out);
    for (let i = 0; i < out.length; i++) {
      this.volume += (this.wantedVolume - this.volume) * 0.002;
      out[i] = Number.isFinite(out[i]) ? out[i] * this.volume : 0; // or the limiter would never come back from it
    }
    this.limiter.process(out);
    for (let other = 1; other < channels.length; other++) channels[other].set(out);
    this.#measure(out);
    if (this.tapping) this.port.postMessage({ type: "tapped", samples: out.slice(), frame: currentFrame });
    return true;
  }

  /** Fades a voice out. One that is not heard goes at once: while the context stands still, nothing is mixed. */
  #steal(voice) {
    this.port.postMessage({ type: "stolen", id: voice.id });
    voice.stop({ fade: 0.02 });
    if (voice.over) this.#end(voice);
  }

  #end({ id }) {
    this.voices.delete(id);
    this.port.postMessage({ type: "done", id });
  }

  #mix(voice, out) {
    if (voice.mix(out)) this.port.postMessage({ type: "sound", id: voice.id, wall: Date.now() });
    if (voice.starved) {
      voice.starved = false;
      this.port.postMessage({ type: "starved", id: voice.id });
    }
    if (voice.over) this.#end(voice);
  }

  #measure(out) {
    for (const value of out) this.energy += value * value;
    this.counted += out.length;
    if (this.counted < LEVEL_SECONDS * sampleRate) return;
    const rms = Math.sqrt(this.energy / this.counted);
    const quiet = rms < 1e-5;
    if (!quiet || !this.quiet) this.port.postMessage({ type: "level", rms: quiet ? 0 : rms });
    [this.energy, this.counted, this.quiet] = [0, 0, quiet];
  }
}

registerProcessor("timbrel-mixer", Mixer);
