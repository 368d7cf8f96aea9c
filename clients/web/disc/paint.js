// How the map looks: all drawing on its canvas, nothing else.

import { traceShape } from "../families.js";

const GAP = 8; // CSS pixels between a point and its name
const RINGED = 11; // CSS pixels around the marker, and around what is pointed at
const TURN = 2 * Math.PI;
const FONT = 'system-ui, -apple-system, "Segoe UI", Inter, Roboto, sans-serif';

/** Draws what stays as it is while notes sound: ground, points, names. `ink`: the theme's colours. */
export function paintStill(context, view, scene, ink) {
  paintGround(context, view, scene, ink);
  paintRim(context, view, ink);
  paintPoints(context, view, scene, ink);
  paintLabels(context, view, scene, ink);
}

/** Draws what lives, over it: the trail, flags, the pointer, the marker. */
export function paintMoving(context, view, scene, ink) {
  paintTrail(context, view, scene, ink);
  paintFlags(context, view, scene, ink);
  paintHover(context, view, scene, ink);
  paintMarker(context, view, scene, ink);
}

function paintGround(context, view, { ground }, ink) {
  const [left, top] = view.toScreen(0, 0);
  const radius = view.scale;
  context.save();
  circle(context, left, top, radius);
  context.fillStyle = ink.disc;
  context.fill();
  context.clip();
  context.imageSmoothingQuality = "high";
  if (ground) context.drawImage(ground, left - radius, top - radius, 2 * radius, 2 * radius);
  for (const part of [0.25, 0.5, 0.75]) ring(context, left, top, radius * part, 1, ink.grid);
  context.beginPath();
  context.moveTo(left - radius, top);
  context.lineTo(left + radius, top);
  context.moveTo(left, top - radius);
  context.lineTo(left, top + radius);
  context.stroke();
  context.restore();
}

function paintRim(context, view, ink) {
  const [left, top] = view.toScreen(0, 0);
  const radius = view.scale;
  ring(context, left, top, radius, 1, ink.rim);
  const reach = Math.min(7, view.margin * 0.45);
  context.beginPath();
  for (let tick = 0; tick < 120; tick++) {
    const angle = (tick / 120) * TURN;
    const length = tick % 10 === 0 ? reach : reach * 0.45;
    const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
    context.moveTo(left + cosine * (radius + 3), top + sine * (radius + 3));
    context.lineTo(left + cosine * (radius + 3 + length), top + sine * (radius + 3 + length));
  }
  context.strokeStyle = ink.ticks;
  context.stroke();
}

function paintTrail(context, view, { trail }, ink) {
  if (trail.length < 2) return;
  context.lineCap = "round";
  context.lineJoin = "round";
  context.strokeStyle = ink.accent;
  for (let index = 1; index < trail.length; index++) {
    context.globalAlpha = 0.55 * trail[index].strength;
    context.lineWidth = 1 + 2 * trail[index].strength;
    context.beginPath();
    context.moveTo(...view.toScreen(trail[index - 1].x, trail[index - 1].y));
    context.lineTo(...view.toScreen(trail[index].x, trail[index].y));
    context.stroke();
  }
  for (const { x, y, strength, struck } of trail) {
    if (!struck) continue;
    context.globalAlpha = 0.9 * strength;
    context.fillStyle = ink.accent;
    circle(context, ...view.toScreen(x, y), 3);
    context.fill();
  }
  context.globalAlpha = 1;
}

/** How large a point is drawn, in CSS pixels. */
function pointRadius(view) {
  const small = Math.min(view.width, view.height) < 480;
  return (small ? 4.2 : 5) * view.zoom ** 0.22;
}

function paintPoints(context, view, { points, near }, ink) {
  const radius = pointRadius(view);
  for (const point of points) {
    const [left, top] = view.toScreen(point.x, point.y);
    if (left < -20 || top < -20 || left > view.width + 20 || top > view.height + 20) continue;
    context.globalAlpha = point.shown ? 1 : 0.13;
    traceShape(context, point.shape, left, top, point === near ? radius * 1.35 : radius);
    context.fillStyle = point.colour;
    context.fill();
    context.lineWidth = 1.5;
    context.strokeStyle = ink.disc;
    context.stroke();
  }
  context.globalAlpha = 1;
}

