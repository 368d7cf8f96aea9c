// The page, put together.

import { getJson } from "./api.js";
import { Audio } from "./audio.js";
import { Cache } from "./cache.js";
import { Compare } from "./compare.js";
import { ComputerKeys, writes } from "./computer_keys.js";
import { Controls, fill } from "./controls.js";
import { Disc } from "./disc/disc.js";
import { downloadNote } from "./download.js";
import { Drop } from "./drop.js";
import { Favourites } from "./favourites.js";
import { Hands } from "./hands.js";
import { Instrument } from "./instrument.js";
import { Keyboard } from "./keyboard.js";
import { Legend } from "./legend.js";
import { Link } from "./link.js";
import { Messages } from "./messages.js";
import { Midi } from "./midi.js";
import { coordinates, pitchName, placeName } from "./names.js";
import { Notes } from "./notes.js";
import { makePalette, shapeIcon } from "./palette.js";
import { Player } from "./player.js";
import { Scope } from "./scope.js";
import { Search } from "./search.js";
import { commandOf, copy, pythonOf } from "./snippet.js";
import { State, round } from "./state.js";
import { remember, remembered } from "./storage.js";
import { Tabs } from "./tabs.js";
import { Theme } from "./theme.js";

const $ = (id) => document.getElementById(id);

document.documentElement.dataset.whole = "";
const theme = new Theme($("theme"));
const messages = new Messages($("messages"), $("spoken"));
const audio = new Audio();
new Tabs($("tabs"));

const { model, points } = await load();
const palette = makePalette(points);
const state = new State(startValues(), {
  p: model.pitch,
  v: model.velocity,
  s: model.seconds,
  t: [0, 1.5],
});
const link = new Link();
const notes = new Notes(link, audio, new Cache(), model.sample_rate);
const player = new Player(state, notes, audio, model);
const disc = new Disc($("disc"), { points, palette, state, player, theme, still: () => theme.still });
const scope = new Scope($("scope"), theme);
const placeWords = (x, y) => placeName(disc.nearest(x, y));

const keyboard = new Keyboard($("keys"), {
  pitches: model.pitch,
  hands: { down: (pitch) => hands.down("piano", pitch), up: (pitch) => hands.up("piano", pitch) },
  onOctave: (base) => ($("octave").textContent = pitchName(base)),
});
const hands = new Hands(player, notes, keyboard);
const computerKeys = new ComputerKeys(hands, keyboard);
const midi = new Midi($("midi"), hands, messages);

const legend = new Legend($("legend"), $("families-all"), { points, palette, theme, disc });
const favourites = new Favourites({ name: wordsOf, colour: swatchOf, recall, messages });
new Controls(state, player, model);
new Compare(state, player, disc, placeWords);
new Instrument({ state, model, placeWords, messages });
new Search($("search"), $("search-list"), { points, palette, theme, choose: goToInstrument });
new Drop($("drop-hint"), $("recording"), { messages, found: located });

wireBar();
wireMap();
wirePlay();
wireTakeAway();
wirePiano();
wireLink();
wireKeys();
link.connect();
describe();
if (new URLSearchParams(location.search).has("test")) {
  globalThis.timbrel = { audio, disc, keyboard, link, midi, model, notes, player, points, state };
}
document.documentElement.dataset.ready = "";

