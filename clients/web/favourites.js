// Sounds that were kept, and those played last.

import { pitchName } from "./names.js";
import { icon } from "./messages.js";
import { remember, remembered } from "./storage.js";

const MOST_RECENT = 12;
const MOST_KEPT = 200;

const $ = (id) => document.getElementById(id);

export class Favourites {
  constructor({ name, colour, recall, messages }) {
    this.name = name; // (request) to words
    this.colour = colour; // (request) to a swatch
    this.recall = recall;
    this.messages = messages;
    this.kept = sound(remembered("kept", []));
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

  /** Notes what was played. */
  played(request) {
    this.recent = [request, ...this.recent.filter((other) => !sameSound(other, request))];
    this.recent.length = Math.min(this.recent.length, MOST_RECENT);
    this.#show();
  }

  #show() {
    $("kept").replaceChildren(...this.kept.map((request) => this.#entry(request, true)));
    $("recent").replaceChildren(...this.recent.map((request) => this.#entry(request, false)));
    $("kept-none").hidden = this.kept.length > 0;
    $("recent-none").hidden = this.recent.length > 0;
  }

  #entry(request, removable) {
    const entry = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sound";
    const words = document.createElement("span");
    words.textContent = this.name(request);
    const pitch = document.createElement("small");
    pitch.textContent = pitchName(request.pitch);
    button.append(this.colour(request), words, pitch);
    button.addEventListener("click", () => this.recall(request));
    entry.append(button);
    if (removable) entry.append(this.#remover(request));
    return entry;
  }

  #remover(request) {
    const remove = document.createElement("button");
    remove.type = "button";
    remove.className = "plain remove";
    remove.setAttribute("aria-label", `Forget ${this.name(request)}`);
    remove.append(icon("close"));
    remove.addEventListener("click", () => {
      this.toggle(request);
      this.onchange?.();
    });
    return remove;
  }
}

/** Equal in all that one hears but the length. */
function sameSound(one, other) {
  return ["x", "y", "pitch", "velocity", "seed", "temperature"].every((key) => one[key] === other[key]);
}

/** What was stored may be anything: keeps what is a sound. */
function sound(stored) {
  if (!Array.isArray(stored)) return [];
  const keys = ["x", "y", "pitch", "velocity", "seconds", "seed", "temperature"];
  return stored.filter((entry) => entry && keys.every((key) => Number.isFinite(entry[key])));
}
