// The colours under the points: where each family has its ground, as in a watercolour.

const SIZE = 88; // pixels; it is drawn much larger, and smooth: twice as many differ in no colour by more than 1 of 255
const STRENGTH = 0.34; // 1 would hide the grid
const REACH = 0.15; // how far an instrument's colour spreads

/** Paints the ground of these points ({x, y, colour: "#rrggbb"}) and returns the canvas, world -1..1. */
export function makeGround(points) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIZE;
  const context = canvas.getContext("2d");
  const image = context.createImageData(SIZE, SIZE);
  const inks = [...new Set(points.map(({ colour }) => colour))].map((colour) => {
    const own = points.filter((point) => point.colour === colour);
    return { ink: channels(colour), own: own.map(({ x, y }) => ({ across: weights(x), down: weights(-y) })) };
  });
  for (let row = 0; row < SIZE; row++) paintRow(image.data, row, inks);
  context.putImageData(image, 0, 0);
  return canvas;
}

/** How much a point counts in each column, by its x, or in each row; in a pixel it counts the product of both. */
function weights(place) {
  return Float64Array.from({ length: SIZE }, (_, at) =>
    Math.exp(-((((at + 0.5) / SIZE) * 2 - 1 - place) ** 2) / (2 * REACH * REACH)));
}

function paintRow(data, row, inks) {
  const [red, green, blue, all, sum] = Array.from({ length: 5 }, () => new Float64Array(SIZE));
  for (const { ink, own } of inks) {
    const shares = new Float64Array(SIZE);
    for (const { across, down } of own) addShares(shares, sum, across, down[row]);
    for (let column = 0; column < SIZE; column++) {
      red[column] += shares[column] * ink[0];
      green[column] += shares[column] * ink[1];
      blue[column] += shares[column] * ink[2];
      all[column] += shares[column];
    }
  }
  for (let column = 0; column < SIZE; column++) {
    if (all[column] < 1e-9) continue;
    const colour = [red, green, blue].map((each) => each[column] / all[column]);
    data.set([...colour, 255 * STRENGTH * (1 - Math.exp(-sum[column]))], (row * SIZE + column) * 4);
  }
}

function addShares(shares, sum, across, down) {
  for (let column = 0; column < SIZE; column++) {
    const weight = across[column] * down;
    shares[column] += weight * weight; // the nearer one's colour wins: no mud between them
    sum[column] += weight;
  }
}

function channels(colour) {
  return [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
}
