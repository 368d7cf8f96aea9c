// The page, put together.

import { AudioOutput } from "./audio.js";
import { Bridge, loadModel, showState, showStatus } from "./bridge.js";
import { $ } from "./browser.js";
import { Compare, Controls } from "./controls.js";
import { Favourites } from "./favourites.js";
import { KeyInput, isWriting } from "./key_input.js";
import { TimbreMap } from "./map.js";
import { centsName, coordinates, counted, pitchName } from "./names.js";
import { fieldsOf, sameSound, valuesOf } from "./note_request.js";
import { NoteCache, Notes } from "./notes.js";
import { Messages, Tabs, Theme } from "./page.js";
import { Player } from "./player.js";
import { Scope } from "./scope.js";
import { State } from "./state.js";
import { TakeAway } from "./take_away.js";

document.documentElement.dataset.whole = "";
const theme = new Theme($("theme"));
const messages = new Messages($("messages"), $("spoken"));
const worker = new Worker(new URL("sound_worker.js", import.meta.url));
worker.addEventListener("error", ({ message }) => message === undefined && tellOfMissing());
const audio = new AudioOutput(worker);
new Tabs($("tabs"));

const { model, points } = await loadModel((error) => {
  messages.stand("loading", `${error.message} Trying again…`);
  showStatus("away", "away");
});
messages.clear("loading");
const fields = fieldsOf(model);
const state = new State(fields);
const bridge = new Bridge(worker);
const notes = new Notes(bridge, audio, new NoteCache(), model.sample_rate);
const player = new Player(state, notes, audio, model);
const map = new TimbreMap({ points, state, player, audio, theme, messages });
const scope = new Scope($("scope"), theme);
const placeWords = (x, y) => map.placeWords(x, y);
const keys = new KeyInput({ model, player, notes, audio, messages, onProgram: (program) => map.choose(program) });
const favourites = new Favourites({
  name: wordsOf,
  colour: (request) => map.swatch(request),
  recall,
  messages,
  fields,
  bundle: model.bundle_hash,
});
new Controls(state, player, fields);
new Compare(state, player, map.disc, placeWords);
const found = (place, file) => map.located(place, file);
new TakeAway({ state, model, messages, placeWords, taken, found });

wireBar();
wirePlay();
wireFailures();
wireShortcuts();
state.addEventListener("change", describe);
bridge.connect();
describe();
if (new URLSearchParams(location.search).has("test")) {
  const { disc } = map;
  const { midi, piano, tuning } = keys;
  globalThis.timbrel = { audio, bridge, disc, midi, model, notes, piano, player, points, state, tuning };
}
document.documentElement.dataset.ready = "";

function wireBar() {
  $("undo").addEventListener("click", undo);
  $("redo").addEventListener("click", redo);
  state.addEventListener("history", () => {
    $("undo").disabled = !state.canUndo;
    $("redo").disabled = !state.canRedo;
  });
  $("help").addEventListener("click", help);
}

function help() {
  const instruments = `${counted(points.length, "instrument")}, ${pitchName(model.pitch[0])} to ${pitchName(model.pitch[1])}`;
  const rate = `${model.sample_rate / 1000} kHz, ${model.precision} on ${model.provider}`;
  const { askedAt, soundedAt } = player.current ?? {};
  const late = soundedAt && Math.round(soundedAt - askedAt + 1000 * audio.latency); // the sound device's part of it, too
  const told = late ? ` The last note sounded ${late} ms after it was asked for.` : "";
  $("about").textContent = `${model.name}: ${instruments}, ${rate}. timbrel ${model.version}.${told}`;
  $("help-page").showModal();
}

function wirePlay() {
  for (const type of ["pointerdown", "pointerup", "keydown"]) {
    addEventListener(type, () => audio.unlock(), { capture: true });
  }
  const press = () => player.strike();
  $("play").addEventListener("pointerdown", (event) => {
    if (!player.holds || event.button !== 0) return;
    $("play").setPointerCapture(event.pointerId);
    press();
  });
  for (const type of ["pointerup", "pointercancel"]) {
    $("play").addEventListener(type, () => player.letGo()); // whatever was switched since it was pressed
  }
  addEventListener("blur", () => player.letGo()); // what comes up in another window is not told here
  $("play").addEventListener("click", (event) => {
    const byKey = event.detail === 0; // a key has no length: where notes are held it plays for a second
    if (!player.holds) press();
    else if (byKey) player.strike({ seconds: 1 }, { held: false });
  });
  player.addEventListener("current", ({ detail }) => {
    scope.follow(detail.note);
    describe();
    if (detail.note.passing) return;
    const { note } = detail;
    favourites.played(note.chord);
    note.addEventListener("end", () => {
      note.chord.splice(note.place, 1, note.request); // its length is known now
      favourites.played(note.chord);
    });
  });
  $("keep").addEventListener("click", () => {
    const kept = favourites.toggle(taken());
    if (kept !== null) messages.say(kept ? "Kept" : "Forgotten");
    describe();
  });
  favourites.onchange = describe;
  $("silence").addEventListener("click", silence);
}

