// MIDI keyboards: velocity and pedal; bends, MPE, vibrato, pressure, brightness, portamento and levels; devices.

import { MOST_CENTS } from "./notes.js";
import { clamp } from "./state.js";

const [NOTE_OFF, NOTE_ON, KEY_PRESSURE, CONTROL, PROGRAM, PRESSURE, WHEEL] = [0x8, 0x9, 0xa, 0xb, 0xc, 0xd, 0xe];
const [MODULATION, PORTAMENTO_TIME, DATA, VOLUME, EXPRESSION, DATA_FINE] = [1, 5, 6, 7, 11, 38];
const [SUSTAIN, PORTAMENTO, SOSTENUTO, SOFT_PEDAL, BRIGHTNESS, PORTAMENTO_FROM] = [64, 65, 66, 67, 74, 84];
const [INCREMENT, DECREMENT, NRPN_FINE, NRPN, RPN_FINE, RPN] = [96, 97, 98, 99, 100, 101];
const [ALL_SOUND_OFF, RESET, ALL_NOTES_OFF, MONO] = [120, 121, 123, 126]; // from 123 on modes, which end notes, too
const [BEND_RANGE, FINE_TUNING, COARSE_TUNING, PROGRAM_TUNED, BANK_TUNED, VIBRATO_RANGE, MPE_ZONE] = [0, 1, 2, 3, 4, 5, 6];
const SYSTEM_EXCLUSIVE = 0xf0;
const DRUMS = 9; // the channel that General MIDI gives them
const [REAL_TIME, DEVICE_CONTROL, MASTER_VOLUME, MASTER_FINE, MASTER_COARSE] = [0x7f, 0x04, 0x01, 0x03, 0x04];
/** What resets the whole device; of other bytes, null, any will do. */
const RESETS = [
  [0x7e, null, 0x09], // General MIDI
  [0x41, null, 0x42, 0x12, 0x40, 0x00, 0x7f, 0x00], // Roland's GS
  [0x43, null, 0x4c, 0x00, 0x00, 0x7e, 0x00], // Yamaha's XG
];
const NONE = [127, 127];
const DATA_CONTROLS = [DATA, DATA_FINE, INCREMENT, DECREMENT];
/** Parameters that are stepped through by their coarse part. */
const COARSE = [COARSE_TUNING, PROGRAM_TUNED, BANK_TUNED, MPE_ZONE];
const PERFORMED = [
  ...[MODULATION, VOLUME, EXPRESSION, BRIGHTNESS, SUSTAIN, SOSTENUTO, SOFT_PEDAL, PORTAMENTO, PORTAMENTO_TIME, PORTAMENTO_FROM],
  ...[RPN, RPN_FINE, NRPN, NRPN_FINE, ...DATA_CONTROLS],
];
/** Controllers that ask for nothing at 64; others ask for nothing at 0. */
const CENTRED = [8, 10, ...Array.from({ length: 10 }, (_, place) => 70 + place)];
/** What a zone's manager says to all of its members. */
const FOR_ZONES = [SUSTAIN, SOSTENUTO, SOFT_PEDAL, PORTAMENTO, PORTAMENTO_TIME, ALL_SOUND_OFF, RESET, ALL_NOTES_OFF];

const [BEND_SEMITONES, MPE_BEND_RANGE] = [2, 48]; // the latter of an MPE zone's members
const VIBRATO_HERTZ = 5.5;
const PRESSURE_DB = 6; // louder, and brighter
const BRIGHTNESS_DB = 12; // of the controller, which is MPE's slide, at its ends
const CENTRE = 64; // where it changes nothing
const SOFT_SHARE = 0.75; // of its velocity, with which a key is struck while the soft pedal is down
const PORTAMENTO_SECONDS = 2; // the slowest
const DEFAULT_VOLUME = 100; // at which a note sounds as it came
const OVERLAP = 30; // milliseconds by which a key may be struck again before its former stroke ends
const TICK = 20; // milliseconds between two places of a vibrato or a glide

/** One channel: its wheels and controllers, its registered parameters, and the notes that it began. */
class Channel {
  constructor() {
    this.notes = new Set();
    this.pedals = new Set(); // ports whose sustain pedal is down
    this.sostenutos = new Set(); // ports whose sostenuto pedal is
    this.softs = new Set(); // and whose soft pedal is
    this.keyPressure = new Map();
    this.powerOn();
  }

