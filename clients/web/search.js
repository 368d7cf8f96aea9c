// Finding an instrument by name: a combobox with a list, after the ARIA authoring practices.

import { shapeIcon } from "./palette.js";

export class Search {
  #options = [];
  #active = -1;

  constructor(input, list, { points, palette, theme, choose }) {
    this.input = input;
    this.list = list;
    this.points = [...points].sort((one, other) => one.instrument.localeCompare(other.instrument));
    this.palette = palette;
    this.theme = theme;
    this.choose = choose;
    input.addEventListener("input", () => this.#open());
    input.addEventListener("click", () => this.#open());
    input.addEventListener("blur", () => this.#close());
    input.addEventListener("keydown", (event) => this.#key(event));
    list.addEventListener("pointerdown", (event) => event.preventDefault()); // the input keeps the focus
    list.addEventListener("click", (event) => this.#clicked(event));
  }

  #matches() {
    const words = plain(this.input.value).split(/\s+/).filter(Boolean);
    const fits = ({ instrument, family }) => {
      const text = plain(`${instrument} ${family}`);
      return words.every((word) => text.includes(word));
    };
    const first = words[0] ?? "";
    const begins = ({ instrument }) => plain(instrument).startsWith(first);
    return this.points.filter(fits).sort((one, other) => Number(begins(other)) - Number(begins(one)));
  }

  #open() {
    this.#options = this.#matches();
    this.list.replaceChildren(...this.#options.map((point, index) => this.#option(point, index)));
    if (!this.#options.length) this.list.append(this.#nothing());
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
    const option = document.createElement("li");
    option.id = `search-${index}`;
    option.setAttribute("role", "option");
    option.setAttribute("aria-selected", "false");
    option.dataset.index = index;
    const { hue, shape } = this.palette[point.family];
    const family = document.createElement("small");
    family.textContent = point.family;
    option.append(shapeIcon(shape, hue[this.theme.shade]), point.instrument, family);
    return option;
  }

  #nothing() {
    const item = document.createElement("li");
    item.className = "nothing";
    item.setAttribute("role", "option");
    item.setAttribute("aria-disabled", "true");
    item.setAttribute("aria-selected", "false");
    item.textContent = "No instrument of that name";
    return item;
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
    const count = this.#options.length;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (this.list.hidden) this.#open();
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (this.#options.length) this.#activate((this.#active + step + this.#options.length) % this.#options.length);
    } else if (event.key === "Enter" && !this.list.hidden && count) {
      event.preventDefault();
      this.#take(Math.max(0, this.#active));
    } else if (event.key === "Escape") {
      this.input.value = "";
      this.#close();
      event.stopPropagation();
    }
  }

  #clicked(event) {
    const option = event.target.closest("[data-index]");
    if (option) this.#take(Number(option.dataset.index));
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