function wireFailures() {
  showState(bridge, model.server === "private" ? model.name : model.server, messages);
  audio.addEventListener("blocked", ({ detail }) => messages.stand("audio", detail.message));
  audio.addEventListener("running", () => messages.clear("audio"));
  bridge.addEventListener("hello", ({ detail }) => {
    if (detail.bundle_hash !== model.bundle_hash) reload(); // map, ranges and notes that were kept are of another bundle
    else if (detail.page === model.page) messages.clear("page");
    else messages.stand("page", "The explorer has another version of this page.", "plain", ["Reload", reload]);
  });
  notes.addEventListener("letGo", ({ detail: { seconds } }) =>
    messages.show(`The server let go of the key after ${seconds.toFixed(1)} s: its longest hold, or others wait.`, "plain"),
  );
  notes.addEventListener("failed", ({ detail }) => {
    if (detail.quiet) return;
    const words = { overloaded: "The server is busy. Try again in a moment.", unavailable: "The server is away." };
    messages.show(words[detail.code] ?? detail.message, "bad");
  });
}

/** The sound worker did not load: whoever else is there, the page has nobody to talk to them. */
function tellOfMissing() {
  const words = "A part of this page did not load, without which nothing sounds.";
  messages.stand("page", words, "bad", ["Reload", () => location.reload()]);
  showStatus("away", "no sound");
}

/** Loads the page anew, as it is now. */
function reload() {
  history.replaceState(null, "", state.link);
  location.reload();
}

function wireShortcuts() {
  addEventListener("keydown", (event) => {
    const command = event.ctrlKey || event.metaKey;
    if (event.key === "Escape") silence();
    if (isWriting(event.target)) return;
    const letter = event.key > "~" ? event.code.slice(3) : event.key; // of a layout without Latin letters, by its place
    if (command && letter.toLowerCase() === "z") {
      event.preventDefault();
      if (event.shiftKey) redo();
      else undo();
    } else if (command && letter.toLowerCase() === "y") {
      event.preventDefault();
      redo();
    } else if (!$("computer-keys").checked) return; // or what is dictated would press them
    else if (event.key === "/") {
      event.preventDefault();
      $("search").focus();
    } else if (event.key === "?") help();
  });
}

function undo() {
  if (!state.canUndo) return;
  state.undo();
  messages.say(`Undone: ${$("place").textContent}, ${$("facts").textContent}`);
}

function redo() {
  if (!state.canRedo) return;
  state.redo();
  messages.say(`Redone: ${$("place").textContent}, ${$("facts").textContent}`);
}

/** Says beside the map, to eyes and to screen readers, what would sound. */
function describe() {
  const { x, y, p, c } = state.values;
  const place = placeWords(x, y);
  if ($("place").textContent !== place) $("place").textContent = $("place").title = place;
  $("facts").textContent = `${coordinates(x, y)}  ·  ${pitchName(p)}${centsName(c)}, MIDI ${p}`;
  keys.piano.reach(...map.trained(x, y));
  keys.piano.choose(p);
  const kept = favourites.has(taken());
  $("keep").setAttribute("aria-pressed", String(kept));
  $("disc").setAttribute("aria-label", `Timbre map: ${place}`);
}

/** The request that is taken away: the note that sounded last where nothing was changed since, else what would sound. */
function taken() {
  const wanted = player.request();
  if (!player.current || !player.holds) return wanted;
  const { request, setVelocity } = player.current;
  return sameSound({ ...request, velocity: setVelocity }, wanted) ? request : wanted;
}

function recall(chord) {
  const request = chord.at(-1);
  const { s, ...values } = valuesOf(request);
  state.set({ ...values, s: player.holds ? "hold" : s }, { keep: true });
  map.disc.view.reveal(request.x, request.y);
  audio.unlock();
  player.repeat(chord);
}

function wordsOf({ x, y }) {
  return placeWords(x, y).replace("Between ", "").replace(" and ", " – ");
}

function silence() {
  keys.release();
  player.silence();
}
