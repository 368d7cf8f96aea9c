// The same sound elsewhere: as Python, as a command line.

/** A program that makes exactly this note. */
export function pythonOf(request, server) {
  const { x, y, pitch, velocity, seconds, seed, temperature } = request;
  const address = server === "private" ? "" : `"${server}"`;
  const how = `pitch=${pitch}, velocity=${velocity}, seconds=${seconds}, seed=${seed}, temperature=${temperature}`;
  return [
    "import timbrel",
    "",
    `with timbrel.Client(${address}) as client:`,
    `    note = client.generate(timbre=(${x}, ${y}), ${how})`,
    '    note.save("note.wav")',
    "",
  ].join("\n");
}

/** A command that does. */
export function commandOf(request, server) {
  const { x, y, pitch, velocity, seconds, seed, temperature } = request;
  const address = server === "private" ? "" : ` --server ${server}`;
  return (
    `timbrel render --timbre=${x},${y} --pitch ${pitch} --velocity ${velocity} --seconds ${seconds}` +
    ` --seed ${seed} --temperature ${temperature}${address} --out note.wav`
  );
}

/** Puts text where it can be pasted; raises where the browser refuses. */
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea"); // pages that are not over HTTPS have no clipboard
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error("The browser does not let pages copy.");
}
