// The letters of the computer's keyboard as piano keys, by their place and not by what is printed on them.

const PLACES = [
  ["KeyA", 0], ["KeyW", 1], ["KeyS", 2], ["KeyE", 3], ["KeyD", 4], ["KeyF", 5], ["KeyT", 6], ["KeyG", 7],
  ["KeyY", 8], ["KeyH", 9], ["KeyU", 10], ["KeyJ", 11], ["KeyK", 12], ["KeyO", 13], ["KeyL", 14], ["KeyP", 15],
  ["Semicolon", 16], ["Quote", 17],
];
const OFFSETS = new Map(PLACES);

export class ComputerKeys {
  #down = new Map(); // code to the pitch it plays

  constructor(hands, keyboard) {
    this.hands = hands;
    this.keyboard = keyboard;
    this.enabled = true;
    addEventListener("keydown", (event) => this.#pressed(event));
    addEventListener("keyup", (event) => this.#released(event.code));
    addEventListener("blur", () => this.#allUp());
  }

  #pressed(event) {
    if (!this.enabled || event.ctrlKey || event.metaKey || event.altKey || writes(event.target)) return;
    if (event.code === "KeyZ" || event.code === "KeyX") {
      if (!event.repeat) this.keyboard.shift(event.code === "KeyZ" ? -1 : 1);
      return;
    }
    const offset = OFFSETS.get(event.code);
    if (offset === undefined || event.repeat || this.#down.has(event.code)) return;
    event.preventDefault();
    const pitch = this.keyboard.base + offset;
    this.#down.set(event.code, pitch);
    this.hands.down("computer", pitch);
  }

  #released(code) {
    const pitch = this.#down.get(code);
    if (pitch === undefined) return;
    this.#down.delete(code);
    this.hands.up("computer", pitch);
  }

  #allUp() {
    for (const code of [...this.#down.keys()]) this.#released(code);
  }
}

/** Whether keys that go to this element write something, or choose in a list. */
export function writes(element) {
  if (!(element instanceof Element) || element.closest("dialog")) return true;
  if (element.matches("textarea, select, [contenteditable]")) return true;
  return element.matches("input") && !["range", "checkbox", "button"].includes(element.type);
}
