// Who holds which key: the piano's keys, the computer's and MIDI's, each press with a note of its own.

/** Pedal down, notes stay until it comes up. */
export class Hands {
  #held = new Map(); // source and pitch to note
  #sustained = [];

  constructor(player, notes, keyboard) {
    this.player = player;
    this.notes = notes;
    this.keyboard = keyboard;
    this.pedal = false;
  }

  /** A key goes down; `source` tells apart two ways of pressing the same key. */
  down(source, pitch, velocity) {
    const name = `${source} ${pitch}`;
    if (this.#held.has(name)) return;
    const note = this.player.key(pitch, velocity);
    if (!note) return;
    this.#held.set(name, note);
    this.keyboard.mark(pitch, true);
  }

  up(source, pitch) {
    const name = `${source} ${pitch}`;
    const note = this.#held.get(name);
    if (!note) return;
    this.#held.delete(name);
    this.keyboard.mark(pitch, false);
    if (this.pedal) this.#sustained.push(note);
    else this.notes.off(note);
  }

  setPedal(down) {
    this.pedal = down;
    if (down) return;
    for (const note of this.#sustained.splice(0)) this.notes.off(note);
  }

  /** Every key up, as where the window is left. */
  release() {
    this.setPedal(false);
    for (const name of [...this.#held.keys()]) {
      const [source, pitch] = name.split(" ");
      this.up(source, Number(pitch));
    }
  }
}
