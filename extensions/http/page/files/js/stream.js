// The events of a session, over lost connections and restarts of the daemon.
import { send } from "./control.js";

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 15000;
// A tab that nobody sees lets its connection go after this long, in milliseconds: a browser has six for each host.
const UNSEEN = 20000;

// Calls `onEvent` for each event after `after`, and `onState` with `open` or `lost`. Gives a function that ends it.
export function follow(session, after, onEvent, onState) {
  let last = after;
  let wait = FIRST_WAIT;
  let reading = null;
  let timer = 0;

  const open = () => {
    const own = new AbortController();
    reading = own;
    read(own.signal)
      .catch(() => undefined)
      .then(() => {
        if (reading !== own) return;
        reading = null;
        onState("lost");
        timer = setTimeout(open, wait);
        wait = Math.min(wait * 2, LONGEST_WAIT);
      });
  };

  const read = async (signal) => {
    const answer = await send(`/events?session=${encodeURIComponent(session)}&after=${last}`, {
      headers: { Accept: "text/event-stream" },
      cache: "no-store",
      signal,
    });
    if (answer.status === 401) window.dispatchEvent(new Event("signed-out"));
    if (!answer.ok) return;
    wait = FIRST_WAIT;
    onState("open");
    for await (const data of messages(answer.body, signal)) {
      let event;
      try {
        event = JSON.parse(data);
      } catch {
        continue;
      }
      // After a reconnection the same event may come twice; deltas have no number.
      if (event.seq && event.seq <= last) continue;
      if (event.seq) last = event.seq;
      onEvent(event);
    }
  };

  const close = () => {
    clearTimeout(timer);
    const own = reading;
    reading = null;
    own?.abort();
  };

  open();
  let unseen = 0;
  const seen = () => {
    clearTimeout(unseen);
    if (document.visibilityState === "hidden") {
      unseen = setTimeout(() => {
        close();
        onState("lost");
      }, UNSEEN);
    } else if (!reading) {
      clearTimeout(timer);
      open();
    }
  };
  // A browser keeps pages that somebody left, and their connections with them: six of those would leave none for the next.
  document.addEventListener("visibilitychange", seen);
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", seen);
  return () => {
    document.removeEventListener("visibilitychange", seen);
    window.removeEventListener("pagehide", close);
    window.removeEventListener("pageshow", seen);
    clearTimeout(unseen);
    close();
  };
}

// What server-sent events without a name hold: the server ends lines by a line feed alone and tells each in one line of
// `data`. One with a name is a fault, after which the connection ends.
async function* messages(body, signal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let named = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done || signal.aborted) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const [field] = line.split(":", 1);
      if (field === "data" && !named) yield line.slice(field.length + 1).trimStart();
      named = field === "event" || (named && line !== "");
    }
  }
}
