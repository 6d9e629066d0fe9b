// The events of a session, over lost connections and restarts of the daemon.

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 15000;
// A tab that nobody sees lets its connection go after this long, in milliseconds: a browser has six for each host.
const UNSEEN = 20000;

// Calls `onEvent` for each event after `after`, and `onState` with `open` or `lost`. Gives a function that ends it.
export function follow(session, after, onEvent, onState) {
  let last = after;
  let wait = FIRST_WAIT;
  let source = null;
  let timer = 0;
  let ended = false;

  const open = () => {
    source = new EventSource(`/events?session=${encodeURIComponent(session)}&after=${last}`);
    source.onopen = () => {
      wait = FIRST_WAIT;
      onState("open");
    };
    source.onmessage = (message) => {
      let event;
      try {
        event = JSON.parse(message.data);
      } catch {
        return;
      }
      // After a reconnection the same event may come twice; deltas have no number.
      if (event.seq && event.seq <= last) return;
      if (event.seq) last = event.seq;
      onEvent(event);
    };
    source.onerror = () => {
      if (ended) return;
      onState("lost");
      // The browser tries again by itself unless the answer was an error of HTTP.
      if (source.readyState !== EventSource.CLOSED) return;
      clearTimeout(timer);
      timer = setTimeout(open, wait);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    };
  };
  open();
  let unseen = 0;
  const seen = () => {
    clearTimeout(unseen);
    if (document.visibilityState === "hidden") {
      unseen = setTimeout(() => {
        clearTimeout(timer);
        source.close();
        onState("lost");
      }, UNSEEN);
    } else if (source.readyState === EventSource.CLOSED) {
      clearTimeout(timer);
      open();
    }
  };
  document.addEventListener("visibilitychange", seen);
  return () => {
    ended = true;
    document.removeEventListener("visibilitychange", seen);
    clearTimeout(unseen);
    clearTimeout(timer);
    source?.close();
  };
}
