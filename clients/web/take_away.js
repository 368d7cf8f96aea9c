// A recording dropped on the map, or chosen: where it lies.

import { call } from "./api.js";

const MOST_BYTES = 32 * 2 ** 20;

/** Calls `found({x, y, pitch, nearest}, name)` for each recording that has a place. */
export class Drop {
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

  /** Asks where a file lies. */
  async locate(file) {
    if (file.size > MOST_BYTES) {
      this.messages.show(`${file.name} has ${Math.round(file.size / 2 ** 20)} MiB; a recording may have 32.`, "bad");
      return;
    }
    this.messages.stand("locating", `Listening to ${file.name}…`, "plain");
    try {
      const response = await call("/api/locate", { method: "POST", body: file });
      this.found(await response.json(), file.name);
    } catch (error) {
      this.messages.show(`${file.name}: ${error.message}`, "bad");
    } finally {
      this.messages.clear("locating");
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
    const file = event.dataTransfer?.files?.[0];
    if (!file) return;
    event.preventDefault();
    this.locate(file);
  }

  #show(shown) {
    this.hint.hidden = !shown;
  }
}
