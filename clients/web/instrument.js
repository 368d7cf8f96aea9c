// A playable instrument from the point: asked for, watched, saved as a zip.

import { call, getJson, postJson } from "./api.js";
import { $, element, remember, remembered } from "./browser.js";
import { counted, pitchName, pitchOf } from "./names.js";
import { clamp } from "./state.js";

const EVERY = 500; // milliseconds between two looks at a job
const MOST_NOTES = 256; // of one instrument: the explorer builds no larger one
const PATIENCE = 20; // looks that may fail in a row
const KEPT = "sessionStorage"; // a page that is loaded anew goes on with its job

export class InstrumentBuilder {
  #job = null;
  #ordering = false;

  constructor({ state, model, placeWords, messages }) {
    this.state = state;
    this.model = model;
    this.placeWords = placeWords;
    this.messages = messages;
    this.dialog = $("instrument");
    this.form = $("instrument-form");
    const { low, high, seconds } = this.form.elements;
    [seconds.min, seconds.max] = model.seconds;
    [low.value, high.value] = [48, 72].map((pitch) => pitchName(clamp(pitch, model.pitch)));
    $("instrument-open").addEventListener("click", () => this.#open());
    $("instrument-close").addEventListener("click", () => this.dialog.close());
    $("job-cancel").addEventListener("click", () => this.#cancel());
    $("job-file").addEventListener("click", (event) => this.#save(event));
    this.form.addEventListener("input", () => this.#count());
    this.form.addEventListener("submit", (event) => this.#submit(event));
    const job = remembered("job", null, KEPT);
    if (job) this.#watch(job);
  }

  #open() {
    if (this.running) {
      this.messages.show(`${this.#job.title} is being built: wait for it, or cancel it.`);
      return;
    }
    if (this.#job && !this.#job.saved && !$("job-file").hidden) {
      this.messages.show(`${this.#job.title} is ready: save it, or close it, before you build another.`);
      return;
    }
    const { x, y } = this.state.values;
    const name = this.placeWords(x, y);
    $("instrument-words").textContent = `${name}, for samplers that read SFZ or DecentSampler's files, in a zip.`;
    this.form.elements.name.value = name.replace(/^(Between|Near) /, "");
    this.#count();
    this.dialog.showModal();
  }

  #velocities() {
    return [...new Set(this.form.elements.velocities.value.split(/[\s,;]+/).filter(Boolean).map(Number))];
  }

  #count() {
    const { low, high, step, takes } = this.form.elements;
    const [from, to] = [low, high].map(({ value }) => pitchOf(value));
    const [lowest, highest] = this.model.pitch;
    for (const input of [low, high]) {
      const plays = pitchOf(input.value) >= lowest && pitchOf(input.value) <= highest;
      input.setCustomValidity(plays ? "" : `A note from ${pitchName(lowest)} to ${pitchName(highest)}, or its number`);
    }
    const pitches = Math.floor((to - from) / Number(step.value)) + 1;
    const [least, most] = this.model.velocity;
    const allowed = (value) => Number.isInteger(value) && value >= least && value <= most;
    const velocities = this.#velocities();
    const wrong = !velocities.length || !velocities.every(allowed);
    this.form.elements.velocities.setCustomValidity(wrong ? `Whole numbers from ${least} to ${most}` : "");
    if (pitches < 1) high.setCustomValidity("Above the lowest note");
    const names = `${pitchName(from)} to ${pitchName(to)}`;
    const notes = pitches * velocities.length * Number(takes.value);
    const known = pitches > 0 && !wrong && step.checkValidity() && takes.checkValidity();
    if (known && notes > MOST_NOTES) high.setCustomValidity(`${notes} notes; ${MOST_NOTES} at most`);
    $("instrument-count").textContent = known ? `${names}: ${counted(notes, "note")}` : "";
  }

  async #submit(event) {
    event.preventDefault();
    if (this.#ordering || !this.form.reportValidity()) return;
    const { name, low, high, step, seconds, format, takes, loops, sf2 } = this.form.elements;
    const { x, y, seed, t: temperature } = this.state.values;
    const pitches = `${pitchOf(low.value)}-${pitchOf(high.value)}:${step.value}`;
    const request = { x, y, seed, temperature, pitches, velocities: this.#velocities(), format: format.value };
    Object.assign(request, { round_robins: Number(takes.value), loops: loops.checked, sf2: sf2.checked });
    if (name.value.trim()) request.name = name.value.trim();
    if (seconds.value) request.seconds = Number(seconds.value);
    this.#ordering = true;
    try {
      const { id, n_notes } = await postJson("api/instruments", request);
      this.dialog.close();
      this.#watch({ id, title: request.name ?? "instrument", notes: n_notes });
      this.#show({ state: "waiting", n_done: 0, n_notes });
    } catch (error) {
      if (this.dialog.open) $("instrument-count").textContent = error.message;
      else this.messages.show(error.message, "bad");
    } finally {
      this.#ordering = false;
    }
  }

  async #watch(job) {
    this.#job = job;
    this.running = true;
    remember("job", job, KEPT);
    for (let missed = 0; this.#job === job; await new Promise((resolve) => setTimeout(resolve, EVERY))) {
      try {
        const now = await getJson(`api/instruments/${encodeURIComponent(job.id)}`);
        if (this.#job !== job) return;
        missed = 0;
        this.#show(now);
        if (["done", "failed", "cancelled"].includes(now.state)) return;
      } catch (error) {
        if (this.#job !== job) return;
        if (error.code !== "unavailable") missed += 1; // an explorer that is away may come back, and has built on
        if (error.code === "not_found" && $("job").hidden) return this.#forget(); // of an explorer that is gone
        if (error.code === "not_found" || missed > PATIENCE) {
          this.#show({ state: "failed", n_done: 0, n_notes: job.notes, error: error.message });
          return;
        }
      }
    }
  }

  #show({ state, n_done, n_notes, seconds_left, error }) {
    const { title, id } = this.#job;
    const left = seconds_left === undefined ? "" : `, ${Math.ceil(seconds_left)} s left`;
    const reason = typeof error === "string" ? error : error?.message ?? "it could not be built";
    const words = {
      waiting: `${title}: waiting for its turn`,
      rendering: `${title}: ${n_done} of ${counted(n_notes, "note")}${left}`,
      finishing: `${title}: packing`,
      done: `${title}: ready, ${counted(n_notes, "note")}`,
      failed: `${title}: ${reason}`,
      cancelled: `${title}: cancelled`,
    };
    const isNew = $("job").hidden;
    $("job").hidden = false;
    $("job-words").textContent = words[state] ?? state;
    $("job-bar").value = state === "done" ? 1 : n_notes ? n_done / n_notes : 0;
    $("job-bar").hidden = ["failed", "cancelled"].includes(state);
    $("job-file").hidden = state !== "done";
    $("job-file").href = `api/instruments/${encodeURIComponent(id)}.zip`;
    $("job-file").download = `${title.replace(/[^\p{L}\p{N} ()._-]+/gu, " ").trim() || "instrument"}.zip`;
    $("job-cancel").textContent = ["waiting", "rendering", "finishing"].includes(state) ? "Cancel" : "Close";
    this.running = $("job-cancel").textContent === "Cancel";
    if (isNew || state === "done") $("job").scrollIntoView({ block: "end" });
    if (state === "done" && !isNew) this.messages.show(`${title} is ready to be saved.`, "good");
    if (state === "failed" && !isNew) this.messages.show(words.failed, "bad"); // its panel may be out of sight
  }

  /** Saves the zip where it is still there: a link to what is gone would replace the page, or save a refusal. */
  async #save(event) {
    event.preventDefault();
    const { href, download } = $("job-file");
    const job = this.#job;
    try {
      await getJson(`api/instruments/${encodeURIComponent(job.id)}`);
      element("a", { href, download }).click();
      job.saved = true;
      if (this.#job === job) remember("job", job, KEPT);
    } catch (error) {
      this.messages.show(`${job.title}: ${error.message}`, "bad");
      if (error.code === "not_found") this.#forget();
    }
  }

  async #cancel() {
    const job = this.#job;
    try {
      if (this.running) {
        await call(`api/instruments/${encodeURIComponent(job.id)}`, { method: "DELETE" });
        this.messages.show("Cancelled.");
      }
    } catch (error) {
      this.messages.show(`${job.title}: ${error.message}`, "bad"); // it is built on, perhaps
      return;
    }
    if (this.#job === job) this.#forget();
  }

  #forget() {
    this.#job = null;
    this.running = false;
    remember("job", null, KEPT);
    $("job").hidden = true;
  }
}
