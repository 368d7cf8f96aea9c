// The player: the map's notes one at a time, keys as a chord, previews under the pointer.

import { Emitter } from "./browser.js";
import { requestOf } from "./note_request.js";
import { MOST_CENTS } from "./notes.js";
import { clamp, drawSeed } from "./state.js";

const PREVIEW_GAIN = 0.7;
const PREVIEW_SECONDS = 1; // where the length is "hold"
const UNHELD_SECONDS = 4; // of a note that is held, as long as nobody has held it

/** Events: `current` {note}, the note that is shown and can be taken away. */
export class Player extends Emitter {
  #map = []; // the map's note, or a chord that is played again
  #preview = null;

  constructor(state, notes, audio, model) {
    super();
    this.state = state;
    this.notes = notes;
    this.audio = audio;
    this.model = model;
    this.locked = true; // whether the seed stays
    this.current = null;
  }

  /** What would be asked for now. */
  request(changes = {}) {
    const request = requestOf(this.state.values);
    if (this.holds) request.seconds = Math.min(UNHELD_SECONDS, this.model.seconds[1]);
    return { ...request, ...changes };
  }

  get holds() {
    return this.state.get("s") === "hold";
  }

  /** The map's note; the one before fades. Where the length is "hold" it lasts until `letGo`. */
  strike(changes = {}, { held = this.holds } = {}) {
    this.#clear();
    this.#map = [this.#begin(this.request(changes), { held })];
    return this.#map[0];
  }

  /** The keys that are down follow the marker, where the bundle's notes can; false where there are none. */
  follow() {
    const { x, y } = this.state.values;
    return this.model.moves && this.notes.move(x, y);
  }

  /** A note of a path: the one before is let go of, and dies away by itself. */
  step() {
    this.endPreview(0.04);
    const before = this.#map;
    this.#map = [this.#begin(this.request(), { held: true, passing: true })];
    for (const note of before) this.notes.off(note);
    return this.#map[0];
  }

  /** The map's key goes up. */
  letGo() {
    for (const note of this.#map) this.notes.off(note);
  }

  /** Takes the map's note back, as where a second finger turns a touch into a pinch. */
  takeBack() {
    for (const note of this.#map.splice(0)) this.notes.cancel(note, 0.02);
  }

  /**
   * A key goes down: a note of its own, held until `notes.off`; `chord`, the requests of those it joins. Beyond the
   * bundle's pitches it is the nearest of them, bent; null where that is further than notes bend.
   */
  key({ pitch, cents }, velocity = this.state.get("v"), chord = []) {
    this.endPreview(0.04);
    const { pitch: pitches, velocity: velocities } = this.model;
    const nearest = clamp(pitch, pitches);
    const bent = cents + 100 * (pitch - nearest);
    if (nearest !== pitch && !(this.model.bends && bent === clamp(bent, MOST_CENTS))) return null;
    this.state.set({ p: nearest, c: bent });
    const request = this.request({ velocity: clamp(velocity, velocities) });
    return this.#begin(request, { held: true, chord });
  }

  /** What a click at (x, y) would sound like, softer. */
  preview(x, y) {
    if (!this.audio.running || this.#preview) return;
    const seconds = this.holds ? PREVIEW_SECONDS : this.state.get("s");
    this.#preview = this.notes.play(this.request({ x, y, seconds }), { gain: PREVIEW_GAIN });
  }

  endPreview(fade = 0.08) {
    if (this.#preview) this.notes.cancel(this.#preview, fade);
    this.#preview = null;
  }

  /** Plays some requests again, all at once, as they were. */
  repeat(chord) {
    this.#clear();
    this.#map = chord.map((request) => this.notes.play(request));
    this.#map.forEach((note, place) => this.#show(note, chord, place));
  }

  silence() {
    this.endPreview();
    this.notes.silence();
  }

  #clear() {
    this.endPreview(0.04);
    for (const note of this.#map) this.notes.cancel(note, 0.08);
  }

  #begin(request, { passing = false, chord = [], ...options }) {
    this.audio.unlock();
    if (!this.locked) this.state.set({ seed: drawSeed() });
    const note = this.notes.play({ ...request, seed: this.state.get("seed") }, options);
    note.passing = passing; // one of many on a path
    return this.#show(note, chord, chord.push(note.request) - 1);
  }

  #show(note, chord, place) {
    this.current = Object.assign(note, { chord, place, setVelocity: this.state.get("v") }); // a key has its own
    this.emit("current", { note });
    return note;
  }
}
