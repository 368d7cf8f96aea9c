// The map of timbres: what is on it, and what happens where it is touched.

import { Emitter, element } from "../browser.js";
import { intoDisc, round } from "../state.js";
import { Gestures } from "./gestures.js";
import { makeGround } from "./ground.js";
import { paintMoving, paintStill } from "./paint.js";
import { View } from "./view.js";

const DWELL = 140; // milliseconds that the pointer rests before a preview
const SNAP = 11; // CSS pixels around an instrument that belong to it
const STAY = 7; // CSS pixels that a preview's pointer may stray
const STEP_PIXELS = 22; // between two notes of a path
const STEP_TIME = 110; // milliseconds between them, at least
const TRAIL_TIME = 2600; // milliseconds that a path can be seen
const KEY_STEP = 0.02;
const ON_MAP = ["x", "y", "a", "b"]; // what of the state is drawn
const GLOW = 60; // CSS pixels that the loudest sound shines around the marker

/** Events: `moved` {x, y}, for whoever reads out where that is. */
export class Disc extends Emitter {
  #dwell = 0;
  #previewAt = null;
  #playedAt = null; // where a press or a path ended: resting there would play the same note again
  #lastStep = { left: 0, top: 0, time: 0 };
  #frame = 0;
  #dragging = false;
  #before = null; // what a press changes, as it was
  #still = document.createElement("canvas"); // what does not move, painted once
  #stale = true;
  #glow = element("div", { className: "glow" }); // no part of the canvas: it moves 30 times a second

  constructor(canvas, { points, palette, state, player, theme, still }) {
    super();
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.state = state;
    this.player = player;
    this.theme = theme;
    this.still = still; // whether motion is unwelcome
    this.palette = palette;
    this.previews = true;
    this.view = new View();
    this.points = points.map((point) => ({ ...point, shape: palette.get(point.family).shape, shown: true }));
    this.#rank();
    this.trail = [];
    this.hover = null;
    this.located = null;
    this.level = 0;
    for (const type of ["focus", "blur"]) canvas.addEventListener(type, () => this.redraw());
    state.addEventListener("change", ({ detail }) => detail.changed.some((key) => ON_MAP.includes(key)) && this.redraw());
    canvas.after(this.#glow);
    new ResizeObserver(() => this.#resize()).observe(canvas);
    this.#resize();
    new Gestures(canvas, this);
    this.recolour();
  }

  /** Takes the theme's colours anew, and the ground with them. */
  recolour() {
    this.ink = this.theme.ink();
    for (const point of this.points) point.colour = this.palette.get(point.family).hue[this.theme.shade];
    this.#makeGround();
  }

  /** Shows these families only. */
  filter(families) {
    for (const point of this.points) point.shown = families.has(point.family);
    this.#makeGround();
  }

  /** The instruments nearest to a point, the nearest first: [{point, distance}]. */
  nearest(x, y, count = 3) {
    return this.points
      .map((point) => ({ point, distance: Math.hypot(point.x - x, point.y - y) }))
      .sort((one, other) => one.distance - other.distance)
      .slice(0, count);
  }

  /** Goes to a point, and makes it a step of the history. */
  goTo(x, y) {
    this.state.set({ x, y }, { keep: true });
    this.view.reveal(x, y);
    this.redraw();
  }

  setLevel(level) {
    if (this.still()) return;
    this.level = level;
    this.#shine();
  }

  #shine() {
    const [left, top] = this.view.toScreen(this.state.get("x"), this.state.get("y"));
    const reach = this.level > 0.002 ? 14 + (GLOW - 14) * Math.min(1, Math.sqrt(this.level) * 1.4) : 0;
    this.#glow.style.transform = `translate(${left}px, ${top}px) scale(${reach / GLOW})`;
  }

  /** Zooms around a place on the canvas, or around the marker. */
  zoom(factor, place = this.view.toScreen(this.state.get("x"), this.state.get("y"))) {
    this.view.zoomAt(...place, factor);
    this.redraw();
  }

  pan(dx, dy) {
    this.view.panBy(dx, dy);
    this.redraw();
  }

  home() {
    this.view.reset();
    this.redraw();
  }

  /** Paints everything anew with the next frame. */
  redraw() {
    this.#stale = true;
    this.#animate();
  }

  /** Where a place on the canvas (CSS pixels) leads: an instrument if one is near; null outside the disc. */
  pointAt(left, top) {
    const near = this.#instrumentAt(left, top);
    if (near) return this.#inside(near.x, near.y, near);
    const [x, y] = this.view.toWorld(left, top);
    return (Math.hypot(x, y) - 1) * this.view.scale > 14 ? null : this.#inside(round(x, 3), round(y, 3));
  }

  /** Whatever is rounded is so before: rounded afterwards, a place at the rim might lie beyond it. */
  #inside(x, y, instrument = null) {
    const [inX, inY] = intoDisc(x, y);
    return { x: inX, y: inY, instrument };
  }

