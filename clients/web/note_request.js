// The request for a note: the page's one table of its fields, and all the notations that a request has.

import { secondsName } from "./names.js";

/**
 * Every number of a note that the page sets.
 *
 * `key` is its name in the state and in the address, `name` in a request and in the server's own table, which tells
 * range and default. Where `index.html` has a slider with the field's name as its id, it follows the field.
 * decimals: how many are kept (of whole numbers none, of others two); most, least: closer bounds than the server's,
 * the latter for the slider only, as `farthest` is; start: the value of a first visit; words: the text beside the
 * slider.
 */
const FIELDS = [
  { key: "x", name: "x" },
  { key: "y", name: "y" },
  { key: "p", name: "pitch" },
  { key: "v", name: "velocity" },
  { key: "s", name: "seconds", decimals: 3, least: 0.15, farthest: 8, words: secondsName },
  { key: "seed", name: "seed", most: 2 ** 32 - 1, start: 1 },
  { key: "t", name: "temperature", most: 1.5 },
  { key: "c", name: "cents" }, // where the keys are tuned so
];
const NAMES = FIELDS.map(({ name }) => name);
const SOUND = NAMES.filter((name) => name !== "seconds");
const ARGUMENTS = NAMES.slice(2);

/** The fields but x and y, with `range` ([least, most]) and `start`, from the server's table in /api/model. */
export function fieldsOf(model) {
  const table = new Map(model.fields.map((field) => [field.name, field]));
  return FIELDS.slice(2).map(({ least = -Infinity, most = Infinity, ...field }) => {
    const { kind, low, high, default: given } = table.get(field.name);
    const decimals = kind === "whole" ? 0 : 2;
    const usual = { start: given ?? low, decimals, words: (value) => value.toFixed(decimals) };
    return { ...usual, ...field, least: Math.max(low, least), range: [low, Math.min(high, most)] };
  });
}

/** The request that a state stands for. */
export function requestOf(values) {
  return Object.fromEntries(FIELDS.map(({ key, name }) => [name, values[key]]));
}

/** The state that a request stands for. */
export function valuesOf(request) {
  return Object.fromEntries(FIELDS.map(({ key, name }) => [key, request[name]]));
}

/** Whether this is a request, whatever it is. */
export function isRequest(value) {
  return Boolean(value) && NAMES.every((name) => Number.isFinite(value[name]));
}

/** Equal requests have equal texts, and equal sound. */
export function textOf(request) {
  return NAMES.map((name) => request[name]).join(" ");
}

/** Whether two requests are equal in all that one hears but the length. */
export function sameSound(one, other) {
  return SOUND.every((name) => one[name] === other[name]);
}

/** The query of an address: /api/note.wav?... */
export function queryOf(request) {
  return new URLSearchParams(NAMES.map((name) => [name, request[name]])).toString();
}

function argumentsOf({ cents }) {
  return ARGUMENTS.filter((name) => name !== "cents" || cents);
}

/** A Python program that makes exactly this note, on the model's server or with its bundle. */
export function pythonOf(request, { server, bundle }) {
  const own = bundle === null ? "" : `bundle=${JSON.stringify(bundle)}`;
  const address = server === "private" ? own : `"${server}"`;
  const how = argumentsOf(request).map((name) => `${name}=${request[name]}`).join(", ");
  return [
    "import timbrel",
    "",
    `with timbrel.Client(${address}) as client:`,
    `    note = client.generate(timbre=(${request.x}, ${request.y}), ${how})`,
    '    note.save("note.wav")',
    "",
  ].join("\n");
}

/** A word of a command line. Windows' cmd knows double quotes alone, within which other shells would read a folder's $. */
function quoted(word) {
  if (/^[\w.:-]+$/.test(word)) return word;
  return word.startsWith("/") ? `'${word.replaceAll("'", "'\\''")}'` : `"${word}"`;
}

/** A command line that does. */
export function commandOf(request, { server, bundle }) {
  const own = bundle === null ? "" : ` --bundle ${quoted(bundle)}`;
  const address = server === "private" ? own : ` --server ${quoted(server)}`;
  const how = argumentsOf(request).map((name) => `--${name.replaceAll("_", "-")} ${request[name]}`).join(" ");
  // PowerShell takes words apart at their commas unless they are quoted.
  return `timbrel render --timbre="${request.x},${request.y}" ${how}${address} --out note.wav`;
}
