// Who is signed in, and what they may do. The daemon decides about each request; here it is only what is offered.
import { OURS, ask } from "./control.js";

const ALL = ["read", "submit", "direct", "inspect", "extend", "operate"];

let known = { name: "operator", may: ALL, sessions: null, agents: [] };

// Asks once, at the beginning. Where the daemon cannot be reached everything is offered.
export async function identify() {
  try {
    known = await ask("whoami");
  } catch {
    // What somebody may not do is refused when they ask for it.
  }
}

export function may(power) {
  return known.may.includes(power);
}

export function name() {
  return known.name;
}

// The id of a new conversation, among those that are reached.
export function conversation(id) {
  return known.sessions ? `${known.sessions}:${id}` : id;
}

export async function leave() {
  await fetch("/sign-out", { method: "POST", headers: OURS, credentials: "same-origin", redirect: "manual" });
  location.replace("/");
}