  #instrumentAt(left, top) {
    let [best, least] = [null, SNAP];
    for (const point of this.points) {
      if (!point.shown) continue;
      const [atLeft, atTop] = this.view.toScreen(point.x, point.y);
      const distance = Math.hypot(atLeft - left, atTop - top);
      if (distance < least) [best, least] = [point, distance];
    }
    return best;
  }

  hovered(left, top) {
    const far = (place) => place && Math.hypot(left - place[0], top - place[1]) > STAY;
    if (far(this.#previewAt)) {
      this.player.endPreview();
      this.#previewAt = null;
    }
    if (far(this.#playedAt)) this.#playedAt = null;
    clearTimeout(this.#dwell);
    const place = this.pointAt(left, top);
    this.canvas.style.cursor = place ? "crosshair" : "default";
    if (this.#previewAt && this.hover) return;
    this.hover = place && { ...place, previewing: false };
    if (place && this.previews && !this.#playedAt) this.#dwell = setTimeout(() => this.#dwelt(left, top, place), DWELL);
    this.redraw();
  }

  #dwelt(left, top, place) {
    this.#previewAt = [left, top];
    this.hover = { ...place, previewing: true };
    this.player.preview(place.x, place.y);
    this.redraw();
  }

  left() {
    clearTimeout(this.#dwell);
    this.#previewAt = this.#playedAt = null;
    this.player.endPreview();
    this.hover = null;
    this.redraw();
  }

  pressed(left, top) {
    clearTimeout(this.#dwell);
    const place = this.pointAt(left, top);
    this.#dragging = place !== null;
    if (!place) return;
    this.hover = null;
    this.#previewAt = null;
    this.#playedAt = [left, top];
    const { x, y, seed } = this.state.values;
    this.#before = { x, y, seed };
    this.state.set({ x: place.x, y: place.y });
    this.player.strike();
    this.trail = [this.#trailPoint(place, true)];
    this.#lastStep = { left, top, time: performance.now(), first: true };
    this.#announce();
  }

  dragged(left, top) {
    if (!this.#dragging) return;
    const place = this.pointAt(left, top) ?? this.#inside(...this.view.toWorld(left, top));
    this.#playedAt = [left, top];
    const last = this.#lastStep;
    const far = Math.hypot(left - last.left, top - last.top) >= STEP_PIXELS;
    const strikes = far && performance.now() - last.time >= STEP_TIME;
    this.state.set({ x: place.x, y: place.y });
    this.trail.push(this.#trailPoint(place, strikes));
    if (this.trail.length > 400) this.trail.shift();
    if (this.player.follow() || !strikes) return this.redraw();
    if (last.first && !this.player.holds) this.player.takeBack();
    this.player.step();
    this.#lastStep = { left, top, time: performance.now(), first: false };
  }

  released() {
    if (!this.#dragging) return;
    this.#dragging = false;
    this.#animate(); // the path fades
    this.player.letGo();
    this.state.keep();
    this.#announce();
  }

  /** Moves the marker by so many steps. */
  moveBy(dx, dy) {
    const step = KEY_STEP / this.view.zoom ** 0.7;
    const { x, y } = this.state.values;
    this.goTo(x + dx * step, y + dy * step);
    this.#announce();
  }

  /** The key on the map goes down or up. */
  key(down) {
    if (down) this.player.strike();
    else this.player.letGo();
  }

  /** A press turned out to be the beginning of something else. */
  abandoned() {
    if (!this.#dragging) return;
    this.#dragging = false;
    this.player.takeBack();
    this.state.set(this.#before);
    this.player.follow();
    this.trail = [];
    this.#announce();
  }

  #announce() {
    this.emit("moved", this.state.values);
  }

  #trailPoint({ x, y }, struck) {
    return { x, y, struck, time: performance.now(), strength: 1 };
  }

  /** Those that stand alone are named first. */
  #rank() {
    const across = [...this.points].sort((one, other) => one.x - other.x);
    across.forEach((point, at) => {
      point.alone = across.length > 1 ? Infinity : 1;
      for (const step of [-1, 1]) {
        for (let i = at + step; Math.abs(across[i]?.x - point.x) < point.alone; i += step) {
          point.alone = Math.min(point.alone, Math.hypot(across[i].x - point.x, across[i].y - point.y));
        }
      }
    });
    const order = [...this.points].sort((one, other) => other.alone - one.alone);
    order.forEach((point, index) => (point.rank = index));
  }

  #makeGround() {
    this.ground = makeGround(this.points.filter(({ shown }) => shown));
    this.redraw();
  }

  #resize() {
    const { x, y, width, height } = this.canvas.getBoundingClientRect();
    const ratio = devicePixelRatio || 1;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    const buttons = [...this.canvas.parentElement.querySelectorAll("button")].map((each) => each.getBoundingClientRect());
    const fromCanvas = ({ left, right, top, bottom }) => ({ left: left - x, right: right - x, top: top - y, bottom: bottom - y });
    this.covered = buttons.map(fromCanvas);
    if (this.canvas.width === across && this.canvas.height === down && this.view.width === width) return; // an observer's first word
    this.canvas.width = across;
    this.canvas.height = down;
    this.view.resize(width, height);
    this.#stale = true;
    if (this.ink && width) this.#draw();
  }

  #draw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const ratio = devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(this.view.width * ratio)) return this.#resize(); // on another screen
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.#age();
    const scene = this.#scene();
    if (this.#stale) this.#drawStill(scene, ratio);
    this.context.clearRect(0, 0, this.view.width, this.view.height);
    this.context.drawImage(this.#still, 0, 0, this.view.width, this.view.height);
    paintMoving(this.context, this.view, scene, this.ink);
    this.#shine();
    if (this.trail.length > 1 && !this.#dragging) this.#animate();
  }

  #drawStill(scene, ratio) {
    this.#still.width = this.canvas.width;
    this.#still.height = this.canvas.height;
    const context = this.#still.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    paintStill(context, this.view, scene, this.ink);
    this.#stale = false;
  }

  #animate() {
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  #age() {
    if (this.#dragging) return;
    const now = performance.now();
    for (const point of this.trail) {
      const left = 1 - (now - point.time) / TRAIL_TIME;
      point.strength = this.still() ? Number(left > 0) : Math.max(0, left);
    }
    this.trail = this.trail.filter(({ strength }) => strength > 0);
  }

  #scene() {
    const { x, y, a, b } = this.state.values;
    const flag = (letter, place) => (place ? [{ x: place[0], y: place[1], letter }] : []);
    const { located } = this;
    const flags = [...flag("A", a), ...flag("B", b), ...flag("♪", located && [located.x, located.y])];
    const [nearest] = this.nearest(x, y, 1);
    const near = this.hover?.instrument ?? (nearest?.distance < 0.001 ? nearest.point : null);
    const { points, ground, trail, hover, covered } = this;
    const focused = this.canvas.matches(":focus-visible");
    return { points, ground, trail, hover, covered, flags, near, marker: { x, y }, focused };
  }
}
