// What the page has to say: short lines that go by themselves, and words for screen readers only.

const STAY = 5000; // milliseconds

export class Messages {
  #standing = new Map(); // lines that stay until taken back, by name
  #latest = new Map(); // texts on show

  constructor(list, spoken) {
    this.list = list;
    this.spoken = spoken;
  }

  /** A line; `kind`: plain, good or bad. The same line is not shown twice at once. */
  show(text, kind = "plain", stay = STAY) {
    this.#latest.get(text)?.remove();
    const line = this.#line(text, kind);
    this.#latest.set(text, line);
    setTimeout(() => this.#forget(text, line), kind === "bad" ? stay * 1.6 : stay);
    while (this.list.children.length > 4) this.list.firstElementChild.remove();
  }

  /** A line that stays until `clear(name)`. */
  stand(name, text, kind = "bad") {
    if (this.#standing.get(name)?.dataset.text === text) return;
    this.clear(name);
    const line = this.#line(text, kind);
    line.dataset.text = text;
    this.#standing.set(name, line);
  }

  stands(name) {
    return this.#standing.has(name);
  }

  clear(name) {
    this.#standing.get(name)?.remove();
    return this.#standing.delete(name);
  }

  /** For screen readers. */
  say(text) {
    this.spoken.textContent = text;
  }

  #forget(text, line) {
    line.remove();
    if (this.#latest.get(text) === line) this.#latest.delete(text);
  }

  #line(text, kind) {
    const line = document.createElement("div");
    line.className = "message";
    line.dataset.kind = kind;
    const words = document.createElement("span");
    words.textContent = text;
    const close = document.createElement("button");
    close.type = "button";
    close.className = "plain";
    close.setAttribute("aria-label", "Dismiss");
    close.append(icon("close"));
    close.addEventListener("click", () => line.remove());
    line.append(words, close);
    this.list.append(line);
    return line;
  }
}

/** One of the page's symbols. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(svg.namespaceURI, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}
