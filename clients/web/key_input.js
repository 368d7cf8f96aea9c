// MIDI keyboards: velocity, the sustain pedal, and devices that come and go.

const [NOTE_OFF, NOTE_ON, CONTROL] = [0x80, 0x90, 0xb0];
const [SUSTAIN, ALL_SOUND_OFF, ALL_NOTES_OFF] = [64, 120, 123];

export class Midi {
  #access = null;

  constructor(button, hands, messages) {
    this.button = button;
    this.hands = hands;
    this.messages = messages;
    button.addEventListener("click", () => this.connect());
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
      this.#access = await navigator.requestMIDIAccess();
    } catch {
      this.messages.show("MIDI was not allowed.", "bad");
      return;
    }
    this.#access.addEventListener("statechange", () => this.#listen());
    this.#listen();
    const names = this.#inputs().map(({ name }) => name);
    this.messages.show(names.length ? `MIDI: ${names.join(", ")}` : "MIDI is on: plug in a keyboard.", "good");
  }

  /** Takes one MIDI message, bytes. */
  take([status, number, value]) {
    const kind = status & 0xf0;
    if (kind === NOTE_ON && value > 0) this.hands.down("midi", number, value);
    else if (kind === NOTE_OFF || kind === NOTE_ON) this.hands.up("midi", number);
    else if (kind === CONTROL && number === SUSTAIN) this.hands.setPedal(value >= 64);
    else if (kind === CONTROL && (number === ALL_NOTES_OFF || number === ALL_SOUND_OFF)) this.hands.release();
  }

  /** Where it was allowed before, nobody need ask again. */
  async #resume() {
    try {
      const { state } = await navigator.permissions.query({ name: "midi" });
      if (state !== "granted" || !navigator.requestMIDIAccess) return;
      this.#access = await navigator.requestMIDIAccess();
      this.#access.addEventListener("statechange", () => this.#listen());
      this.#listen();
    } catch {
      // A browser that does not know the permission: the button asks.
    }
  }

  #inputs() {
    return [...this.#access.inputs.values()].filter(({ state }) => state === "connected");
  }

  #listen() {
    for (const input of this.#access.inputs.values()) input.onmidimessage = ({ data }) => this.take(data);
    const names = this.#inputs().map(({ name }) => name);
    this.button.setAttribute("aria-pressed", String(names.length > 0));
    this.button.title = names.join(", ") || "No MIDI keyboard";
  }
}
