// The keyboard: a few keys, and a list of them.
import { h } from "./dom.js";
import { go } from "./router.js";
import { focusSearch } from "./sessions.js";

const KEYS = [
  ["/", "write"],
  ["n", "new conversation"],
  ["s", "search conversations"],
  ["j, k", "next and previous message, or row of a timeline"],
  ["g a", "agents"],
  ["g e", "extensions"],
  ["g p", "approvals"],
  ["g u", "usage"],
  ["g d", "daemon"],
  ["Esc", "leave the text, close the menu"],
  ["?", "this list"],
];
const PLACES = { a: "agents", e: "extensions", p: "approvals", u: "usage", d: "daemon" };

export function keys({ drawer }) {
  let leader = false;
  const help = dialog();
  document.addEventListener("keydown", (event) => {
    const writing = event.target.closest?.("input, textarea, select, dialog");
    if (event.key === "Escape") {
      drawer(false);
      if (writing) event.target.blur();
      return;
    }
    if (writing || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const place = leader ? PLACES[event.key] : null;
    leader = event.key === "g" && !leader;
    if (place) go(`#/${place}`);
    else if (event.key === "/") document.querySelector(".composer textarea")?.focus();
    else if (event.key === "n") go("#/new");
    else if (event.key === "s") {
      drawer(true);
      focusSearch();
    } else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
    else if (event.key === "?") help.showModal();
    else return;
    event.preventDefault();
  });
}

function step(by) {
  const all = [...document.querySelectorAll("main .turn, main [data-step]")].filter((one) => one.offsetParent !== null);
  const at = all.findIndex((one) => one === document.activeElement || one.contains(document.activeElement));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function dialog() {
  const made = h(
    "dialog",
    { class: "keys", aria: { label: "Keys" } },
    h("h2", {}, "Keys"),
    h(
      "dl",
      {},
      KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)]),
    ),
    h("form", { method: "dialog" }, h("button", { class: "primary" }, "Close")),
  );
  document.body.append(made);
  return made;
}
