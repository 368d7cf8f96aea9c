// How keys are tuned: Scala's files, which the explorer's server reads, and MIDI Tuning messages on top of them.

import { postJson } from "./api.js";

const KEYS = 128;
const [NON_REAL_TIME, REAL_TIME, MIDI_TUNING] = [0x7e, 0x7f, 0x08];
const [BULK_DUMP, NOTE_CHANGE, BANK_DUMP, BANK_NOTE_CHANGE, OCTAVE_1, OCTAVE_2] = [1, 2, 4, 7, 8, 9];
const NAME_BYTES = 16;
const EQUAL = Array(KEYS).fill(0);

/** Cents above equal temperament of each key, of every tuning program and channel; and the button that loads a scale. */
export class Tuning {
  #base = EQUAL; // null: the key is silent
  #keys = new Map(); // bank, program and key to cents, by MIDI
  #classes = new Map(); // channel and pitch class to cents, by MIDI

  /** `onEqual` is called where equal temperament is chosen again. */
  constructor(button, input, { bends, messages, onEqual }) {
    this.button = button;
    this.messages = messages;
    button.addEventListener("click", () => {
      if (!bends) messages.show("The notes of this bundle do not bend: they keep to equal temperament.", "bad");
      else if (this.#base === EQUAL) input.click();
      else {
        this.#set(EQUAL, "Equal temperament again.");
        onEqual();
      }
    });
    input.addEventListener("change", async () => {
      const files = [...input.files];
      input.value = "";
      if (files.length) await this.load(files).catch((error) => messages.show(error.message, "bad"));
    });
  }

  /** The pitch and the cents beside it at which a key sounds; null where it is silent. */
  place(key, channel = -1, program = 0, bank = 0) {
    if (this.#base[key] === null) return null;
    const own = this.#keys.get(`${bank} ${program} ${key}`) ?? this.#base[key];
    const cents = own + (this.#classes.get(`${channel} ${key % 12}`) ?? 0);
    const shift = Math.round(cents / 100);
    return { pitch: key + shift, cents: cents - 100 * shift };
  }

  /** Takes a scale (.scl), perhaps with a keyboard map (.kbm). */
  async load(files) {
    const [scale, map] = ["scl", "kbm"].map((ending) => files.find(({ name }) => name.toLowerCase().endsWith(`.${ending}`)));
    if (!scale) throw new Error("Choose a Scala scale (.scl), and the keyboard map (.kbm) with it, if there is one.");
    const content = { scale: await scale.text(), scale_name: scale.name };
    if (map) Object.assign(content, { map: await map.text(), map_name: map.name });
    const { cents } = await postJson("api/tuning", content);
    this.#set(cents, `Tuned: ${[scale, map].filter(Boolean).map(({ name }) => name).join(", ")}`);
  }

  #set(cents, words) {
    this.#base = cents;
    this.button.setAttribute("aria-pressed", String(cents !== EQUAL));
    this.button.title = cents === EQUAL ? "Tune the keys by a Scala scale (.scl, .kbm)" : `${words}. Click for equal temperament.`;
    this.messages.show(words, "good");
  }

  /** Takes a system exclusive message, bytes; false where it is no tuning. */
  take([, group, , subject, form, ...rest]) {
    if (![NON_REAL_TIME, REAL_TIME].includes(group) || subject !== MIDI_TUNING) return false;
    if (form === OCTAVE_1 || form === OCTAVE_2) return this.#takeOctave(rest, form === OCTAVE_2);
    if (![BULK_DUMP, BANK_DUMP, NOTE_CHANGE, BANK_NOTE_CHANGE].includes(form)) return false;
    const bank = form === BANK_DUMP || form === BANK_NOTE_CHANGE ? rest.shift() : 0;
    const [program, count] = rest;
    const dump = form === BULK_DUMP || form === BANK_DUMP;
    const changes = dump
      ? EQUAL.map((_, key) => [key, ...rest.slice(1 + NAME_BYTES + 3 * key, 1 + NAME_BYTES + 3 * key + 3)])
      : Array.from({ length: count }, (_, place) => rest.slice(2 + 4 * place, 6 + 4 * place));
    for (const [key, semitone, high, low] of changes) {
      if (!(low < 128) || (semitone === 127 && high === 127 && low === 127)) continue; // cut short, or no change
      this.#keys.set(`${bank} ${program} ${key}`, 100 * (semitone + (high * 128 + low) / 16384 - key));
    }
    return true;
  }

  /** The pitch classes are as they were; tuning programs are a receiver's memory, and stay. */
  powerOn() {
    this.#classes.clear();
  }

  /** Scale and octave tuning: channels as bits, and a value for each of twelve pitch classes. */
  #takeOctave(rest, fine) {
    const values = rest.slice(3);
    if (values.length < (fine ? 24 : 12)) return false;
    const channels = rest[2] | (rest[1] << 7) | (rest[0] << 14);
    for (let place = 0; place < 12; place += 1) {
      const cents = fine ? (100 * (values[2 * place] * 128 + values[2 * place + 1] - 8192)) / 8192 : values[place] - 64;
      for (let channel = 0; channel < 16; channel += 1) {
        if ((channels >> channel) & 1) this.#classes.set(`${channel} ${place}`, cents);
      }
    }
    return true;
  }
}
