// The wire to the bridge: one WebSocket, which comes back by itself.

const FIRST_WAIT = 400; // milliseconds before the first new try
const LONGEST_WAIT = 8000;
const PING_EVERY = 15000;
const PONG_WITHIN = 10000;

/**
 * Events: `open`, `closed`, `server` {state, message}.
 * A note's own messages go to the handlers it was sent with: {start, audio, end, error}.
 */
export class Link extends EventTarget {
  #socket = null;
  #notes = new Map();
  #nextId = 1;
  #wait = FIRST_WAIT;
  #timer = 0;
  #pongTimer = 0;

  constructor(address = socketAddress("/api/play")) {
    super();
    this.address = address;
    this.open = false;
    addEventListener("online", () => this.#hurry());
    document.addEventListener("visibilitychange", () => document.hidden || this.#hurry());
    setInterval(() => this.#ping(), PING_EVERY);
  }

  connect() {
    clearTimeout(this.#timer);
    const socket = new WebSocket(this.address);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.#opened();
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = () => this.#lost(socket);
    this.#socket = socket;
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

  cancel(id) {
    if (this.#notes.delete(id)) this.#send({ type: "cancel", id });
  }

  get live() {
    return this.#notes.size;
  }

  #send(message) {
    if (this.open) this.#socket.send(JSON.stringify(message));
  }

  #receive(data) {
    clearTimeout(this.#pongTimer);
    this.#pongTimer = 0;
    if (data instanceof ArrayBuffer) {
      const id = new DataView(data).getUint32(0, true);
      this.#notes.get(id)?.audio(new Float32Array(data, 4));
      return;
    }
    const message = JSON.parse(data);
    if (message.type === "server") this.#emit("server", message);
    else if (message.id !== undefined) this.#tell(message);
    else if (message.type === "error") this.#emit("server", { state: "error", ...message, type: undefined });
  }

  #tell(message) {
    const handlers = this.#notes.get(message.id);
    if (message.type === "end" || message.type === "error") this.#notes.delete(message.id);
    handlers?.[message.type]?.(message);
  }

  #opened() {
    this.open = true;
    this.#wait = FIRST_WAIT;
    this.#emit("open");
  }

  #lost(socket) {
    if (socket !== this.#socket) return;
    const wasOpen = this.open;
    this.open = false;
    const error = { code: "unavailable", message: "The connection was lost.", quiet: true };
    const orphans = [...this.#notes.values()];
    this.#notes.clear();
    for (const handlers of orphans) handlers.error?.(error);
    this.#emit("closed", { wasOpen });
    this.#timer = setTimeout(() => this.connect(), this.#wait * (0.75 + Math.random() / 2));
    this.#wait = Math.min(LONGEST_WAIT, this.#wait * 1.7);
  }

  #hurry() {
    this.#wait = FIRST_WAIT;
    if (!this.open && this.#socket?.readyState === WebSocket.CLOSED) this.connect();
  }

  #ping() {
    if (!this.open || document.hidden) return;
    this.#send({ type: "ping", t: Math.round(performance.now()) });
    this.#pongTimer ||= setTimeout(() => this.#socket.close(), PONG_WITHIN);
  }

  #emit(type, detail = {}) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

function socketAddress(path) {
  const url = new URL(path, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.hash = "";
  return url.href;
}
