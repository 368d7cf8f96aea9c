// The bridge to the server: one WebSocket, in a worker, which comes back by itself, and what is known of both.

import { call, getJson } from "./api.js";
import { $, Emitter } from "./browser.js";

const FIRST_WAIT = 400; // milliseconds before the first new try
const LONGEST_WAIT = 8000;
const OPEN_WITHIN = 10000;
const PING_EVERY = 15000;
const PONG_WITHIN = 10000;
const ADDRESS = new URL("api/play", location.href.replace(/^http/, "ws")).href;

/**
 * Events: `open`, `closed`, `server` {state, message}, `hello` {bundle_hash, page}, of the bundle and the
 * page that are served from now on.
 * A note's own messages go to the handlers it was sent with: {audio, end, error, late}. Its sound goes to the mixer by itself.
 */
export class Bridge extends Emitter {
  #worker;
  #notes = new Map();
  #nextId = 1;
  #wait = FIRST_WAIT;
  #timer = 0;
  #pongTimer = 0;

  constructor(worker) {
    super();
    this.#worker = worker;
    this.open = false;
    this.connecting = false;
    worker.onmessage = ({ data }) => this.#receive(data);
    worker.onerror = ({ message }) => message !== undefined && this.#lost(); // without one it did not load
    addEventListener("online", () => this.#hurry());
    document.addEventListener("visibilitychange", () => document.hidden || this.#hurry());
    setInterval(() => this.#ping(), PING_EVERY);
  }

  connect() {
    clearTimeout(this.#timer);
    this.connecting = true;
    this.#worker.postMessage({ connect: ADDRESS });
    this.#timer = setTimeout(() => this.#worker.postMessage({ close: true }), OPEN_WITHIN);
  }

  /** An id that no live note has. */
  newId() {
    const id = this.#nextId;
    this.#nextId = id >= 0xffffffff ? 1 : id + 1;
    return id;
  }

  /** Asks for a note; false where there is no connection. */
  on(id, message, handlers) {
    if (!this.open) return false;
    this.#notes.set(id, handlers);
    this.#send({ type: "on", id, ...message });
    return true;
  }

  off(id) {
    if (this.#notes.has(id)) this.#send({ type: "off", id });
  }

  /** A note that is played live sounds so many cents from its pitch from now on. */
  bend(id, cents) {
    if (this.#notes.has(id)) this.#send({ type: "bend", id, cents });
  }

  /** A note that is played live takes on the timbre of another point from now on. */
  move(id, x, y) {
    if (this.#notes.has(id)) this.#send({ type: "move", id, x, y });
  }

  cancel(id) {
    if (this.#notes.delete(id)) this.#send({ type: "cancel", id });
  }

  get live() {
    return this.#notes.size;
  }

  #send(message) {
    if (this.open) this.#worker.postMessage({ send: message });
  }

  #receive({ opened, closed, sound, message }) {
    if (opened) this.#opened();
    else if (closed) this.#lost();
    else {
      this.#answered();
      if (sound) this.#notes.get(new DataView(sound).getUint32(0, true))?.audio(new Float32Array(sound, 4));
      else this.#hear(message);
    }
  }

  /** No answer is waited for: one came, or the connection that was asked is gone. */
  #answered() {
    clearTimeout(this.#pongTimer);
    this.#pongTimer = 0;
  }

  #hear(message) {
    if (message.type === "server" || message.type === "hello") this.emit(message.type, message);
    else if (message.id !== undefined) {
      const handlers = this.#notes.get(message.id);
      if (message.type === "end" || message.type === "error") this.#notes.delete(message.id);
      handlers?.[message.type]?.(message);
    } else if (message.type === "error") this.emit("server", { state: "error", ...message, type: undefined });
  }

  #opened() {
    clearTimeout(this.#timer);
    this.open = true;
    this.connecting = false;
    this.#wait = FIRST_WAIT;
    this.emit("open");
  }

  #lost() {
    const wasOpen = this.open;
    this.open = this.connecting = false;
    this.#answered();
    const error = { code: "unavailable", message: "The connection was lost.", quiet: true };
    const orphans = [...this.#notes.values()];
    this.#notes.clear();
    for (const handlers of orphans) handlers.error?.(error);
    this.emit("closed", { wasOpen });
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.connect(), this.#wait * (0.75 + Math.random() / 2));
    this.#wait = Math.min(LONGEST_WAIT, this.#wait * 1.7);
  }

  #hurry() {
    this.#wait = FIRST_WAIT;
    if (this.open) this.#ping(); // a phone's connection may have died unnoticed, asleep or on another network
    else if (!this.connecting) this.connect();
  }

  #ping() {
    if (!this.open || document.hidden) return;
    this.#send({ type: "ping", t: Math.round(performance.now()) });
    this.#pongTimer ||= setTimeout(() => this.#worker.postMessage({ close: true }), PONG_WITHIN);
  }
}

/** The model and its map; waits for a server that is away, and calls `onError` for each time that it is. */
export async function loadModel(onError) {
  for (let wait = 500; ; wait = Math.min(8000, wait * 1.6)) {
    try {
      const model = await getJson("api/model"); // first: a reload between both is noticed by the hash in `hello`
      const { points } = await getJson("api/map");
      return { model, points };
    } catch (error) {
      onError(error);
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

/** Shows how bridge and server are, in the bar and in messages; `name` is the server's. */
export function showState(bridge, name, messages) {
  bridge.addEventListener("open", () => {
    for (const line of ["bridge", "server"]) messages.clear(line); // a server that is away is told of anew
    showStatus("well", name);
  });
  bridge.addEventListener("closed", async ({ detail: { wasOpen } }) => {
    showStatus("away", "away");
    if (messages.stands("bridge")) return;
    const isThere = !wasOpen && (await call("static/icon.svg", { cache: "no-store" }).catch(() => false));
    if (!wasOpen && bridge.open) return; // meanwhile
    let words = wasOpen ? "The connection to the explorer was lost." : "The explorer does not answer.";
    if (isThere) words = "The explorer takes no WebSocket: a reverse proxy has to pass on those, and Host.";
    messages.stand("bridge", `${words} Trying again…`);
  });
  bridge.addEventListener("server", ({ detail: { state, message } }) => {
    if (state === "away") {
      const why = message ? `: ${message.replace(/\.$/, "")}` : "";
      messages.stand("server", `The server is away${why}. It will be asked again by itself.`);
      showStatus("away", "server away");
    } else if (state === "back") {
      if (messages.clear("server")) messages.show("The server is back.", "good");
      showStatus("well", name);
    } else if (message) messages.show(message, "bad");
  });
}

/** The lamp in the bar, and its words. */
export function showStatus(state, words) {
  $("status").dataset.state = state;
  document.querySelector(".status-text").textContent = words;
}