  /** All but its notes and pedals is as it is where nobody has said anything. */
  powerOn() {
    this.manager = null; // of the MPE zone that it is a member of
    this.portamentoTime = 0;
    this.lastKey = undefined;
    this.volume = DEFAULT_VOLUME;
    this.slide = CENTRE;
    this.values = new Map([[BEND_RANGE, [BEND_SEMITONES, 0]], [FINE_TUNING, [64, 0]], [COARSE_TUNING, [64, 0]], [VIBRATO_RANGE, [0, 64]]]);
    this.reset();
  }

  reset() {
    this.wheel = this.modulation = this.pressure = 0;
    this.expression = 127;
    this.keyPressure.clear();
    this.portamento = false;
    this.glideFrom = null;
    this.registered = false;
    this.selected = NONE;
  }

  /** Cents of wheel and tuning; those of its notes' own, and of its zone's, come on top. */
  get cents() {
    const [[semitones, cents], fine, coarse] = [BEND_RANGE, FINE_TUNING, COARSE_TUNING].map((key) => this.values.get(key));
    const tuning = 100 * ((fine[0] * 128 + fine[1] - 8192) / 8192 + coarse[0] - 64);
    return this.wheel * (100 * semitones + cents) + tuning;
  }

  /** Where its note's own controllers are now. */
  get touch() {
    const { cents, vibrato, pressure, slide } = this;
    return { cents, vibrato, pressure, slide, keyPressure: new Map(this.keyPressure) };
  }

  get vibrato() {
    const [semitones, fine] = this.values.get(VIBRATO_RANGE);
    return (100 * (semitones + fine / 128) * this.modulation) / 127;
  }

  /** What data is for, where no such parameter is known here; null where one is, or none is selected. */
  get unknownParameter() {
    const [bank, parameter] = this.selected;
    if (this.selected.includes(127)) return null;
    if (!this.registered) return "a non-registered parameter (NRPN)";
    return bank || parameter > MPE_ZONE ? `registered parameter ${128 * bank + parameter}` : null;
  }

  select(registered, place, value) {
    this.selected = this.registered === registered ? [...this.selected] : [...NONE];
    this.selected[place] = value;
    this.registered = registered;
  }

  /** Takes data for the parameter that is selected; returns which was set, or null. */
  setData(control, value) {
    const [bank, parameter] = this.selected;
    if (!this.registered || bank !== 0 || parameter === 127) return null;
    const [coarse, fine] = this.values.get(parameter) ?? [0, 0];
    const base = parameter === BEND_RANGE ? 100 : 128; // the range's fine part counts cents
    const step = (control === INCREMENT ? 1 : -1) * (COARSE.includes(parameter) ? base : 1);
    const total = clamp(coarse * base + fine + step, [0, 128 * base - 1]);
    if (control === DATA) this.values.set(parameter, [value, 0]);
    else if (control === DATA_FINE) this.values.set(parameter, [coarse, value]);
    else this.values.set(parameter, [Math.floor(total / base), total % base]);
    return parameter;
  }
}

/** Sixteen channels, of whose messages the notes are begun, bent, made louder and ended. */
class Receiver {
  #channels = Array.from({ length: 16 }, () => new Channel());
  #sizes = new Map([[0, 0], [15, 0]]); // of MPE zones, by their manager
  #master = new Map(); // master tuning, fine and coarse: cents
  #masterVolume = 1; // of the whole device, whose square is the gain
  #timer = 0;
  #struck = 0; // keys, so far

  constructor(held, notes, bends, { onProgram, onMissed }) {
    this.held = held;
    this.notes = notes;
    this.bends = bends; // whether the bundle's notes do
    this.onProgram = onProgram; // of a program's number, 0 to 127; tells whether an instrument plays it
    this.onMissed = onMissed;
  }