/** The model and its map; waits for a server that is away. */
async function load() {
  for (let wait = 500; ; wait = Math.min(8000, wait * 1.6)) {
    try {
      const [model, map] = await Promise.all([getJson("/api/model"), getJson("/api/map")]);
      messages.clear("loading");
      return { model, points: map.points };
    } catch (error) {
      messages.stand("loading", `${error.message} Trying again…`);
      showStatus("away", "away");
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

/** Where a first visit begins. */
function startValues() {
  const pitch = Math.min(model.pitch[1], Math.max(model.pitch[0], 60));
  const temperature = round(model.sampling?.temperature ?? 1, 2);
  return { x: 0, y: 0.4, p: pitch, v: 100, s: Math.min(2, model.seconds[1]), seed: 1, t: temperature, a: null, b: null };
}

function wireBar() {
  $("undo").addEventListener("click", () => state.undo());
  $("redo").addEventListener("click", () => state.redo());
  state.addEventListener("history", () => {
    $("undo").disabled = !state.canUndo;
    $("redo").disabled = !state.canRedo;
  });
  theme.addEventListener("change", () => {
    disc.recolour();
    legend.build();
  });
  $("help").addEventListener("click", () => $("help-page").showModal());
  $("computer-keys").addEventListener("change", ({ target }) => (computerKeys.enabled = target.checked));
  const instruments = `${points.length} instruments, ${pitchName(model.pitch[0])} to ${pitchName(model.pitch[1])}`;
  const rate = `${model.sample_rate / 1000} kHz, ${model.precision} on ${model.provider}`;
  $("about").textContent = `${model.name}: ${instruments}, ${rate}. timbrel ${model.version}.`;
}

function wireMap() {
  $("zoom-in").addEventListener("click", () => disc.zoom(1.5));
  $("zoom-out").addEventListener("click", () => disc.zoom(1 / 1.5));
  $("zoom-home").addEventListener("click", () => disc.home());
  audio.addEventListener("level", ({ detail }) => disc.setLevel(detail.rms));
  let timer = 0;
  disc.addEventListener("moved", ({ detail }) => {
    clearTimeout(timer);
    timer = setTimeout(() => messages.say(placeWords(detail.x, detail.y)), 350);
  });
  state.addEventListener("change", describe);
  $("previews").checked = disc.previews = remembered("previews", true) !== false;
  $("previews").addEventListener("change", ({ target }) => {
    disc.previews = target.checked;
    remember("previews", target.checked);
  });
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
    $("play").addEventListener(type, () => player.holds && player.letGo());
  }
  $("play").addEventListener("click", (event) => {
    const byKey = event.detail === 0; // a key has no length: where notes are held it plays for a second
    if (!player.holds) press();
    else if (byKey) player.strike({ seconds: 1 }, { held: false });
  });
  player.addEventListener("current", ({ detail }) => {
    scope.follow(detail.note);
    describe();
    if (detail.note.passing) return;
    favourites.played(detail.note.request);
    detail.note.addEventListener("end", () => favourites.played(detail.note.request));
  });
  $("keep").addEventListener("click", () => {
    const kept = favourites.toggle(taken());
    messages.say(kept ? "Kept" : "Forgotten");
    describe();
  });
  favourites.onchange = describe;
  audio.addEventListener("blocked", ({ detail }) => messages.stand("audio", detail.message));
}

function wireTakeAway() {
  $("download").addEventListener("click", () => attempt(() => downloadNote(taken())));
  $("copy-link").addEventListener("click", () => copied(state.link, "The link is copied."));
  $("copy-python").addEventListener("click", () => copied(pythonOf(taken(), model.server), "The Python is copied."));
  $("copy-command").addEventListener("click", () =>
    copied(commandOf(taken(), model.server), "The command is copied."),
  );
}

function wirePiano() {
  $("octave").textContent = pitchName(keyboard.base);
  $("octave-down").addEventListener("click", () => keyboard.shift(-1));
  $("octave-up").addEventListener("click", () => keyboard.shift(1));
  $("silence").addEventListener("click", silence);
  $("volume").value = remembered("volume", 0.8);
  const volume = () => {
    fill($("volume"));
    audio.setVolume(Number($("volume").value) ** 2 / 0.64); // 0.8 is as the model has it
    remember("volume", Number($("volume").value));
  };
  $("volume").addEventListener("input", volume);
  volume();
  keyboard.choose(state.get("p"));
  addEventListener("blur", () => hands.release());
}

function wireLink() {
  link.addEventListener("open", () => {
    messages.clear("link");
    showStatus("well", serverName());
  });
  link.addEventListener("closed", ({ detail }) => {
    showStatus("away", "away");
    const lost = detail.wasOpen ? "The connection to the explorer was lost." : "The explorer does not answer.";
    if (!messages.stands("link")) messages.stand("link", `${lost} Trying again…`);
  });
  link.addEventListener("server", ({ detail }) => serverSays(detail));
  notes.addEventListener("failed", ({ detail }) => {
    if (detail.quiet) return;
    const words = { overloaded: "The server is busy. Try again in a moment.", unavailable: "The server is away." };
    messages.show(words[detail.code] ?? detail.message, "bad");
  });
}

function serverSays({ state: how, message }) {
  if (how === "away") {
    messages.stand("server", `The server is away${message ? `: ${message}` : "."} It will be asked again by itself.`);
    showStatus("away", "server away");
  } else if (how === "back") {
    if (messages.clear("server")) messages.show("The server is back.", "good");
    showStatus("well", serverName());
  } else if (message) messages.show(message, "bad");
}

function wireKeys() {
  addEventListener("keydown", (event) => {
    const command = event.ctrlKey || event.metaKey;
    if (event.key === "Escape") silence();
    if (writes(event.target)) return;
    if (command && event.key.toLowerCase() === "z") {
      event.preventDefault();
      if (event.shiftKey) state.redo();
      else state.undo();
    } else if (command && event.key.toLowerCase() === "y") {
      event.preventDefault();
      state.redo();
    } else if (event.key === "/") {
      event.preventDefault();
      $("search").focus();
    }
  });
}

/** What stands beside the map. */
function describe() {
  const { x, y, p } = state.values;
  const place = placeWords(x, y);
  if ($("place").textContent !== place) $("place").textContent = $("place").title = place;
  $("facts").textContent = `${coordinates(x, y)}  ·  ${pitchName(p)}, MIDI ${p}`;
  keyboard.choose(p);
  const kept = favourites.has(taken());
  $("keep").setAttribute("aria-pressed", String(kept));
  $("disc").setAttribute("aria-label", `Timbre map: ${place}`);
}

/** What is taken away: the note that sounded last where nothing was changed since, else what would sound. */
function taken() {
  const wanted = player.request();
  const last = player.current?.request;
  const same = last && ["x", "y", "pitch", "velocity", "seed", "temperature"].every((key) => last[key] === wanted[key]);
  return same && player.holds ? last : wanted;
}

function recall(request) {
  const { x, y, pitch, velocity, seconds, seed, temperature } = request;
  const s = player.holds ? "hold" : seconds;
  state.set({ x, y, p: pitch, v: velocity, s, seed, t: temperature }, { keep: true });
  disc.view.reveal(x, y);
  audio.unlock();
  player.repeat(request);
}

function goToInstrument({ x, y, instrument }) {
  disc.goTo(round(x, 4), round(y, 4));
  messages.say(instrument);
  player.strike({}, { held: false });
}

function located({ x, y, pitch, nearest }, file) {
  disc.located = { x, y };
  const p = Number.isFinite(pitch) ? Math.round(pitch) : state.get("p");
  state.set({ x, y, p }, { keep: true });
  disc.view.reveal(x, y);
  disc.redraw();
  const names = nearest.slice(0, 3).map(({ instrument }) => instrument);
  const heard = Number.isFinite(pitch) ? `, ${pitchName(Math.round(pitch))}` : "";
  messages.show(`${file}${heard}: nearest are ${names.join(", ")}.`, "good", 9000);
  player.strike({}, { held: false });
}

function wordsOf({ x, y }) {
  return placeWords(x, y).replace("Between ", "").replace(" and ", " – ");
}

function swatchOf({ x, y }) {
  const [{ point }] = disc.nearest(x, y, 1);
  const { hue, shape } = palette[point.family];
  return shapeIcon(shape, hue[theme.shade]);
}

function silence() {
  hands.release();
  player.silence();
}

async function attempt(action) {
  try {
    await action();
  } catch (error) {
    messages.show(error.message, "bad");
  }
}

function copied(text, words) {
  return attempt(async () => {
    await copy(text);
    messages.show(words, "good", 2500);
  });
}

function serverName() {
  return model.server === "private" ? model.name : model.server;
}

function showStatus(how, words) {
  $("status").dataset.state = how;
  document.querySelector(".status-text").textContent = words;
}
