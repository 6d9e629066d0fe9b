// The timeline of a turn, while it runs and afterwards: rows under each other, or a flame where what set something off
// stands above it. The width of a bar is its time.
import { attempt, bars, flame } from "./bars.js";
import { ask } from "./control.js";
import { fill, h, save } from "./dom.js";
import { cost, count, counted, duration, moment, state, tokens } from "./format.js";
import { Inspector } from "./inspector.js";
import { parts, to } from "./router.js";
import { follow } from "./stream.js";

// How often a turn that runs is asked for anew, at most, in milliseconds.
const PACE = 700;

export function timeline(place, [, session, , turn]) {
  const shown = new Timeline(place, session, turn);
  shown.open();
  return () => shown.close();
}

// The same where only the turn is known: the address becomes the one with its conversation.
export function ofTurn(place, [, turn]) {
  document.title = "Timeline – drupe";
  let closed = false;
  ask("turn.wait", { turn: turn ?? "", now: true, brief: true }).then(
    ({ session }) => closed || location.replace(to.turn(session, turn)),
    (fault) =>
      closed ||
      fill(
        place,
        h(
          "div",
          { class: "page" },
          h("h1", {}, "Timeline"),
          h("p", { class: "notice bad" }, fault.message, fault.help ? ` – ${fault.help}` : ""),
        ),
      ),
  );
  return () => {
    closed = true;
  };
}

class Timeline {
  constructor(place, session, turn) {
    Object.assign(this, { place, session, turn, closed: false, look: kept() });
    this.head = h("header", {});
    this.chart = h("section", { class: "chart", aria: { label: "Timeline" } });
    this.inspector = new Inspector(session, turn);
    this.choose = h(
      "div",
      { class: "choice", role: "group", aria: { label: "View" } },
      ["bars", "flame"].map((look) =>
        h(
          "button",
          { type: "button", data: { look }, on: { click: () => this.turnTo(look) } },
          look === "bars" ? "Bars" : "Flame",
        ),
      ),
    );
    this.tools = h(
      "div",
      { class: "row" },
      this.choose,
      h("button", { type: "button", on: { click: () => this.download() } }, "Download JSON"),
      h("a", { class: "button", href: to.why(turn) }, "Why"),
      h("a", { class: "button", href: to.message(session, turn) }, "Conversation"),
    );
    fill(
      place,
      h(
        "div",
        { class: "page wide" },
        this.head,
        this.tools,
        h("div", { class: "with-inspector" }, this.chart, this.inspector.element),
      ),
    );
    this.selected = () => this.select();
    window.addEventListener("hashchange", this.selected);
  }

  async open() {
    document.title = "Timeline – drupe";
    await this.read();
    if (this.closed || this.trace?.status) return;
    this.end = follow(
      this.session,
      0,
      (event) => event.turn === this.turn && this.later(),
      () => undefined,
    );
    this.ticks = setInterval(() => this.draw(), 1000);
  }

  later() {
    this.timer ??= setTimeout(async () => {
      this.timer = undefined;
      await this.read();
    }, PACE);
  }

  async read() {
    try {
      const traces = await ask("trace.show", { id: this.turn });
      this.trace = traces[0];
    } catch (fault) {
      if (!this.trace)
        fill(this.chart, h("p", { class: "notice bad" }, fault.message, fault.help ? ` – ${fault.help}` : ""));
      return;
    }
    if (this.closed) return;
    if (this.trace.status) {
      this.end?.();
      clearInterval(this.ticks);
    }
    this.draw();
    this.select();
  }

  draw() {
    const { trace } = this;
    if (!trace) return;
    const { spend } = trace;
    const now = Date.now();
    const running = !trace.status;
    const { sign, word, kind } = state(
      trace.class === "cancelled" ? "cancelled" : (trace.status ?? (trace.started ? "running" : "waiting")),
    );
    const begun = Date.parse(trace.started ?? trace.accepted);
    const repeated = repeats(trace.nodes);
    fill(
      this.head,
      h("h1", {}, "Timeline"),
      h("span", { class: `badge ${kind}` }, `${sign} ${word}`),
      h(
        "p",
        { class: "num" },
        [
          moment(trace.accepted),
          running ? duration(now - begun) : duration(spend.elapsed_ms),
          `${counted(tokens(spend.usage), "token")} (${count(spend.usage.input_tokens)} in, ${count(spend.usage.cached_tokens)} of them cached, ${count(spend.usage.output_tokens)} out)`,
          cost(spend.cost_usd),
          counted(spend.turns, "step"),
          counted(spend.tool_calls, "call"),
          counted(spend.invocations, "run"),
          repeated ? counted(repeated, "repeated attempt") : null,
        ]
          .filter(Boolean)
          .join(" · "),
      ),
    );
    for (const button of this.choose.children)
      button.setAttribute("aria-pressed", String(button.dataset.look === this.look));
    const focused = document.activeElement?.dataset?.node;
    const link = (node) => to.node(this.session, this.turn, node);
    fill(
      this.chart,
      trace.nodes.length
        ? (this.look === "bars" ? bars : flame)(trace.nodes, { begun, now, link })
        : h("p", { class: "empty" }, running ? "It waits for its turn." : "Nothing ran."),
    );
    this.mark();
    if (focused) this.chart.querySelector(`[data-node="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  mark() {
    for (const row of this.chart.querySelectorAll("[data-node]")) {
      if (row.dataset.node === this.node) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }

  select() {
    const address = parts();
    if (address[3] !== this.turn || !this.trace) return;
    const wanted = address[5] ?? null;
    this.node = wanted;
    this.mark();
    const path = wanted ? find(this.trace.nodes, wanted) : null;
    this.inspector.show(path?.at(-1) ?? null, path ?? []);
  }

  turnTo(look) {
    this.look = look;
    try {
      localStorage.setItem("timeline", look);
    } catch {
      // It holds for this view.
    }
    this.draw();
  }

  download() {
    save(`turn-${this.turn}.json`, JSON.stringify(this.trace, null, 2), "application/json");
  }

  close() {
    this.closed = true;
    this.end?.();
    clearTimeout(this.timer);
    clearInterval(this.ticks);
    window.removeEventListener("hashchange", this.selected);
  }
}

function kept() {
  try {
    return localStorage.getItem("timeline") === "flame" ? "flame" : "bars";
  } catch {
    return "bars";
  }
}

// Attempts that an earlier one of the same step made necessary.
function repeats(nodes) {
  return nodes.reduce((sum, node) => sum + (attempt(node) > 1) + repeats(node.nodes ?? []), 0);
}

// The nodes from the root to the one of this id.
function find(nodes, id) {
  for (const node of nodes) {
    if (node.id === id) return [node];
    const below = find(node.nodes ?? [], id);
    if (below) return [node, ...below];
  }
  return null;
}