  /** Takes one message, bytes, of a port. */
  take(bytes, port = "") {
    const [status, first, second] = bytes;
    const number = status & 0xf;
    const channel = this.#channels[number];
    const kind = status >> 4;
    if (kind === NOTE_ON && second > 0) this.#press(number, first, second, port);
    else if (kind === NOTE_OFF || kind === NOTE_ON) this.#keyUp(channel, first, port);
    else if (kind === CONTROL) this.#control(number, first, second, port);
    else if (kind === WHEEL) channel.wheel = (second * 128 + first - 8192) / 8192;
    else if (kind === PRESSURE) channel.pressure = first;
    else if (kind === KEY_PRESSURE) channel.keyPressure.set(first, second);
    else if (kind === PROGRAM && (number === DRUMS || !this.onProgram(first))) this.onMissed("a program of drums or noises");
    else if (status === SYSTEM_EXCLUSIVE) this.#takeExclusive(bytes);
    if (kind !== NOTE_OFF && (kind < 0xf || status === SYSTEM_EXCLUSIVE)) this.#update();
  }

  #takeExclusive(bytes) {
    const [, group, , subject, form, low, high] = bytes;
    if (RESETS.some((reset) => reset.every((each, place) => each === null || each === bytes[place + 1]))) {
      this.#powerOn();
      return;
    }
    const forAll = group === REAL_TIME && subject === DEVICE_CONTROL && high < 128; // not cut short
    if (forAll && form === MASTER_FINE) this.#master.set(form, (100 * (high * 128 + low - 8192)) / 8192);
    else if (forAll && form === MASTER_COARSE) this.#master.set(form, 100 * (high - 64));
    else if (forAll && form === MASTER_VOLUME) this.#masterVolume = (high * 128 + low) / (128 * 128 - 1);
    else if (!this.held.tuning.take(bytes)) this.onMissed("a system exclusive message");
  }

  /** Keys and pedals come up: those of a port that is gone, or of all. */
  release(port = null) {
    for (const channel of this.#channels) {
      for (const each of port === null ? channel.pedals : [port]) this.#pedal(channel, each, false);
      for (const each of port === null ? channel.sostenutos : [port]) this.#sostenuto(channel, each, false);
      for (const each of port === null ? channel.softs : [port]) channel.softs.delete(each);
      this.#lift(channel, (played) => port === null || played.port === port);
    }
  }

  #press(number, key, velocity, port) {
    if (!this.notes.audio.mayPlay()) return;
    const channel = this.#channels[number];
    const isDown = (played) => played.down && played.key === key && played.port !== port;
    if ([...channel.notes].some(isDown)) return; // two ports of a keyboard may say the same
    const endless = this.#strokes(channel, key, port).slice(0, -1); // pads may never let go
    this.#lift(channel, (played) => endless.includes(played));
    this.#endPedalled(channel, (played) => played.key === key); // struck again, as on a piano
    channel.keyPressure.delete(key); // what was said of it was for the stroke before
    const program = this.#program(channel);
    const place = this.held.tuning.place(key, number, ...program);
    const source = `midi${(this.#struck += 1)}`; // a key may be struck again while it is down
    const struck = channel.softs.size ? Math.max(1, Math.floor(SOFT_SHARE * velocity + 0.5)) : velocity;
    const note = this.held.down(source, key, struck, place);
    const from = channel.glideFrom ?? (channel.portamento ? channel.lastKey : undefined);
    [channel.glideFrom, channel.lastKey] = [null, key];
    if (!note && place) this.onMissed("a key beyond those of this bundle");
    if (!note) return;
    const began = performance.now();
    const seconds = PORTAMENTO_SECONDS * (channel.portamentoTime / 127) ** 2;
    const origin = this.held.tuning.place(from ?? key, number, ...program) ?? { pitch: from, cents: 0 };
    const cents = 100 * (origin.pitch - place.pitch) + origin.cents - place.cents;
    const glide = from === undefined || seconds === 0 ? null : { cents, seconds };
    const as = { cents: 0, gain: 1, brightness: 1, touch: null };
    const at = { source, number, key, program, port };
    channel.notes.add({ note, ...at, down: true, pedalled: false, caught: false, began, glide, ...as });
  }

  /**
   * A key comes up: all strokes of it by a port that are not let go. One that has only just begun while another is not let
   * go stays: sequencers end the former a moment late. Of one whose end was lost the next stroke is the end.
   */
  #keyUp(channel, key, port) {
    const strokes = this.#strokes(channel, key, port);
    const isLate = strokes.length > 1 && performance.now() - strokes.at(-1).began < OVERLAP;
    const ended = isLate ? strokes.slice(0, -1) : strokes;
    this.#lift(channel, (played) => ended.includes(played));
  }

  /** A key's strokes by a port that are not let go, the oldest first: two at most. */
  #strokes(channel, key, port) {
    return [...channel.notes].filter((played) => played.down && played.key === key && played.port === port);
  }

  /** Keys come up; a pedal holds their notes on. What an MPE channel says from then on is for its next note. */
  #lift(channel, chosen = () => true) {
    for (const played of channel.notes) {
      if (!played.down || !chosen(played)) continue;
      played.down = false;
      played.touch = channel.manager && channel.touch;
      played.pedalled = channel.pedals.size > 0 || played.caught;
      this.held.up(played.source, played.key, played.pedalled);
    }
  }

  #pedal(channel, port, down) {
    if (down) channel.pedals.add(port);
    else channel.pedals.delete(port);
    if (!channel.pedals.size) this.#endPedalled(channel, (played) => !played.caught);
  }

  /** The pedal that, going down, catches what sounds, and holds that alone. */
  #sostenuto(channel, port, down) {
    if (down && !channel.sostenutos.size) for (const played of channel.notes) played.caught = played.down || played.pedalled;
    if (down) channel.sostenutos.add(port);
    else channel.sostenutos.delete(port);
    if (channel.sostenutos.size) return;
    for (const played of channel.notes) played.caught = false;
    if (!channel.pedals.size) this.#endPedalled(channel);
  }

  #endPedalled(channel, chosen = () => true) {
    for (const played of channel.notes) {
      if (!played.pedalled || !chosen(played)) continue;
      played.pedalled = false;
      this.held.end(played.note, played.key);
    }
  }

  /** Nothing that the channel plays sounds on. */
  #silence(channel) {
    this.#lift(channel);
    for (const { note } of channel.notes) this.notes.cancel(note);
  }

  /** The tuning program and its bank with which a channel's keys are struck. */
  #program(channel) {
    const { values } = channel.manager ?? channel;
    return [PROGRAM_TUNED, BANK_TUNED].map((name) => values.get(name)?.[0] ?? 0);
  }

  #control(number, control, value, port) {
    const channel = this.#channels[number];
    this.#nameUnperformed(channel, control, value);
    if (FOR_ZONES.includes(control)) {
      for (const [member, { manager }] of this.#channels.entries()) {
        if (manager === channel) this.#control(member, control, value, port);
      }
    }
    if (control === MODULATION) channel.modulation = value;
    else if (control === VOLUME) channel.volume = value;
    else if (control === EXPRESSION) channel.expression = value;
    else if (control === BRIGHTNESS) channel.slide = value;
    else if (control === SUSTAIN) this.#pedal(channel, port, value >= 64);
    else if (control === SOSTENUTO) this.#sostenuto(channel, port, value >= 64);
    else if (control === SOFT_PEDAL) channel.softs[value >= 64 ? "add" : "delete"](port);
    else if (control === PORTAMENTO) channel.portamento = value >= 64;
    else if (control === PORTAMENTO_TIME) channel.portamentoTime = value;
    else if (control === PORTAMENTO_FROM) channel.glideFrom = value;
    else if (control === ALL_SOUND_OFF) this.#silence(channel);
    else if (control >= ALL_NOTES_OFF) this.#lift(channel);
    else if (control === RESET) this.#reset(channel);
    else if (control === RPN || control === RPN_FINE) channel.select(true, RPN - control, value);
    else if (control === NRPN || control === NRPN_FINE) channel.select(false, NRPN - control, value);
    else if (DATA_CONTROLS.includes(control)) this.#setData(channel, number, control, value);
  }

  /** Names what a controller asks for and nobody hears. */
  #nameUnperformed({ manager, unknownParameter }, control, value) {
    const own = { [VOLUME]: "volume", [EXPRESSION]: "expression" }[control];
    if (own && manager && value !== manager[own]) this.onMissed(`${own} of single MPE notes`);
    if (DATA_CONTROLS.includes(control) && unknownParameter) this.onMissed(unknownParameter);
    if (control === MONO && value !== 0) this.onMissed("mono mode");
    const nothing = CENTRED.includes(control) ? 64 : 0;
    const isKnown = PERFORMED.includes(control) || control >= ALL_SOUND_OFF;
    if (!isKnown && value !== nothing) this.onMissed(`controller ${control}`);
  }

  #reset(channel) {
    for (const port of channel.pedals) this.#pedal(channel, port, false);
    for (const port of channel.sostenutos) this.#sostenuto(channel, port, false);
    channel.softs.clear();
    channel.reset();
  }

  #powerOn() {
    for (const manager of this.#sizes.keys()) this.#sizes.set(manager, 0);
    for (const channel of this.#channels) {
      this.#reset(channel);
      channel.powerOn();
    }
    this.#master.clear();
    this.#masterVolume = 1;
    this.held.tuning.powerOn();
  }

  #setData(channel, number, control, value) {
    const parameter = channel.setData(control, value);
    if (parameter === MPE_ZONE) this.#configure(number, channel.values.get(MPE_ZONE)[0]);
    if (parameter !== BEND_RANGE || !channel.manager) return;
    for (const each of this.#channels) {
      if (each.manager === channel.manager) each.values.set(BEND_RANGE, channel.values.get(BEND_RANGE));
    }
  }

  /** MPE: a zone is made, resized or, with no members, undone; its ranges, and channels in and out, begin anew. */
  #configure(manager, size) {
    if (!this.#sizes.has(manager)) {
      this.onMissed("an MPE zone on another channel than 1 and 16");
      return;
    }
    const other = 15 - manager;
    this.#sizes.set(manager, Math.min(size, 15));
    if (size) this.#sizes.set(other, clamp(this.#sizes.get(other), [0, Math.max(0, 14 - size)]));
    const before = this.#channels.map((channel) => channel.manager);
    for (const channel of this.#channels) channel.manager = null;
    for (const [number, count] of this.#sizes) {
      const first = number === 0 ? 1 : 15 - count;
      for (const channel of this.#channels.slice(first, first + count)) {
        channel.manager = this.#channels[number];
      }
    }
    for (const [number, channel] of this.#channels.entries()) {
      const moved = channel.manager !== before[number];
      if (moved) {
        this.#reset(channel);
        channel.slide = CENTRE;
      } else if (number !== manager && channel.manager !== this.#channels[manager]) continue;
      channel.values.set(BEND_RANGE, [channel.manager ? MPE_BEND_RANGE : BEND_SEMITONES, 0]);
    }
  }

  /** Bends every note and sets its level; again soon, while something moves by itself. */
  #update() {
    let moving = false;
    for (const channel of this.#channels) {
      for (const played of channel.notes) {
        if (played.note.over && !played.down) channel.notes.delete(played);
        else moving = this.#shape(channel, played) || moving;
      }
    }
    clearTimeout(this.#timer);
    if (moving) this.#timer = setTimeout(() => this.#update(), TICK);
  }

  #shape(channel, played) {
    const seconds = (performance.now() - played.began) / 1000;
    const own = played.touch ?? channel;
    const both = channel.manager ? [own, channel.manager] : [own];
    const depth = Math.max(...both.map(({ vibrato }) => vibrato));
    const left = played.glide ? Math.max(0, 1 - seconds / played.glide.seconds) : 0;
    const { pitch: asked, cents: tuned } = played.note.request;
    const { key, number, program } = played;
    const place = this.held.tuning.place(key, number, ...program) ?? { pitch: asked, cents: tuned };
    const retuned = 100 * (place.pitch - asked) + place.cents - tuned; // by a message since it began
    const tunings = [retuned, ...this.#master.values(), ...both.map((each) => each.cents)];
    let cents = tunings.reduce((sum, each) => sum + each) + (left && left * played.glide.cents);
    cents += depth * Math.sin(2 * Math.PI * VIBRATO_HERTZ * seconds);
    if (cents !== clamp(cents, MOST_CENTS)) this.onMissed("part of a bend or glide beyond two octaves");
    cents = clamp(cents, MOST_CENTS);
    if (cents !== played.cents && !this.bends) this.onMissed("what bends or tunes this bundle's notes");
    else if (cents !== played.cents) this.notes.bend(played.note, (played.cents = cents));
    const { volume, expression } = channel.manager ?? channel;
    const pressure = Math.max(...both.flatMap((each) => [each.pressure, each.keyPressure.get(played.key) ?? 0]));
    const levels = (volume / DEFAULT_VOLUME) * (expression / 127) * this.#masterVolume;
    const gain = levels ** 2 * 10 ** ((PRESSURE_DB * pressure) / 127 / 20);
    if (gain !== played.gain) this.notes.setGain(played.note, (played.gain = gain));
    const slides = both.map(({ slide }) => Math.max(-1, (slide - CENTRE) / (127 - CENTRE)));
    const decibels = slides.reduce((sum, slide) => sum + BRIGHTNESS_DB * slide, (PRESSURE_DB * pressure) / 127);
    const brightness = 10 ** (decibels / 20);
    if (brightness !== played.brightness) this.notes.setBrightness(played.note, (played.brightness = brightness));
    return depth > 0 || left > 0;
  }
}

