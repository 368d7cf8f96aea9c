// Sounds that were kept, and those played last, chords among them: lists of requests.

import { $, element, icon, onRemembered, remember, remembered } from "./browser.js";
import { pitchName } from "./names.js";
import { isRequest, sameSound } from "./note_request.js";

const MOST_RECENT = 12;
const MOST_KEPT = 200;

export class Favourites {
  #shown = new WeakMap(); // entry to its chord, as it was when it was shown

  constructor({ name, colour, recall, messages, fields, bundle }) {
    this.name = name; // (request) to words
    this.colour = colour; // (request) to a swatch
    this.recall = recall;
    this.messages = messages;
    this.bundle = bundle; // on the map of another one the same places are other sounds
    // What was kept before there was a field has its usual value.
    this.usual = Object.fromEntries(fields.map((field) => [field.name, field.start]));
    this.kept = [];
    this.others = []; // kept of other bundles
    this.recent = [];
    this.keeps = true; // whether the browser does
    onRemembered("kept", () => {
      this.#read();
      this.onchange?.();
    });
    this.#read();
  }

  /** Takes what is kept, by any tab. */
  #read() {
    const stored = this.keeps ? remembered("kept", []) : [...this.kept, ...this.others]; // it may be anything
    const filled = Array.isArray(stored) ? stored.map((each) => ({ ...this.usual, ...each })) : [];
    const isOther = ({ bundle = this.bundle }) => bundle !== this.bundle;
    this.kept = filled.filter((each) => isRequest(each) && !isOther(each));
    this.others = filled.filter((each) => isRequest(each) && isOther(each));
    this.#show();
  }

  /** Whether a request is among the kept. */
  has(request) {
    return this.kept.some((other) => sameSound(other, request));
  }

  /** Keeps a sound, or drops it again; returns whether it is kept now, or null where there is no room for it. */
  toggle(request) {
    this.#read();
    const was = this.has(request);
    if (!was && this.kept.length >= MOST_KEPT) {
      this.messages.show(`${MOST_KEPT} sounds are kept, as many as can be: forget one first.`, "bad");
      return null;
    }
    if (was) this.kept = this.kept.filter((other) => !sameSound(other, request));
    else this.kept = [{ ...request, bundle: this.bundle }, ...this.kept];
    this.keeps = remember("kept", [...this.kept, ...this.others]);
    if (!this.keeps) {
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
    this.#fill($("kept"), this.kept.map(({ bundle, ...request }) => [request]), true);
    this.#fill($("recent"), this.recent, false);
    $("kept-none").hidden = this.kept.length > 0;
    $("recent-none").hidden = this.recent.length > 0;
  }

  /** Shows chords in a list. Entries that stay are not made anew, so that neither focus nor a click is lost. */
  #fill(list, chords, removable) {
    const focused = document.activeElement;
    const old = [...list.children];
    const place = old.findIndex((each) => each.contains(focused));
    const entries = chords.map((chord) => {
      const entry = old.find((each) => sameChord(this.#shown.get(each), chord)) ?? this.#entry(chord, removable);
      this.#shown.set(entry, [...chord]);
      return entry;
    });
    for (const each of old) if (!entries.includes(each)) each.remove();
    entries.forEach((entry, at) => {
      if (list.children[at] !== entry) list.insertBefore(entry, list.children[at]);
    });
    if (list.contains(focused)) focused.focus({ preventScroll: true });
    else if (place >= 0) ((list.children[place] ?? list.lastElementChild)?.lastElementChild ?? $("keep")).focus();
  }

  #entry(chord, removable) {
    const [request] = chord;
    const pitches = [...new Set(chord.map(({ pitch }) => pitch))].sort((one, other) => one - other);
    const names = element("small", {}, pitches.map(pitchName).join(" "));
    const words = [element("span", {}, this.name(request)), names];
    const recall = () => this.recall(this.#shown.get(entry));
    const button = { type: "button", className: "sound", onclick: recall };
    const entry = element("li", {}, element("button", button, this.colour(request), ...words));
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
