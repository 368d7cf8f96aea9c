// The colours under the points: where each family has its ground, as in a watercolour.

const SIZE = 176; // pixels; it is drawn much larger, and smooth
const STRENGTH = 0.34; // 1 would hide the grid
const REACH = 0.15; // how far an instrument's colour spreads

/** Paints the ground of these points ({x, y, colour: "#rrggbb"}) and returns the canvas, world -1..1. */
export function makeGround(points) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIZE;
  const context = canvas.getContext("2d");
  const image = context.createImageData(SIZE, SIZE);
  const inks = points.map(({ x, y, colour }) => ({ x, y, ink: channels(colour) }));
  for (let row = 0; row < SIZE; row++) {
    for (let column = 0; column < SIZE; column++) {
      const x = ((column + 0.5) / SIZE) * 2 - 1;
      const y = 1 - ((row + 0.5) / SIZE) * 2;
      mix(image.data, (row * SIZE + column) * 4, inks, x, y);
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

function mix(data, place, inks, x, y) {
  let [red, green, blue, shares, sum] = [0, 0, 0, 0, 0];
  for (const { x: px, y: py, ink } of inks) {
    const weight = Math.exp(-((x - px) ** 2 + (y - py) ** 2) / (2 * REACH * REACH));
    const share = weight * weight; // the nearer one's colour wins: no mud between them
    red += share * ink[0];
    green += share * ink[1];
    blue += share * ink[2];
    shares += share;
    sum += weight;
  }
  if (shares < 1e-9) return;
  data.set([red / shares, green / shares, blue / shares, 255 * STRENGTH * (1 - Math.exp(-sum))], place);
}

function channels(colour) {
  return [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
}
