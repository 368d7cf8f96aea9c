// Files to keep: fetched first, so that a refusal becomes a message and not a broken page.

import { call, noteQuery } from "./api.js";

/** Saves the note that a request makes, as a 24-bit WAV. */
export async function downloadNote(request) {
  const response = await call(`/api/note.wav?${noteQuery(request)}`);
  saveBlob(await response.blob(), nameOf(response) ?? `timbrel-${request.pitch}.wav`);
}

export function saveBlob(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function nameOf(response) {
  return response.headers.get("Content-Disposition")?.match(/filename="?([^";]+)"?/)?.[1];
}
