// The note as a picture, drawn as it comes: its waveform, and its spectrogram on a logarithmic scale of frequency.

import { element } from "./browser.js";
import { clamp } from "./state.js";

const SIZE = 2048;
const HOP = 512; // samples for each column
const ROWS = 96;
const MOST_COLUMNS = 48; // for each frame: a note from the cache comes all at once
const MOST_PEAKS = 2048; // of a waveform: more than a picture has pixels
const [LOWEST, HIGHEST] = [55, 18000]; // Hz
const RANGE_DB = 78;
const DRAW_EVERY = 100; // milliseconds: sound goes before its picture on a small machine
const [LEAST_SECONDS, MOST_SECONDS] = [1, 8]; // the width of an empty picture

/** Follows one note at a time. */
export class Scope {
  #timer = 0;
  #drawnAt = 0;
  #watching = 0;
  #playhead = element("div", { className: "playhead", hidden: true }); // no part of the picture: it moves all the time

  constructor(canvas, theme) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.theme = theme;
    this.fft = new Fft(SIZE);
    this.picture = document.createElement("canvas");
    this.picture.height = ROWS;
    this.note = null;
    canvas.after(this.#playhead);
    this.#clear(LEAST_SECONDS, 48000);
    new ResizeObserver(() => this.redraw()).observe(canvas);
    theme.addEventListener("change", () => this.#recolour());
  }

  /** Shows a note from now on. */
  follow(note) {
    this.#watching += 1;
    const turn = this.#watching;
    this.note = note;
    this.#clear(clamp(note.request.seconds, [LEAST_SECONDS, MOST_SECONDS]), note.sampleRate);
    note.addEventListener("samples", () => turn === this.#watching && this.redraw());
    note.addEventListener("end", () => turn === this.#watching && this.#ended());
    note.addEventListener("sound", () => turn === this.#watching && this.#play());
    this.#play();
    this.redraw();
  }

  /** How many samples are here. */
  get length() {
    return this.note?.length ?? 0;
  }

  redraw(every = DRAW_EVERY) {
    const wait = this.#drawnAt + every - performance.now();
    this.#timer ||= setTimeout(() => requestAnimationFrame(() => this.#draw()), Math.max(0, wait));
  }

  #clear(seconds, rate) {
    this.rate = rate;
    this.seconds = seconds;
    this.peak = 0.05;
    this.#begin();
    this.picture.width = Math.ceil((seconds * 2.5 * rate) / HOP) + 1;
    this.bins = rowBins(rate);
  }

  #begin() {
    this.columns = 0;
    this.peaks = []; // least and most of so many columns each:
    this.span = 1;
  }

  #ended() {
    this.seconds = Math.max(LEAST_SECONDS / 2, this.length / this.rate);
    this.redraw();
  }

  /** Adds some of the columns whose samples are here; returns whether there are more to add. */
  #addColumns() {
    const until = this.note?.complete ? this.length : this.length - SIZE / 2;
    const first = this.columns;
    const missing = Math.max(0, Math.floor(until / HOP) - first);
    const count = Math.min(missing, MOST_COLUMNS);
    if (count === 0) return false;
    const image = new ImageData(count, ROWS);
    for (let column = 0; column < count; column++) {
      const start = (first + column) * HOP;
      this.#addPeak(this.#extremes(start), first + column);
      const magnitudes = this.fft.transform(this.note.samples, start - SIZE / 2);
      this.#paint(image, column, magnitudes);
    }
    if (first + count > this.picture.width) this.#widen(first + count);
    this.picture.getContext("2d").putImageData(image, first, 0);
    this.columns += count;
    return count < missing;
  }

