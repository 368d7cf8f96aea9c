// Names beside the points: as many as fit, none over another.

const GAP = 8;

/**
 * Places names without overlap, the first of the list first.
 *
 * items: {text, left, top, width, radius}; returns those that fit, each with {x, y, align}.
 */
export function placeLabels(items, { width, height, lineHeight }, obstacles) {
  const taken = [...obstacles];
  const placed = [];
  for (const item of items) {
    const box = candidates(item, lineHeight).find((place) => fits(place, width, height, taken, item));
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
