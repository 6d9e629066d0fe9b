// The list of conversations at the side, with a search.
import { ask } from "./control.js";
import { fill, h } from "./dom.js";
import { counted, day, when } from "./format.js";
import { parts, to } from "./router.js";

const EVERY = 10000;
const MOST = 200;

let all = [];
let drawn = "";
const search = h("input", {
  type: "search",
  placeholder: "Search",
  aria: { label: "Search conversations" },
  on: { input: () => draw() },
});
const list = h("ol", {});
const found = h("p", { class: "unseen", role: "status" });

function draw() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = all.filter(({ id, title, agent }) =>
    words.every((word) => `${id} ${title} ${agent ?? ""}`.toLowerCase().includes(word)),
  );
  const [place, current] = parts();
  const open = place === "s" ? current : null;
  const now = JSON.stringify([shown.map(({ id, title, updated }) => [id, title, updated]), open]);
  if (now === drawn) return;
  drawn = now;
  found.textContent = words.length ? counted(shown.length, "conversation") : "";
  let last = "";
  const rows = shown.slice(0, MOST).flatMap((one) => {
    const group = day(one.updated);
    const heading = group === last ? null : h("li", {}, h("h2", {}, group));
    last = group;
    return [
      heading,
      h(
        "li",
        {},
        h(
          "a",
          { href: to.session(one.id), aria: { current: one.id === open ? "page" : undefined } },
          h("span", { class: "title" }, one.title || one.id),
          h(
            "span",
            { class: "when" },
            [when(one.updated), one.agent ?? one.handoff?.agent ? `@${one.agent ?? one.handoff.agent}` : null, one.title ? one.id : null]
              .filter(Boolean)
              .join(" · "),
          ),
        ),
      ),
    ];
  });
  if (shown.length > MOST) rows.push(h("li", { class: "muted small" }, `${shown.length - MOST} more: search for them`));
  fill(
    list,
    rows.length ? rows : h("li", { class: "muted small" }, words.length ? "Nothing found" : "No conversations yet"),
  );
}

async function read() {
  try {
    all = (await ask("sessions.list")).sort((a, b) => (a.updated < b.updated ? 1 : -1));
    draw();
  } catch {
    // The list stays as it was; the glance tells that the daemon is not reached.
  }
}

export function watch(place) {
  fill(place, search, found, list);
  const tick = async () => {
    if (document.visibilityState === "visible") await read();
    setTimeout(tick, EVERY);
  };
  tick();
  window.addEventListener("sessions-changed", read);
  window.addEventListener("hashchange", draw);
}

export function focusSearch() {
  search.focus();
}