  /** Adds a column's least and most. A long note has fewer points for a second: each frame draws them all. */
  #addPeak(extremes, column) {
    if (column % this.span) this.peaks.push(joined(this.peaks.pop(), extremes));
    else this.peaks.push(extremes);
    if (this.peaks.length <= MOST_PEAKS) return;
    this.span *= 2;
    this.peaks = this.peaks.filter((_, i) => i % 2 === 0).map((peak, i) => joined(peak, this.peaks[2 * i + 1] ?? peak));
  }

  #extremes(start) {
    let [least, most] = [0, 0];
    for (let i = start; i < start + HOP && i < this.length; i++) {
      const value = this.note.samples[i];
      if (value < least) least = value;
      else if (value > most) most = value;
    }
    this.peak = Math.max(this.peak, most, -least);
    return [least, most];
  }

  #paint(image, column, magnitudes) {
    const ramp = this.theme.shade === "dark" ? DARK : LIGHT;
    for (let row = 0; row < ROWS; row++) {
      const [from, to] = this.bins[row];
      let most = 0;
      for (let bin = from; bin <= to; bin++) most = Math.max(most, magnitudes[bin]);
      const strength = Math.min(1, Math.max(0, 1 + (20 * Math.log10(most + 1e-9) + 12) / RANGE_DB));
      image.data.set(ramp[Math.round(strength * (ramp.length - 1))], (row * image.width + column) * 4);
    }
  }

  #widen(width) {
    const old = this.picture;
    this.picture = document.createElement("canvas");
    this.picture.height = ROWS;
    this.picture.width = width * 2;
    this.picture.getContext("2d").drawImage(old, 0, 0);
  }

  #recolour() {
    this.#begin();
    this.picture.getContext("2d").clearRect(0, 0, this.picture.width, ROWS);
    this.redraw();
  }

  #draw() {
    this.#timer = 0;
    this.#drawnAt = performance.now();
    const more = this.#addColumns();
    const ratio = devicePixelRatio || 1;
    const { width, height } = this.canvas.getBoundingClientRect();
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== wide || this.canvas.height !== high) [this.canvas.width, this.canvas.height] = [wide, high];
    const { context } = this;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const ink = this.theme.ink();
    const split = Math.round(height * 0.36);
    const seconds = this.#shown;
    this.#wave(width, split, seconds, ink);
    this.#spectrum(width, split, height, seconds);
    context.fillStyle = ink.line;
    context.fillRect(0, split, width, 1);
    if (!this.note) this.#invite(width, split, height, ink);
    if (more) this.redraw(0);
  }

  #invite(width, top, bottom, ink) {
    const { context } = this;
    context.font = "13px system-ui, -apple-system, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = ink.muted;
    const words = matchMedia("(hover: none)").matches ? "Tap the map" : "Click the map, or press a key";
    context.fillText(words, width / 2, (top + bottom) / 2);
  }

  #wave(width, height, seconds, ink) {
    const { context, peaks, peak } = this;
    const middle = height / 2;
    context.fillStyle = ink.line;
    context.fillRect(0, Math.round(middle), width, 1);
    if (!peaks.length) return;
    const each = ((this.span * HOP) / this.rate / seconds) * width;
    const tall = (middle - 5) / peak;
    context.beginPath();
    peaks.forEach(([, most], i) => context.lineTo(i * each, middle - most * tall - 0.4));
    for (let i = peaks.length - 1; i >= 0; i--) context.lineTo(i * each, middle - peaks[i][0] * tall + 0.4);
    context.closePath();
    context.fillStyle = ink.accent;
    context.fill();
  }

  #spectrum(width, top, bottom, seconds) {
    if (!this.columns) return;
    const { context } = this;
    const reach = ((this.columns * HOP) / this.rate / seconds) * width;
    context.imageSmoothingEnabled = true;
    context.drawImage(this.picture, 0, 0, this.columns, ROWS, 0, top + 1, reach, bottom - top - 1);
  }

  /** Seconds that the picture is wide. */
  get #shown() {
    return Math.max(this.seconds, this.length / this.rate);
  }

  /** Moves the playhead as long as the note sounds. */
  #play() {
    const { note } = this;
    this.#playhead.hidden = !note.soundedAt || note.over;
    if (this.#playhead.hidden) return;
    const played = Math.min((performance.now() - note.soundedAt) / 1000, this.length / this.rate);
    this.#playhead.style.transform = `translateX(${(played / this.#shown) * this.canvas.clientWidth}px)`;
    requestAnimationFrame(() => note === this.note && this.#play());
  }
}

