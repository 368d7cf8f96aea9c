// A thread of its own between server, page and mixer: sound goes from the WebSocket straight to the mixer, however
// busy the page is with its painting.
//
// From the page:  {connect: address} | {close: true} | {send: message}, to the server | {mixer: message, moved}, to the
//                 mixer of worklet.js | {port}, where the mixer listens
// To the page:    {opened} | {closed} | {message}, what the server says, or `late` of a note whose key went up long ago |
//                 {sound}, a note's samples, id before them

let socket = null;
let mixer = null;
const waiting = []; // messages for the mixer, from before it was there
const MOST_WAITING = 4096;
const RELEASE_WITHIN = 0.025; // seconds after a key goes up that its release is to be heard, if all is well
const OWN_WITHIN = 1000; // milliseconds after a key went up: what begins to come later is no player's any more
const live = new Map(); // notes that the server writes: whether their key was held, when it went up, whether sound came since

onmessage = ({ data }) => {
  if (data.connect) connect(data.connect);
  else if (data.close) giveUp();
  else if (data.send) send(data.send);
  else if (data.mixer) tellMixer(data.mixer, data.moved);
  else if (data.port) {
    mixer = data.port;
    for (const [message, moved] of waiting.splice(0)) mixer.postMessage(message, moved);
  }
};

function connect(address) {
  socket?.close();
  const opened = new WebSocket(address);
  opened.binaryType = "arraybuffer";
  opened.onopen = () => postMessage({ opened: true });
  opened.onmessage = ({ data }) => (data instanceof ArrayBuffer ? takeSound(data) : takeMessage(JSON.parse(data)));
  opened.onclose = () => opened === socket && closed();
  socket = opened;
}

/** Closes a connection on which nothing comes any more: the browser would wait a minute for an answer to that, too. */
function giveUp() {
  if (!socket) return;
  socket.onopen = socket.onmessage = null;
  socket.close();
  closed();
}

function closed() {
  socket = null;
  live.clear();
  postMessage({ closed: true });
}

function send(message) {
  const { type, id } = message;
  if (type === "on") live.set(id, { held: message.live, upAt: null });
  else if (type === "off") release(id);
  else if (type === "cancel") live.delete(id);
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

/** A key goes up; where its sound stays away, as while a server hangs, it would be heard long after. */
function release(id) {
  const note = live.get(id);
  if (!note?.held || note.upAt !== null) return;
  Object.assign(note, { upAt: performance.now(), came: false });
  const isLate = () => live.get(id) === note && !note.came;
  setTimeout(() => isLate() && postMessage({ message: { type: "late", id } }), OWN_WITHIN);
}

function takeSound(sound) {
  const id = new DataView(sound).getUint32(0, true);
  if (live.has(id)) {
    live.get(id).came = true;
    const samples = new Float32Array(sound.slice(4));
    tellMixer({ type: "push", id, samples }, [samples.buffer]);
  }
  postMessage({ sound }, [sound]);
}

function takeMessage(message) {
  const { type, id } = message;
  if (type === "bent") return tellMixer(message);
  const upAt = live.get(id)?.upAt ?? null;
  if (type === "release" && upAt !== null) {
    const within = Math.max(0, RELEASE_WITHIN - (performance.now() - upAt) / 1000);
    tellMixer({ type: "skipTo", id, seconds: message.held_seconds, within });
  }
  if ((type === "end" || type === "error") && live.delete(id)) tellMixer({ type: "finish", id });
  postMessage({ message });
}

function tellMixer(message, moved = []) {
  if (mixer) mixer.postMessage(message, moved);
  else if (waiting.length < MOST_WAITING) waiting.push([message, moved]);
}
