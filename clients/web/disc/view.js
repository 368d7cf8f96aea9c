// Where a point of the disc lies on the screen: zoom and pan.

const MOST_ZOOM = 24;

/** The map's window: world coordinates have the unit disc in them, y up; the screen's are CSS pixels, y down. */
export class View {
  constructor() {
    this.width = 1;
    this.height = 1;
    this.margin = 20;
    this.reset();
  }

  reset() {
    this.zoom = 1;
    this.x = 0; // the world's point in the middle of the screen
    this.y = 0;
  }

  resize(width, height) {
    this.width = width;
    this.height = height;
    this.margin = Math.max(10, Math.min(22, Math.min(width, height) * 0.035));
  }

  /** CSS pixels for each unit. */
  get scale() {
    return Math.max(1, Math.min(this.width, this.height) / 2 - this.margin) * this.zoom;
  }

  toScreen(x, y) {
    return [this.width / 2 + (x - this.x) * this.scale, this.height / 2 - (y - this.y) * this.scale];
  }

  toWorld(left, top) {
    return [this.x + (left - this.width / 2) / this.scale, this.y - (top - this.height / 2) / this.scale];
  }

  /** Zooms by a factor and keeps the point under (left, top) where it is. */
  zoomAt(left, top, factor) {
    const [x, y] = this.toWorld(left, top);
    this.zoom = Math.min(MOST_ZOOM, Math.max(1, this.zoom * factor));
    const [nowX, nowY] = this.toWorld(left, top);
    this.x += x - nowX;
    this.y += y - nowY;
    this.#keepNear();
  }

  panBy(dx, dy) {
    this.x -= dx / this.scale;
    this.y += dy / this.scale;
    this.#keepNear();
  }

  /** Moves the window so that (x, y) is well inside. */
  reveal(x, y) {
    const [left, top] = this.toScreen(x, y);
    const edge = Math.min(60, this.width / 6, this.height / 6);
    if (this.zoom === 1) return;
    const dx = Math.min(0, this.width - edge - left) + Math.max(0, edge - left);
    const dy = Math.min(0, this.height - edge - top) + Math.max(0, edge - top);
    this.panBy(dx, dy);
  }

  #keepNear() {
    const most = 1 - 1 / this.zoom;
    const distance = Math.hypot(this.x, this.y);
    if (distance <= most) return;
    const back = distance ? most / distance : 0;
    this.x *= back;
    this.y *= back;
  }
}
