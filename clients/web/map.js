// The map's part of the page: the disc, its legend, the search for an instrument, and the buttons beside them.

import { $, element, remember, remembered } from "./browser.js";
import { Disc } from "./disc/disc.js";
import { Legend, makePalette, shapeIcon } from "./families.js";
import { counted, placeName } from "./names.js";
import { round } from "./state.js";

const NOTHING = "No instrument of that name";

export class TimbreMap {
  constructor({ points, state, player, audio, theme, messages }) {
    this.points = points;
    this.state = state;
    this.player = player;
    this.messages = messages;
    this.palette = makePalette(points);
    const { palette } = this;
    this.disc = new Disc($("disc"), { points, palette, state, player, theme, still: () => theme.still });
    this.legend = new Legend($("legend"), $("families-all"), { points, palette, disc: this.disc });
    const say = (words) => messages.say(words);
    const search = { points, swatch: (point) => this.#icon(point), choose: (point) => this.#goTo(point), say };
    new Search($("search"), $("search-list"), search);
    $("zoom-in").addEventListener("click", () => this.disc.zoom(1.5));
    $("zoom-out").addEventListener("click", () => this.disc.zoom(1 / 1.5));
    $("zoom-home").addEventListener("click", () => this.disc.home());
    audio.addEventListener("level", ({ detail }) => this.disc.setLevel(detail.rms));
    theme.addEventListener("change", () => this.disc.recolour());
    this.#readOut();
    this.#choosePreviews();
  }

  /** A place in words: "Oboe", "Between Oboe and Trumpet". */
  placeWords(x, y) {
    return placeName(this.disc.nearest(x, y));
  }

  /** The lowest and the highest pitch that the instrument nearest to a place was trained on; all where none says so. */
  trained(x, y) {
    const [nearest] = this.disc.nearest(x, y, 1);
    const { pitch_min: lowest, pitch_max: highest } = nearest?.point ?? {};
    return highest ? [lowest, highest] : this.player.model.pitch;
  }

  /** Goes to the instrument that plays a General MIDI program, 0 to 127; tells whether there is one. */
  choose(program) {
    const point = this.points.find(({ programs }) => programs?.includes(program));
    if (point) this.#show(point);
    return Boolean(point);
  }

  /** Colour and shape of the instrument that a place is nearest to; nothing where a bundle names none. */
  swatch({ x, y }) {
    const [nearest] = this.disc.nearest(x, y, 1);
    return nearest ? this.#icon(nearest.point) : "";
  }

  /** Shows where a recording lies, what it may be, and plays from there; or says that nothing is near. */
  located({ x, y, near, nearest }, file) {
    if (near === false) {
      this.messages.show(`${file}: nothing on this map is near.`, "bad", 9000);
      return;
    }
    this.disc.located = { x, y };
    this.state.set({ x, y }, { keep: true });
    this.disc.view.reveal(x, y);
    this.disc.redraw();
    const names = nearest.slice(0, 3).map(({ instrument, share }) =>
      Number.isFinite(share) ? `${instrument} (${Math.round(100 * share)} %)` : instrument);
    this.messages.show(`${file}: nearest are ${names.join(", ")}.`, "good", 9000);
    this.player.strike({}, { held: false });
  }

  #icon({ family }) {
    const { hue, shape } = this.palette.get(family);
    return shapeIcon(shape, hue);
  }

  #show({ x, y, instrument }) {
    this.disc.goTo(round(x, 4), round(y, 4));
    this.messages.say(instrument);
  }

  #goTo(point) {
    this.#show(point);
    $("disc").focus({ preventScroll: true }); // letters play again
    this.player.strike({}, { held: false });
  }

  /** Tells screen readers where the pointer or the arrow keys went. */
  #readOut() {
    let timer = 0;
    this.disc.addEventListener("moved", ({ detail }) => {
      clearTimeout(timer);
      timer = setTimeout(() => this.messages.say(this.placeWords(detail.x, detail.y)), 350);
    });
  }

  #choosePreviews() {
    $("previews").checked = this.disc.previews = remembered("previews", true) !== false;
    $("previews").addEventListener("change", ({ target }) => {
      this.disc.previews = target.checked;
      remember("previews", target.checked);
    });
  }
}

/** Finds an instrument by name: a combobox with a list, after the ARIA authoring practices. */
class Search {
  #byName = null; // the points in order, from when one first searches: a language's order takes long to look up
  #options = [];
  #active = -1;

  constructor(input, list, { points, swatch, choose, say }) {
    this.input = input;
    this.list = list;
    this.points = points;
    this.swatch = swatch;
    this.choose = choose;
    input.addEventListener("input", () => {
      this.#open();
      const count = this.#options.length;
      say(count ? counted(count, "instrument") : NOTHING);
    });
    input.addEventListener("click", () => this.#open());
    input.addEventListener("blur", () => this.#close());
    input.addEventListener("keydown", (event) => this.#key(event));
    list.addEventListener("pointerdown", (event) => event.preventDefault()); // the input keeps the focus
    list.addEventListener("click", ({ target }) => {
      const option = target.closest("[data-index]");
      if (option) this.#take(Number(option.dataset.index));
    });
  }

  #matches() {
    const words = plain(this.input.value).split(/\s+/).filter(Boolean);
    const fits = ({ instrument, family }) => {
      const text = plain(`${instrument} ${family}`);
      return words.every((word) => text.includes(word));
    };
    const first = words[0] ?? "";
    const begins = ({ instrument }) => plain(instrument).startsWith(first);
    this.#byName ??= [...this.points].sort((one, other) => one.instrument.localeCompare(other.instrument));
    return this.#byName.filter(fits).sort((one, other) => Number(begins(other)) - Number(begins(one)));
  }

  #open() {
    this.#options = this.#matches();
    this.list.replaceChildren(...this.#options.map((point, index) => this.#option(point, index)));
    if (!this.#options.length) {
      const attributes = { className: "nothing", role: "option", "aria-disabled": "true", "aria-selected": "false" };
      this.list.append(element("li", attributes, NOTHING));
    }
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.#activate(this.input.value.trim() && this.#options.length ? 0 : -1);
  }

  #close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.#activate(-1);
  }

  #option(point, index) {
    const attributes = { id: `search-${index}`, role: "option", "aria-selected": "false", "data-index": index };
    return element("li", attributes, this.swatch(point), point.instrument, element("small", {}, point.family));
  }

  #activate(index) {
    this.list.children[this.#active]?.setAttribute("aria-selected", "false");
    this.#active = index;
    const option = index >= 0 ? this.list.children[index] : null;
    if (!option) {
      this.input.removeAttribute("aria-activedescendant");
      return;
    }
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", option.id);
  }

  #key(event) {
    if (event.isComposing) return; // an input method's own arrows and Enter
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (this.list.hidden) this.#open();
      const count = this.#options.length;
      const next = event.key === "ArrowDown" ? this.#active + 1 : Math.max(0, this.#active) - 1; // from none to the last
      if (count) this.#activate((next + count) % count);
    } else if (event.key === "Enter" && this.#active >= 0) {
      event.preventDefault();
      this.#take(this.#active);
    } else if (event.key === "Escape") {
      this.input.value = "";
      this.#close();
      event.stopPropagation();
    }
  }

  #take(index) {
    const point = this.#options[index];
    this.input.value = "";
    this.#close();
    this.choose(point);
  }
}

function plain(text) {
  return text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase().trim();
}