/** The browser's MIDI inputs, and the button that asks for them. */
export class MidiInput {
  #access = null;
  #missed = new Set();
  #hears = false; // of several tabs the one that was used last does

  constructor(button, held, notes, { bends, messages, onProgram }) {
    this.button = button;
    this.messages = messages;
    this.receiver = new Receiver(held, notes, bends, { onProgram, onMissed: (what) => this.#miss(what) });
    button.addEventListener("click", () => this.connect());
    for (const type of ["focus", "pointerdown", "keydown"]) addEventListener(type, () => this.#hear(), { capture: true });
    if (!document.hidden) this.#hear();
    this.#resume();
  }

  /** Asks for MIDI; a browser may ask its user first. */
  async connect() {
    if (!navigator.requestMIDIAccess) {
      const why = isSecureContext ? "This browser has no MIDI." : "MIDI on the network needs HTTPS.";
      this.messages.show(why, "bad");
      return;
    }
    try {
      await this.#open();
    } catch ({ name }) {
      const isRefused = ["NotAllowedError", "SecurityError"].includes(name);
      const missing = "MIDI did not start: the system lacks it (on Linux the module snd-seq), or another program holds it.";
      const refused = "MIDI was not allowed: allow it for this page in the browser, then click MIDI again.";
      this.messages.show(isRefused ? refused : missing, "bad");
      return;
    }
    const names = this.#inputs().map(({ name }) => name);
    this.messages.show(names.length ? `MIDI: ${names.join(", ")}` : "MIDI is on: plug in a keyboard.", "good");
  }

  /** Takes one MIDI message, bytes. */
  take(bytes, port) {
    this.receiver.take(bytes, port);
  }

  /** Every key and pedal comes up. */
  release() {
    this.receiver.release();
  }

  /** This tab hears the keyboards until another one does: each of two would play their notes. */
  #hear() {
    if (this.#hears) return;
    this.#hears = true;
    const forEver = () => new Promise(() => {});
    navigator.locks?.request("timbrel.midi", { steal: true }, forEver).catch(({ name }) => {
      if (name !== "AbortError") return; // a browser that keeps nothing has no locks
      this.#hears = false;
      this.release();
    });
  }

  /** Names what is not performed, once. */
  #miss(what) {
    if (this.#missed.has(what)) return;
    this.#missed.add(what);
    this.messages.show(`MIDI: ${what} is not performed here.`);
  }

  /** Where it was allowed before, nobody need ask again. */
  async #resume() {
    try {
      const { state } = await navigator.permissions.query({ name: "midi" });
      const { state: tuned } = await navigator.permissions.query({ name: "midi", sysex: true });
      if (state === "granted" && navigator.requestMIDIAccess) await this.#open(tuned === "granted");
    } catch {
      // A browser that does not know the permission: the button asks.
    }
  }

  async #open(sysex = true) {
    const access = await navigator.requestMIDIAccess({ sysex }).catch(() => navigator.requestMIDIAccess());
    for (const input of this.#access?.inputs.values() ?? []) input.onmidimessage = null; // or each message came twice
    if (this.#access) this.#access.onstatechange = null;
    this.#access = access;
    access.onstatechange = ({ port }) => {
      if (port.state === "disconnected") this.receiver.release(port.id);
      this.#listen();
    };
    this.#listen();
  }

  #inputs() {
    return [...this.#access.inputs.values()].filter(({ state }) => state === "connected");
  }

  #listen() {
    for (const input of this.#access.inputs.values()) {
      input.onmidimessage = ({ data }) => this.#hears && this.take(data, input.id);
    }
    const names = this.#inputs().map(({ name }) => name);
    this.button.setAttribute("aria-pressed", String(names.length > 0));
    this.button.title = names.join(", ") || "No MIDI keyboard";
  }
}
