// Sounds that were kept, and those played last, chords among them: lists of requests.

import { $, element, icon, remember, remembered } from "./browser.js";
import { pitchName } from "./names.js";
import { isRequest, sameSound } from "./note_request.js";

const MOST_RECENT = 12;
const MOST_KEPT = 200;

export class Favourites {
  constructor({ name, colour, recall, messages, fields }) {
    this.name = name; // (request) to words
    this.colour = colour; // (request) to a swatch
    this.recall = recall;
    this.messages = messages;
    const stored = remembered("kept", []); // it may be anything
    // What was kept before there was a field has its usual value.
    const usual = Object.fromEntries(fields.map((field) => [field.name, field.start]));
    const filled = Array.isArray(stored) ? stored.map((each) => ({ ...usual, ...each })) : [];
    this.kept = filled.filter(isRequest);
    this.recent = [];
    this.#show();
  }

  /** Whether a request is among the kept. */
  has(request) {
    return this.kept.some((other) => sameSound(other, request));
  }

  /** Keeps a sound, or drops it again; returns whether it is kept now. */
  toggle(request) {
    const was = this.has(request);
    if (was) this.kept = this.kept.filter((other) => !sameSound(other, request));
    else this.kept = [request, ...this.kept].slice(0, MOST_KEPT);
    if (!remember("kept", this.kept)) {
      this.messages.show("This browser keeps nothing: the list goes when the page is closed.");
    }
    this.#show();
    return !was;
  }

  /** Notes what was played; the same list again has grown, or knows its lengths. */
  played(chord) {
    this.recent = [chord, ...this.recent.filter((other) => other !== chord && !sameChord(other, chord))];
    this.recent.length = Math.min(this.recent.length, MOST_RECENT);
    this.#show();
  }

  #show() {
    $("kept").replaceChildren(...this.kept.map((request) => this.#entry([request], true)));
    $("recent").replaceChildren(...this.recent.map((chord) => this.#entry(chord, false)));
    $("kept-none").hidden = this.kept.length > 0;
    $("recent-none").hidden = this.recent.length > 0;
  }

  #entry(chord, removable) {
    const [request] = chord;
    const pitches = [...new Set(chord.map(({ pitch }) => pitch))].sort((one, other) => one - other);
    const names = element("small", {}, pitches.map(pitchName).join(" "));
    const words = [element("span", {}, this.name(request)), names];
    const recall = { type: "button", className: "sound", onclick: () => this.recall(chord) };
    const entry = element("li", {}, element("button", recall, this.colour(request), ...words));
    if (removable) entry.append(this.#remover(request));
    return entry;
  }

  #remover(request) {
    const remove = () => {
      this.toggle(request);
      this.onchange?.();
    };
    const label = `Forget ${this.name(request)}`;
    const properties = { type: "button", className: "plain remove", "aria-label": label, onclick: remove };
    return element("button", properties, icon("close"));
  }
}

function sameChord(one, other) {
  return one.length === other.length && one.every((request, place) => sameSound(request, other[place]));
}
