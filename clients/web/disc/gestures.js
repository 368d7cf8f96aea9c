// Gestures of fingers, mouse and keys on the map: hover, click, a path, pan, pinch, wheel, keys.

const SLOP = 8; // CSS pixels before a press becomes a drag
const WHEEL_STEP = 0.0016;

/** Tells the disc of them, all places in CSS pixels on its canvas. */
export class Gestures {
  #pointers = new Map();
  #mode = null; // press | drag | pan | pinch
  #from = [0, 0];
  #pinch = null;
  #keyed = false; // whether a key holds the map's note

  constructor(element, disc) {
    this.element = element;
    this.disc = disc;
    element.addEventListener("pointerdown", (event) => this.#down(event));
    element.addEventListener("pointermove", (event) => this.#moved(event));
    element.addEventListener("pointerup", (event) => this.#up(event));
    element.addEventListener("pointercancel", (event) => this.#up(event, true));
    addEventListener("blur", () => {
      for (const pointerId of this.#pointers.keys()) this.#up({ pointerId }); // in another window nobody tells of it
    });
    element.addEventListener("pointerleave", () => disc.left());
    element.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    element.addEventListener("contextmenu", (event) => event.preventDefault());
    element.addEventListener("keydown", (event) => this.#key(event));
    element.addEventListener("keyup", (event) => event.key === "Enter" && this.#hold(false));
    element.addEventListener("blur", () => this.#hold(false)); // another element hears of the key, or another window
  }

  #place(event) {
    const box = this.element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #down(event) {
    const place = this.#place(event);
    if (event.isTrusted) this.element.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, place);
    if (this.#pointers.size === 2) {
      if (this.#mode !== "pan") this.disc.abandoned();
      this.#mode = "pinch";
      this.#pinch = this.#span();
      return;
    }
    if (this.#pointers.size > 2) return;
    this.#from = place;
    const pans = event.button === 1 || event.button === 2 || event.shiftKey;
    this.#mode = pans ? "pan" : "press";
    if (!pans) this.disc.pressed(...place);
  }

  #moved(event) {
    const place = this.#place(event);
    const before = this.#pointers.get(event.pointerId);
    if (!before) {
      if (event.pointerType !== "touch") this.disc.hovered(...place);
      return;
    }
    this.#pointers.set(event.pointerId, place);
    if (this.#mode === "pinch") this.#pinched();
    else if (this.#mode === "pan") this.disc.pan(place[0] - before[0], place[1] - before[1]);
    else this.#dragged(place);
  }

  #dragged(place) {
    const far = Math.hypot(place[0] - this.#from[0], place[1] - this.#from[1]);
    if (this.#mode === "press" && far > SLOP) this.#mode = "drag";
    if (this.#mode === "drag") this.disc.dragged(...place);
  }

  #up(event, lost = false) {
    if (!this.#pointers.delete(event.pointerId)) return;
    if (this.#mode === "press" || this.#mode === "drag") {
      if (lost) this.disc.abandoned();
      else this.disc.released();
    }
    if (this.#pointers.size === 0 || this.#mode !== "pinch") this.#mode = null;
    else if (this.#pointers.size > 1) this.#pinch = this.#span(); // it goes on with other fingers
  }

  #span() {
    const [[ax, ay], [bx, by]] = [...this.#pointers.values()];
    return { left: (ax + bx) / 2, top: (ay + by) / 2, distance: Math.max(1, Math.hypot(ax - bx, ay - by)) };
  }

  #pinched() {
    if (this.#pointers.size < 2) return;
    const now = this.#span();
    this.disc.pan(now.left - this.#pinch.left, now.top - this.#pinch.top);
    this.disc.zoom(now.distance / this.#pinch.distance, [now.left, now.top]);
    this.#pinch = now;
  }

  #wheel(event) {
    event.preventDefault();
    const pixels = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
    const speed = event.ctrlKey ? 5 : 1; // a trackpad's pinch comes as small steps with ctrl
    this.disc.zoom(Math.exp(-pixels * WHEEL_STEP * speed), this.#place(event));
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const size = event.shiftKey ? 5 : 1;
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (step) this.disc.moveBy(step[0] * size, step[1] * size);
    else if (event.key === "Enter") event.repeat || this.#hold(true);
    else if (event.key === "+" || event.key === "=") this.disc.zoom(1.3);
    else if (event.key === "-") this.disc.zoom(1 / 1.3);
    else if (event.key === "0" || event.key === "Home") this.disc.home();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #hold(down) {
    if (down || this.#keyed) this.disc.key(down);
    this.#keyed = down;
  }
}
