// The panel to take sounds away: files, links, code and instruments; and recordings that are brought along.

import { call } from "./api.js";
import { $, element } from "./browser.js";
import { InstrumentBuilder } from "./instrument.js";
import { commandOf, pythonOf, queryOf } from "./note_request.js";

const MOST_BYTES = 32 * 2 ** 20;
const WAV_RATE = 48000; // of what the browser decodes
const MOST_SECONDS = 120; // of a recording, which the explorer reads

/** `taken` gives the request that is taken away, `found` is told where a recording lies. */
export class TakeAway {
  constructor({ state, model, messages, placeWords, taken, found }) {
    this.messages = messages;
    new InstrumentBuilder({ state, model, placeWords, messages });
    new RecordingInput($("drop-hint"), $("recording"), { messages, found });
    const copies = {
      "copy-link": [() => state.link, "The link is copied."],
      "copy-python": [() => pythonOf(taken(), model), "The Python is copied."],
      "copy-command": [() => commandOf(taken(), model), "The command is copied."],
    };
    $("download").addEventListener("click", () => this.#attempt(() => downloadNote(taken())));
    for (const [id, [text, words]] of Object.entries(copies)) {
      $(id).addEventListener("click", () =>
        this.#attempt(async () => {
          await copy(text());
          messages.show(words, "good", 2500);
        }),
      );
    }
  }

  async #attempt(action) {
    try {
      await action();
    } catch (error) {
      this.messages.show(error.message, "bad");
    }
  }
}

/** Calls `found({x, y, near, nearest}, name)` for each recording that has a place. */
class RecordingInput {
  #asked = new AbortController();

  constructor(hint, input, { messages, found }) {
    this.hint = hint;
    this.messages = messages;
    this.found = found;
    input.addEventListener("change", () => {
      if (input.files[0]) this.locate(input.files[0]);
      input.value = "";
    });
    for (const type of ["dragenter", "dragover"]) addEventListener(type, (event) => this.#over(event));
    addEventListener("dragleave", (event) => event.relatedTarget || this.#show(false));
    addEventListener("drop", (event) => this.#dropped(event));
    addEventListener("dragend", () => this.#show(false));
  }

  /** Asks where a file lies; one that was asked for before, and is not there yet, is given up. */
  async locate(file) {
    if (file.size > MOST_BYTES) {
      this.messages.show(`${file.name} is larger than the 32 MiB that a recording may have.`, "bad");
      return;
    }
    this.#asked.abort();
    this.messages.clear("locating");
    const { signal } = (this.#asked = new AbortController());
    const body = await file.arrayBuffer().catch(() => null);
    if (signal.aborted) return;
    if (!body) {
      this.messages.show(`${file.name} cannot be read: is it a folder, or was it moved?`, "bad");
      return;
    }
    this.messages.stand("locating", `Listening to ${file.name}…`, "plain");
    try {
      const place = await locate(body, signal);
      if (!signal.aborted) this.found(place, file.name);
    } catch (error) {
      if (!signal.aborted) this.messages.show(`${file.name}: ${error.message}`, "bad");
    } finally {
      if (!signal.aborted) this.messages.clear("locating");
    }
  }

  #over(event) {
    if (![...(event.dataTransfer?.types ?? [])].includes("Files")) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "copy";
    this.#show(true);
  }

  #dropped(event) {
    this.#show(false);
    const [file, ...others] = event.dataTransfer?.files ?? [];
    if (!file) return;
    event.preventDefault();
    if (others.length) this.messages.show(`One recording at a time: of these, ${file.name} is located.`);
    this.locate(file);
  }

  #show(shown) {
    this.hint.hidden = !shown;
  }
}

/** Where a recording lies. What the explorer does not read the browser may: phones record in .m4a and .webm. */
async function locate(body, signal) {
  const ask = async (content) => (await call("api/locate", { method: "POST", body: content, signal })).json();
  try {
    return await ask(body);
  } catch (error) {
    const wav = error.code === "invalid_request" ? await wavOf(body) : null;
    if (!wav) throw error;
    return ask(wav);
  }
}

/** A sound file, mixed to one channel, as a WAV of floats; null where the browser cannot read it. */
async function wavOf(content) {
  const decoder = new OfflineAudioContext(1, 1, WAV_RATE);
  const sound = await decoder.decodeAudioData(content).catch(() => null);
  if (!sound?.length) return null;
  const samples = new Float32Array(Math.min(sound.length, MOST_SECONDS * WAV_RATE));
  for (let channel = 0; channel < sound.numberOfChannels; channel++) {
    const heard = sound.getChannelData(channel);
    for (let i = 0; i < samples.length; i++) samples[i] += heard[i] / sound.numberOfChannels;
  }
  const [bytes, float, channels, sampleBytes] = [samples.byteLength, 3, 1, 4];
  const head = new DataView(new ArrayBuffer(44));
  [..."RIFF    WAVEfmt "].forEach((letter, at) => head.setUint8(at, letter.charCodeAt(0)));
  [..."data"].forEach((letter, at) => head.setUint8(36 + at, letter.charCodeAt(0)));
  for (const [at, value] of [[4, 36 + bytes], [16, 16], [24, WAV_RATE], [28, WAV_RATE * sampleBytes], [40, bytes]]) {
    head.setUint32(at, value, true);
  }
  [float, channels].forEach((value, place) => head.setUint16(20 + 2 * place, value, true));
  [sampleBytes, 8 * sampleBytes].forEach((value, place) => head.setUint16(32 + 2 * place, value, true));
  return new Blob([head, samples]).arrayBuffer();
}

/** Saves the note as a 24-bit WAV: fetched first, so that a refusal becomes a message and not a broken page. */
async function downloadNote(request) {
  const response = await call(`api/note.wav?${queryOf(request)}`);
  const name = response.headers.get("Content-Disposition")?.match(/filename="?([^";]+)"?/)?.[1];
  const href = URL.createObjectURL(await response.blob());
  element("a", { href, download: name ?? `timbrel-${request.pitch}.wav` }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

/** Puts text where it can be pasted; raises where the browser refuses. */
async function copy(text) {
  const written = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  if (written) return;
  const area = element("textarea", { value: text }); // it is not there but over HTTPS, and may be refused
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused.focus();
  if (!copied) throw new Error("The browser does not let pages copy.");
}
