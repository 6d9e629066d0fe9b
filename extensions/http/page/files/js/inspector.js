// What is known of one row of a timeline: its facts, its limits, what went in and what came out, and why.
import { ask } from "./control.js";
import { fill, h } from "./dom.js";
import { bytes, cost, count, duration, moment, state } from "./format.js";
import { inspect } from "./inspect.js";
import { meters } from "./meters.js";
import { to } from "./router.js";
import { explained } from "./why.js";

export class Inspector {
  constructor(session, turn) {
    this.session = session;
    this.turn = turn;
    this.element = h("aside", {
      class: "inspector",
      hidden: true,
      tabIndex: -1,
      aria: { label: "What is known of the row" },
    });
    this.shown = "";
  }

  show(node, path) {
    const drawn = node ? JSON.stringify([node.id, node.outcome, node.elapsed_ms]) : "";
    if (drawn === this.shown) return;
    this.shown = drawn;
    this.element.hidden = !node;
    if (!node) return;
    const io = h("div", { class: "io open" });
    const limits = h("div", {});
    const why = h("div", {});
    fill(
      this.element,
      h(
        "div",
        { class: "row spread" },
        h("h2", {}, node.name),
        h("a", { class: "button quiet", href: to.turn(this.session, this.turn), aria: { label: "Close" } }, "✕"),
      ),
      facts(node),
      limits,
      io,
      this.why(node, why),
      why,
    );
    if (node.kind === "run") this.limits(limits, node);
    const item = this.item(node, path);
    if (item) inspect(io, this.session, item);
    if (matchMedia("(max-width: 1100px)").matches) this.element.scrollIntoView({ block: "nearest" });
  }

  // A run has the input and output of the call that set it off; a remark is all that there is of it.
  item(node, path) {
    if (node.kind === "run") return path.at(-2)?.kind === "tool" ? path.at(-2).id : null;
    return node.kind === "note" ? null : node.id;
  }

  why(node, place) {
    if (node.kind !== "run" && node.kind !== "tool") return null;
    const button = h("button", { type: "button", on: { click: () => explained(place, node.id) } }, "Why?");
    return h("div", { class: "row" }, button, h("a", { class: "small", href: to.why(node.id) }, "as a page"));
  }

  async limits(place, node) {
    const { limits } = await ask("agents.show", { id: node.name }).catch(() => ({ limits: null }));
    if (!limits) return;
    const steps = new Set(
      (node.nodes ?? []).filter((one) => one.kind === "model").map((one) => one.id.split(".").at(-2)),
    ).size;
    const within = (kind) => count0(node.nodes ?? [], kind);
    fill(
      place,
      h("h3", { class: "small muted" }, "Limits of the run, and what is used of them"),
      meters([
        ["steps", steps, limits.max_turns, count],
        [
          "tokens",
          (node.usage?.input_tokens ?? 0) + (node.usage?.output_tokens ?? 0),
          limits.max_tokens_per_invocation,
          count,
        ],
        ["time", node.elapsed_ms ?? Date.now() - Date.parse(node.started), limits.time_budget_ms, duration],
        ["calls", within("tool"), limits.max_tool_calls, count],
        ["runs", within("run") + 1, limits.max_invocations, count],
        ...(limits.max_cost_usd ? [["cost", node.cost_usd ?? 0, limits.max_cost_usd, cost]] : []),
      ]),
    );
  }
}

function count0(nodes, kind) {
  return nodes.reduce((sum, node) => sum + (node.kind === kind) + count0(node.nodes ?? [], kind), 0);
}

function facts(node) {
  const { sign, word, kind } = state(node.outcome ?? "running");
  const known =
    node.kind === "note"
      ? [["says", node.outcome]]
      : [
          ["state", h("span", { class: `sign ${kind}` }, `${sign} ${word}`)],
          ["by", node.path.join(" › ")],
          ["began", moment(node.started)],
          ["took", node.elapsed_ms === undefined ? "goes on" : duration(node.elapsed_ms)],
          node.usage
            ? [
                "tokens",
                `${count(node.usage.input_tokens)} in (${count(node.usage.cached_tokens)} cached), ${count(node.usage.output_tokens)} out (${count(node.usage.reasoning_tokens)} reasoning)`,
              ]
            : null,
          node.usage ? ["cost", cost(node.cost_usd)] : null,
          node.kind === "model"
            ? ["attempt", `${node.id.split(".").at(-1)} of step ${node.id.split(".").at(-2)}`]
            : null,
          node.bytes_in === undefined ? null : ["in", bytes(node.bytes_in)],
          node.bytes_out === undefined ? null : ["out", bytes(node.bytes_out)],
          ["id", h("code", {}, node.id)],
        ];
  return h(
    "dl",
    { class: "facts" },
    known.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}