/** Magnitudes of windows of `size` samples (a power of two), Hann-weighted: a Fourier transform of radix 2. */
class Fft {
  constructor(size) {
    this.size = size;
    this.real = new Float32Array(size);
    this.imaginary = new Float32Array(size);
    this.window = Float32Array.from({ length: size }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / size));
    this.cosines = Float32Array.from({ length: size / 2 }, (_, i) => Math.cos((2 * Math.PI * i) / size));
    this.sines = Float32Array.from({ length: size / 2 }, (_, i) => Math.sin((2 * Math.PI * i) / size));
    this.places = reversed(size);
    this.magnitudes = new Float32Array(size / 2);
  }

  /** Of `samples` (at least `size` from `start` on): size / 2 magnitudes, a full-scale sine being 1. */
  transform(samples, start) {
    const { size, real, imaginary, window, places, magnitudes } = this;
    for (let i = 0; i < size; i++) real[places[i]] = (samples[start + i] ?? 0) * window[i];
    imaginary.fill(0);
    for (let half = 1; half < size; half *= 2) this.#stage(half);
    for (let i = 0; i < size / 2; i++) magnitudes[i] = (Math.hypot(real[i], imaginary[i]) * 4) / size;
    return magnitudes;
  }

  #stage(half) {
    const { size, real, imaginary, cosines, sines } = this;
    const stride = size / (2 * half);
    for (let block = 0; block < size; block += 2 * half) {
      for (let k = 0; k < half; k++) {
        const [one, two] = [block + k, block + k + half];
        const [cosine, sine] = [cosines[k * stride], sines[k * stride]];
        const turnedReal = real[two] * cosine + imaginary[two] * sine;
        const turnedImaginary = imaginary[two] * cosine - real[two] * sine;
        real[two] = real[one] - turnedReal;
        imaginary[two] = imaginary[one] - turnedImaginary;
        real[one] += turnedReal;
        imaginary[one] += turnedImaginary;
      }
    }
  }
}

function joined([least, most], [lower, higher]) {
  return [Math.min(least, lower), Math.max(most, higher)];
}

function reversed(size) {
  const bits = Math.log2(size);
  return Uint32Array.from({ length: size }, (_, index) => {
    let turned = 0;
    for (let bit = 0; bit < bits; bit++) turned |= ((index >> bit) & 1) << (bits - 1 - bit);
    return turned;
  });
}

/** For each row, the highest pitch on top, the bins [from, to] that belong to it. */
function rowBins(rate) {
  const width = rate / SIZE;
  const edge = (row) => LOWEST * (HIGHEST / LOWEST) ** (1 - row / ROWS);
  return Array.from({ length: ROWS }, (_, row) => {
    const from = Math.max(1, Math.round(edge(row + 1) / width));
    const to = Math.max(from, Math.round(edge(row) / width) - 1);
    return [Math.min(from, SIZE / 2 - 1), Math.min(to, SIZE / 2 - 1)];
  });
}

const DARK = ramp([
  [0, 22, 24, 29, 0],
  [0.25, 58, 42, 92, 150],
  [0.5, 158, 58, 110, 225],
  [0.75, 240, 128, 80, 255],
  [1, 255, 240, 200, 255],
]);
const LIGHT = ramp([
  [0, 254, 253, 251, 0],
  [0.25, 246, 214, 178, 150],
  [0.5, 226, 128, 84, 225],
  [0.75, 158, 48, 88, 255],
  [1, 44, 16, 60, 255],
]);

function ramp(stops) {
  return Array.from({ length: 256 }, (_, index) => {
    const place = index / 255;
    const after = stops.findIndex(([at], i) => i > 0 && at >= place);
    const [low, high] = [stops[after - 1], stops[after]];
    const part = (place - low[0]) / (high[0] - low[0]);
    return [1, 2, 3, 4].map((channel) => Math.round(low[channel] + (high[channel] - low[channel]) * part));
  });
}
