// The bridge's plain HTTP side.

/** What the bridge refused, or that it does not answer. `code` as on the wire. */
export class ApiError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** Fetches; raises ApiError where the answer is not a good one. */
export async function call(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new ApiError("unavailable", "The explorer does not answer. Is `timbrel explore` still running?");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  const { code = "internal", message = `The answer was ${response.status}.` } = body.error ?? {};
  throw new ApiError(code, message);
}

export async function getJson(path) {
  return (await call(path)).json();
}

export async function postJson(path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await call(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}