function paintLabels(context, view, { points, near, marker, flags, covered }, ink) {
  const size = Math.min(view.width, view.height) < 480 ? 11 : 12;
  const radius = pointRadius(view);
  context.font = `500 ${size}px ${FONT}`;
  context.textBaseline = "middle";
  const visible = points.filter((point) => point.shown);
  const [markerLeft, markerTop] = view.toScreen(marker.x, marker.y);
  const items = visible.map((point) => {
    const [left, top] = view.toScreen(point.x, point.y);
    const width = context.measureText(point.instrument).width;
    const ringed = point === near || Math.hypot(left - markerLeft, top - markerTop) < 1;
    return { key: point, text: point.instrument, left, top, width, ringed, radius: ringed ? RINGED : radius };
  });
  items.sort((one, other) => other.ringed - one.ringed || one.key.rank - other.key.rank);
  const obstacles = items.map(({ key, left, top }) => box(key, left, top, radius + 3));
  obstacles.push(box(null, markerLeft, markerTop, RINGED), ...covered, ...flags.map((flag) => flagBox(view, flag)));
  const inside = items.filter(({ left, top }) => left > 0 && top > 0 && left < view.width && top < view.height);
  const frame = { width: view.width, height: view.height, lineHeight: size + 3 };
  for (const label of placeLabels(inside, frame, obstacles)) {
    context.textAlign = label.align;
    context.lineWidth = 3;
    context.lineJoin = "round";
    context.strokeStyle = ink.halo;
    context.strokeText(label.text, label.x, label.y);
    context.fillStyle = label.key === near ? ink.text : ink.label;
    context.fillText(label.text, label.x, label.y);
  }
}

/**
 * Places names without overlap, the first of the list first; a ringed one, where it must, over other points.
 *
 * items: {text, left, top, width, radius, ringed}; returns those that fit, each with {x, y, align}.
 */
function placeLabels(items, { width, height, lineHeight }, obstacles) {
  const taken = [...obstacles];
  const placed = [];
  for (const item of items) {
    const places = candidates(item, lineHeight);
    const free = (among) => places.find((place) => fits(place, width, height, among, item));
    const box = free(taken) ?? (item.ringed ? free(taken.filter(({ of }) => !of)) : undefined);
    if (!box) continue;
    taken.push(box);
    placed.push({ ...item, x: box.textX, y: box.textY, align: box.align });
  }
  return placed;
}

function candidates({ left, top, width, radius }, lineHeight) {
  const away = radius + GAP / 2;
  const half = lineHeight / 2;
  const beside = { top: top - half, bottom: top + half, textY: top };
  const over = { left: left - width / 2, right: left + width / 2, textX: left, align: "center" };
  return [
    { ...beside, left: left + away, right: left + away + width, textX: left + away, align: "left" },
    { ...beside, left: left - away - width, right: left - away, textX: left - away, align: "right" },
    { ...over, top: top - away - lineHeight, bottom: top - away, textY: top - away - half },
    { ...over, top: top + away, bottom: top + away + lineHeight, textY: top + away + half },
  ];
}

function fits(box, width, height, taken, item) {
  if (box.left < 2 || box.right > width - 2 || box.top < 2 || box.bottom > height - 2) return false;
  return taken.every((other) => other.of === item.key || apart(box, other));
}

function apart(one, other) {
  return (
    one.right + 3 < other.left || other.right + 3 < one.left || one.bottom < other.top || other.bottom < one.top
  );
}

function box(of, left, top, reach) {
  return { of, left: left - reach, right: left + reach, top: top - reach, bottom: top + reach };
}

function flagBox(view, { x, y }) {
  const [left, top] = view.toScreen(x, y);
  return { of: null, left: left - 10, right: left + 10, top: top - 28, bottom: top - 4 };
}

function paintFlags(context, view, { flags }, ink) {
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const { x, y, letter } of flags) {
    const [left, top] = view.toScreen(x, y);
    context.font = `700 11px ${FONT}`;
    const width = Math.max(18, context.measureText(letter).width + 12);
    context.beginPath();
    context.moveTo(left, top - 3);
    context.lineTo(left - 4, top - 10);
    context.lineTo(left + 4, top - 10);
    context.closePath();
    context.roundRect(left - width / 2, top - 27, width, 18, 5);
    context.fillStyle = ink.text;
    context.fill();
    context.fillStyle = ink.disc;
    context.fillText(letter, left, top - 17.5);
    circle(context, left, top, 2.5);
    context.fillStyle = ink.text;
    context.fill();
  }
}

function paintHover(context, view, { hover }, ink) {
  if (!hover) return;
  context.globalAlpha = hover.previewing ? 0.8 : 0.4;
  ring(context, ...view.toScreen(hover.x, hover.y), 12, 1.5, ink.text);
  context.globalAlpha = 1;
}

function paintMarker(context, view, { marker, focused }, ink) {
  const [left, top] = view.toScreen(marker.x, marker.y);
  ring(context, left, top, 10, 5, ink.halo);
  ring(context, left, top, 10, 2.25, ink.accent);
  circle(context, left, top, 2.5);
  context.fillStyle = ink.accent;
  context.fill();
  if (!focused) return;
  const { width, height } = view;
  context.setLineDash([4, 3]);
  if (left > 0 && top > 0 && left < width && top < height) ring(context, left, top, 16, 2, ink.text);
  else {
    context.lineWidth = 2; // the map itself, where the marker is out of sight
    context.strokeStyle = ink.text;
    context.strokeRect(2, 2, width - 4, height - 4);
  }
  context.setLineDash([]);
}

function ring(context, left, top, radius, width, colour) {
  circle(context, left, top, radius);
  context.lineWidth = width;
  context.strokeStyle = colour;
  context.stroke();
}

function circle(context, left, top, radius) {
  context.beginPath();
  context.arc(left, top, radius, 0, TURN);
}
