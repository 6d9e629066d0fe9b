// A conversation in a frame of another site. The page around the frame says who its visitor is, by a token that the site
// signed; the daemon gives that visitor sessions of their own.
import { ask, bear, unique } from "../js/control.js";
import { alarm, fill, h, say } from "../js/dom.js";
import { Growing } from "../js/markdown.js";
import { follow } from "../js/stream.js";
import { apply, ended, settle, turn as made } from "../js/turns.js";

const list = document.getElementById("turns");
const form = document.getElementById("writing");
const message = document.getElementById("message");
const send = form.querySelector("button");

const turns = new Map();
let session = null;
// What waits for a token that is valid.
let waiting = [];
// A token that is refused is asked for anew after so long, in milliseconds: one that the daemon does not take is none to hammer for.
const PAUSE = 10_000;
let wanted = -PAUSE;

// Only pages of origins that the operator named can hold the frame. The token is theirs to give, and nothing secret goes out.
const tell = (what) => window.parent.postMessage({ drupe: what }, "*");

window.addEventListener("message", ({ source, data }) => {
  if (source !== window.parent || data?.drupe !== "visitor" || typeof data.token !== "string") return;
  bear(data.token);
  if (typeof data.title === "string" && data.title !== "") {
    document.title = data.title;
    document.getElementById("title").textContent = data.title;
  }
  for (const go of waiting.splice(0)) go();
  if (session === null) begin(typeof data.greeting === "string" ? data.greeting : "").catch(failed);
});

// A token that the site signed for a short time is asked for anew when it has run out.
window.addEventListener("signed-out", () => {
  if (performance.now() - wanted < PAUSE) return;
  wanted = performance.now();
  tell("visitor");
});

async function asked(method, params) {
  try {
    return await ask(method, params);
  } catch (fault) {
    if (fault.code !== "unauthenticated" && fault.code !== "denied") throw fault;
    const again = new Promise((go) => waiting.push(go));
    const late = new Promise((_, end) => setTimeout(() => end(fault), 10_000));
    await Promise.race([again, late]);
    return ask(method, params);
  }
}

async function begin(greeting) {
  const who = await ask("whoami");
  session = `${who.sessions}:chat`;
  let seq = 0;
  let open = false;
  try {
    let after;
    do {
      const detail = await ask("sessions.show", { id: session, after });
      seq = detail.last_seq;
      for (const result of detail.turns) {
        const known = settle(made(result.turn), result);
        view(known);
        open ||= !ended(known);
      }
      after = detail.next;
    } while (after !== undefined && after !== null);
  } catch (fault) {
    if (fault.code !== "not_found") throw fault;
    if (greeting) list.append(h("p", { class: "muted greeting" }, greeting));
  }
  const past = new Set([...turns.values()].filter(({ turn }) => ended(turn)).map(({ turn }) => turn.id));
  // A turn that runs is told from its beginning.
  follow(session, open ? 0 : seq, (event) => past.has(event.turn) || take(event), () => undefined);
  message.disabled = false;
  send.disabled = false;
  message.focus();
}

function failed(fault) {
  session = null;
  fill(list, h("p", { class: "notice bad" }, `The chat cannot be opened: ${fault.message}`));
}

function take(event) {
  if (!event.turn) return;
  const shown = turns.get(event.turn) ?? view(made(event.turn));
  apply(shown.turn, event);
  shown.update();
  if (event.kind === "interaction.turn.completed") over(shown);
}

async function over(shown) {
  try {
    settle(shown.turn, await asked("turn.wait", { turn: shown.turn.id }));
  } catch {
    // What the events told is shown.
  }
  shown.update();
  say(shown.turn.content.slice(0, 300));
}

// A message and its answer, kept up to date.
function view(turn) {
  const near = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
  const saying = h("div", { class: "asked" }, turn.input);
  const prose = h("div", { class: "prose" });
  const state = h("p", { class: "muted small" });
  const growing = new Growing(prose);
  const element = h("article", { class: "turn", aria: { label: "Message and answer" } }, saying, prose, state);
  const update = () => {
    const follows = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
    saying.textContent = turn.input;
    const parts = turn.root?.parts ?? [];
    if (ended(turn)) {
      growing.end(turn.state === "success" ? turn.content : "");
      state.textContent = turn.state === "success" ? "" : excuse(turn);
    } else {
      growing.set(parts.filter((part) => part.kind === "text").map((part) => part.text).join("\n\n"));
      state.textContent = parts.at(-1)?.kind === "text" ? "" : "Working …";
    }
    if (follows) list.scrollTop = list.scrollHeight;
  };
  const shown = { turn, update };
  turns.set(turn.id, shown);
  list.append(element);
  update();
  if (near) list.scrollTop = list.scrollHeight;
  return shown;
}

// Visitors are told that it failed, and not how the daemon is set up.
function excuse(turn) {
  if (turn.class === "budget") return "You have reached what can be answered today.";
  if (turn.state === "refused") return "This was declined.";
  return "Something went wrong. Please try again.";
}

async function submit() {
  const text = message.value.trim();
  if (text === "" || session === null) return;
  message.value = "";
  try {
    const { turn } = await asked("turn.submit", { session, external_id: unique(), text, channel: "" });
    list.querySelector(".greeting")?.remove();
    const shown = turns.get(turn) ?? view(made(turn, text));
    shown.turn.input ||= text;
    shown.update();
    list.scrollTop = list.scrollHeight;
  } catch (fault) {
    message.value = text;
    alarm(fault.message);
    list.querySelector(".refused")?.remove();
    list.append(h("p", { class: "notice bad refused" }, fault.message));
    list.scrollTop = list.scrollHeight;
    setTimeout(() => list.querySelector(".refused")?.remove(), 8_000);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
message.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
window.addEventListener("keydown", (event) => {
  if (event.key === "Escape") tell("close");
});
tell("visitor");
