// Begins: shows what the address names, and keeps the frame around it.
import { fresh, session } from "./conversation.js";
import { fill, h } from "./dom.js";
import { watch as watchGlance } from "./glance.js";
import { keys } from "./keys.js";
import { parts, rename } from "./router.js";
import { watch as watchSessions } from "./sessions.js";
import { themeSwitch } from "./theme-switch.js";
import { identify, may } from "./who.js";

// Each view fills the place and gives what ends it. Those that are seldom opened are loaded when they are.
const VIEWS = {
  new: fresh,
  s: (place, address) =>
    address[2] === "t" ? later("./timeline.js", "timeline", place, address) : session(place, address),
  t: (...given) => later("./timeline.js", "ofTurn", ...given),
  why: (...given) => later("./why.js", "why", ...given),
  agents: (...given) => later("./agents.js", "agents", ...given),
  extensions: (...given) => later("./extensions.js", "extensions", ...given),
  approvals: (...given) => later("./approvals.js", "approvals", ...given),
  schedules: (...given) => later("./schedules.js", "schedules", ...given),
  memory: (...given) => later("./memory.js", "memory", ...given),
  usage: (...given) => later("./usage.js", "usage", ...given),
  daemon: (...given) => later("./daemon.js", "daemon", ...given),
};

// Each with what somebody must be able to do who is offered it.
const PLACES = [
  ["agents", "Agents", "read"],
  ["extensions", "Extensions", "inspect"],
  ["approvals", "Approvals", "inspect"],
  ["memory", "Memory", "operate"],
  ["schedules", "Schedules", "inspect"],
  ["usage", "Usage", "inspect"],
  ["daemon", "Daemon", "inspect"],
];

function later(module, name, place, address) {
  let end = null;
  let closed = false;
  import(module)
    .then((loaded) => {
      if (closed) return;
      end = loaded[name](place, address);
    })
    .catch(() =>
      fill(
        place,
        h("div", { class: "page" }, h("p", { class: "notice bad" }, "This view could not be loaded. Reload the page.")),
      ),
    );
  return () => {
    closed = true;
    end?.();
  };
}

const main = document.getElementById("main");
const side = document.getElementById("side");
const menu = document.getElementById("menu");
let end = null;
let first = true;
let before = "";

function show() {
  const address = parts();
  // The same view with another part of it chosen is the view's own affair.
  const view = address[0] === "s" && address[2] === "t" ? address.slice(0, 4).join("/") : location.hash;
  if (view === before && end) return;
  before = view;
  end?.();
  end = null;
  drawer(false);
  fill(main);
  main.scrollTop = 0;
  const name = address[0] ?? "new";
  end = (VIEWS[name] ?? missing)(main, address);
  for (const link of document.querySelectorAll("#places a")) {
    if (link.dataset.place === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!first && name !== "s" && name !== "new") main.focus();
  first = false;
}

function missing(place) {
  document.title = "Not found – drupe";
  fill(
    place,
    h(
      "div",
      { class: "page" },
      h("h1", {}, "There is nothing at this address"),
      h("p", {}, h("a", { href: "#/new" }, "Begin a conversation")),
    ),
  );
  return () => undefined;
}

function drawer(open) {
  const inside = side.classList.contains("open") && side.contains(document.activeElement);
  side.classList.toggle("open", open);
  menu.setAttribute("aria-expanded", String(open));
  if (open) side.querySelector("a, input, button")?.focus();
  else if (inside) menu.focus();
}

await identify();
fill(
  document.getElementById("places"),
  PLACES.filter(([, , power]) => may(power)).map(([id, label]) =>
    h("a", { href: `#/${id}`, data: { place: id } }, label),
  ),
  themeSwitch(),
);
watchSessions(document.getElementById("sessions"));
if (may("inspect")) watchGlance();
keys({ drawer });
menu.addEventListener("click", () => drawer(!side.classList.contains("open")));
document.addEventListener("pointerdown", (event) => {
  if (side.classList.contains("open") && !side.contains(event.target) && !menu.contains(event.target)) drawer(false);
});
document.getElementById("skip").addEventListener("click", () => main.focus());
window.addEventListener("hashchange", show);
// The server shows the notice on how to sign in.
// At the same address, so that whoever is known after all stays where they were.
window.addEventListener("signed-out", () => location.reload());
window.addEventListener("renamed", () => {
  before = location.hash;
});
if (location.hash === "" || location.hash === "#/") rename("#/new");
before = "";
show();
