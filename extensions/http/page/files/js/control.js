// The one way to the daemon: a method of the control API with its parameters.

export class Fault extends Error {
  constructor({ code = "other", message = "the daemon did not answer", help = undefined, retriable = false } = {}) {
    super(message);
    this.code = code;
    this.help = help;
    this.retriable = retriable;
  }
}

// The header proves that a page of this origin asks: another origin cannot set it without leave.
export const OURS = { "X-Drupe-Request": "1" };

// The token of somebody who has no cookie here: a visitor of another site.
let token = null;

export function bear(given) {
  token = given;
}

// Asks the server, as whoever is here.
export function send(path, { headers = {}, ...more } = {}) {
  const own = token ? { ...OURS, Authorization: `Bearer ${token}` } : OURS;
  const credentials = token ? "omit" : "same-origin";
  return fetch(path, { credentials, redirect: "error", ...more, headers: { ...own, ...headers } });
}

async function post(path, headers, body, signal) {
  let answer;
  try {
    answer = await send(path, { method: "POST", headers, body, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Fault({
      code: "unavailable",
      message: "the daemon cannot be reached",
      help: "it may be restarting; this page tries again",
      retriable: true,
    });
  }
  if (answer.status === 401) {
    window.dispatchEvent(new Event("signed-out"));
    throw new Fault({
      code: "denied",
      message: "this browser is not signed in",
      help: "run `drupe open` and follow the link",
    });
  }
  const text = await answer.text();
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Fault({ message: `the answer was no JSON (status ${answer.status})`, retriable: answer.status >= 500 });
  }
  if (!answer.ok) throw new Fault(value?.error ?? {});
  return value;
}

export function ask(method, params = {}, signal = undefined) {
  return post(`/control/${method}`, { "Content-Type": "application/json" }, JSON.stringify(params), signal);
}

export async function html(text) {
  const answer = await post("/page/markdown", { "Content-Type": "text/plain; charset=utf-8" }, text, undefined);
  return typeof answer.html === "string" ? answer.html : "";
}

// An id that nobody else has, also where the browser offers no `randomUUID` because the page came over plain HTTP.
export function unique() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
