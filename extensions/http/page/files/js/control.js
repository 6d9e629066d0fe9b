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

async function post(path, headers, body, signal) {
  let answer;
  try {
    answer = await fetch(path, {
      method: "POST",
      headers: { ...OURS, ...headers },
      body,
      signal,
      credentials: "same-origin",
      redirect: "error",
    });
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
