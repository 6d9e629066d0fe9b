// What a glance tells: what runs, what waits for the person, what today has cost.
import { ask } from "./control.js";
import { fill, h } from "./dom.js";
import { cost, count } from "./format.js";

const EVERY = 4000;

async function look() {
  const [status, approvals] = await Promise.allSettled([ask("status"), ask("approvals.list")]);
  const places = document.querySelectorAll("[data-glance]");
  if (status.status === "rejected") {
    const lost = status.reason.retriable;
    for (const place of places) fill(place, lost ? h("span", { class: "lost" }, "✕ not reached") : null);
    return;
  }
  const { running_turns: running, queued_turns: queued, state, budgets = [] } = status.value;
  const waits = approvals.status === "fulfilled" ? approvals.value.filter((one) => one.state === "pending").length : 0;
  const spent = budgets.find((one) => one.limit === "limits.day.max_cost_usd");
  const used = budgets.find((one) => one.limit === "limits.day.max_tokens");
  for (const place of places) {
    const text = [
      state === "ready" ? null : h("span", { class: "lost" }, state),
      running ? h("span", { class: "runs" }, `● ${running} running`) : null,
      queued ? h("span", {}, `○ ${queued} waiting`) : null,
      waits ? h("a", { class: "waits", href: "#/approvals" }, `◆ ${waits} for you`) : null,
      h(
        "a",
        { href: "#/usage", title: "Used today" },
        spent ? cost(spent.used / 1e6) : used ? `${count(used.used)} tokens` : "idle",
        h("span", { class: "unseen" }, " today"),
      ),
    ];
    const drawn = text.map((part) => part?.textContent ?? "").join("|");
    if (place.dataset.drawn !== drawn) {
      place.dataset.drawn = drawn;
      fill(place, text);
    }
  }
}

export function watch() {
  const tick = async () => {
    if (document.visibilityState === "visible") await look().catch(() => undefined);
    setTimeout(tick, EVERY);
  };
  tick();
  window.addEventListener("sessions-changed", () => look().catch(() => undefined));
}
