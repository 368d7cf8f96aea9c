// Numbers in words: pitches, places on the map, lengths.

const NOTES = ["C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B"];
const HERE = 0.012; // nearer than this to an instrument is that instrument

/** 60 is C4. */
export function pitchName(pitch) {
  return `${NOTES[pitch % 12]}${Math.floor(pitch / 12) - 1}`;
}

const LETTERS = { C: 0, D: 2, E: 4, F: 5, G: 7, A: 9, B: 11 };

/** The pitch of "C4", "F#3", "B♭2" or "60"; NaN where it is none. */
export function pitchOf(text) {
  const words = text.trim();
  if (/^\d{1,3}$/.test(words)) return Number(words);
  const [, letter, sign, octave] = /^([A-Ga-g])([#♯b♭]?)(-?\d)$/.exec(words) ?? [];
  if (!letter) return NaN;
  const step = sign === "" ? 0 : "#♯".includes(sign) ? 1 : -1;
  return 12 * (Number(octave) + 1) + LETTERS[letter.toUpperCase()] + step;
}

/** "1 note", "2 notes". */
export function counted(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

export function isBlack(pitch) {
  return [1, 3, 6, 8, 10].includes(pitch % 12);
}

/** "Oboe", "Between Oboe and Trumpet" or "Near Oboe", from what `Disc.nearest` returns. */
export function placeName(nearest) {
  const [first, second] = nearest;
  if (!first) return "A point";
  if (first.distance < HERE) return first.point.instrument;
  if (!second || first.distance < 0.25 * second.distance) return `Near ${first.point.instrument}`;
  return `Between ${first.point.instrument} and ${second.point.instrument}`;
}

/** "0.12, −0.40", with a real minus sign. */
export function coordinates(x, y) {
  return [x, y].map((value) => value.toFixed(3).replace("-", "−")).join(", ");
}

/** " +14 ¢", with a real minus sign; nothing for none. */
export function centsName(cents) {
  return cents ? ` ${cents < 0 ? "−" : "+"}${Math.abs(cents)} ¢` : "";
}

export function secondsName(seconds) {
  return seconds === "hold" ? "hold" : `${seconds.toFixed(2)} s`;
}
