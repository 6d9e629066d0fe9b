// The two drawings of a trace. Both are links: each row and each bar leads to what it shows.
import { h } from "./dom.js";
import { cost, count, duration, state, tokens } from "./format.js";

// A kind has a letter as well as a colour.
const LETTERS = { run: "A", model: "M", tool: "T", note: "!" };
const WORDS = { run: "agent", model: "model", tool: "tool", note: "remark" };

// A node's beginning and length, in milliseconds from the turn's beginning.
function span(node, begun, now) {
  const from = Math.max(0, Date.parse(node.started) - begun);
  const length = node.kind === "note" ? 0 : (node.elapsed_ms ?? Math.max(0, now - begun - from));
  return { from, length };
}

function total(nodes, begun, now) {
  const ends = nodes.map((node) => {
    const { from, length } = span(node, begun, now);
    return Math.max(from + length, total(node.nodes ?? [], begun, now));
  });
  return Math.max(1, ...ends);
}

// Which attempt of its step a call of a model is.
export function attempt(node) {
  return node.kind === "model" ? Number(node.id.split(".").at(-1)) : 1;
}

function again(node) {
  return attempt(node) > 1 ? `, attempt ${attempt(node)}` : "";
}

function told(node, length) {
  const words = [
    `${WORDS[node.kind]} ${node.name}${again(node)}`,
    node.kind === "note" ? node.outcome : duration(length),
    standing(node).word,
  ];
  if (node.usage) words.push(`${count(tokens(node.usage))} tokens`, cost(node.cost_usd));
  return words.filter(Boolean).join(", ");
}

// Why a call of a model ended where it did not fail; a failure has its text there.
const STOPS = ["end", "tool_calls", "length", "filter", "refusal"];

function failed(node) {
  if (node.kind === "model") return Boolean(node.outcome) && node.outcome !== "interrupted" && !STOPS.includes(node.outcome);
  return node.kind !== "note" && state(node.outcome ?? "running").kind === "bad";
}

// How a row stands: an attempt that failed tells why in its inspector.
function standing(node) {
  if (node.kind === "model" && failed(node)) return state("failed");
  return state(node.outcome ?? (node.elapsed_ms === undefined ? "running" : "end"));
}

function letter(node) {
  return [
    h("span", { class: `letter ${node.kind}`, aria: { hidden: true } }, LETTERS[node.kind]),
    h("span", { class: "unseen" }, `${WORDS[node.kind]} `),
  ];
}

function bar(node, from, length, whole) {
  const classes = [
    "bar",
    node.kind,
    failed(node) ? "failed" : "",
    node.elapsed_ms === undefined && node.kind !== "note" ? "open" : "",
  ];
  return h("span", {
    class: classes.filter(Boolean).join(" "),
    style: { left: `${(from / whole) * 100}%`, width: `${(length / whole) * 100}%` },
  });
}

function axis(whole) {
  const marks = [0, 0.5, 1];
  return h(
    "div",
    { class: "axis num", aria: { hidden: true } },
    marks.map((mark) => h("span", { style: { left: `${mark * 100}%` } }, mark ? duration(whole * mark) : "0")),
  );
}

export function bars(nodes, { begun, now, link }) {
  const whole = total(nodes, begun, now);
  const rows = [];
  const walk = (list, depth) => {
    for (const node of list) {
      const { from, length } = span(node, begun, now);
      const { sign, kind, word } = standing(node);
      const used = tokens(node.usage);
      rows.push(
        h(
          "li",
          { style: { "--depth": String(depth) } },
          h(
            "a",
            {
              class: "bar-row",
              href: link(node.id),
              data: { node: node.id, step: "" },
            },
            h(
              "span",
              { class: "label" },
              letter(node),
              h("span", { class: "text" }, node.name, again(node)),
              failed(node) || (node.elapsed_ms === undefined && node.kind !== "note")
                ? h("span", { class: `sign ${kind}`, aria: { hidden: true } }, sign)
                : null,
              h("span", { class: "unseen" }, node.kind === "note" ? ": " : `, ${word}, `),
            ),
            h(
              "span",
              { class: "track" },
              bar(node, from, length, whole),
              node.kind === "note" ? h("span", { class: "said" }, node.outcome ?? "") : null,
            ),
            h("span", { class: "fact num" }, node.kind === "note" ? "" : duration(length)),
            h(
              "span",
              { class: "fact num" },
              used ? [count(used), h("span", { class: "unit" }, " tokens")] : "",
            ),
            h("span", { class: "fact num" }, used ? cost(node.cost_usd) : ""),
          ),
        ),
      );
      walk(node.nodes ?? [], depth + 1);
    }
  };
  walk(nodes, 0);
  return [
    h(
      "div",
      { class: "bar-row heading", aria: { hidden: true } },
      h("span", { class: "label" }, legend()),
      h("span", { class: "track" }, axis(whole)),
      h("span", { class: "fact" }, "time"),
      h("span", { class: "fact" }, "tokens"),
      h("span", { class: "fact" }, "cost"),
    ),
    h("ol", { class: "rows" }, rows),
  ];
}

function legend() {
  return h(
    "span",
    { class: "legend" },
    ["run", "model", "tool"].map((kind) => [h("span", { class: `letter ${kind}` }, LETTERS[kind]), `${WORDS[kind]} `]),
  );
}

// What runs at the same time stands in lanes under each other; below each, what it set off. The longest of those that one
// call set off goes first, so that short ones make room for it and not it for them.
function lanesOf(nodes, { begun, now }, whole) {
  const thin = whole / 300;
  const lanes = [];
  const placed = [];
  const put = (list, above) => {
    const spans = list.map((node) => ({ node, ...span(node, begun, now) })).sort((a, b) => b.length - a.length);
    for (const one of spans) {
      const end = one.from + Math.max(one.length, thin);
      // Ends that touch because a bar has a least width do not count.
      const meets = (other) => Math.min(end, other.end) - Math.max(one.from, other.from) > thin / 2;
      one.lane = above + 1;
      while ((lanes[one.lane] ?? []).some(meets)) one.lane += 1;
      (lanes[one.lane] ??= []).push({ from: one.from, end });
      placed.push(one);
    }
    for (const { node, lane } of spans) put(node.nodes ?? [], lane);
  };
  put(nodes, -1);
  return { placed: placed.sort((a, b) => a.from - b.from), high: lanes.length };
}

export function flame(nodes, { begun, now, link }) {
  const whole = total(nodes, begun, now);
  const { placed, high } = lanesOf(nodes, { begun, now }, whole);
  const made = placed.map(({ node, from, length, lane }) =>
    h(
      "li",
      {},
      h(
        "a",
        {
          class: `flame-bar ${node.kind} ${failed(node) ? "failed" : ""}`,
          href: link(node.id),
          title: told(node, length),
          data: { node: node.id, step: "" },
          style: { left: `${(from / whole) * 100}%`, width: `${(length / whole) * 100}%`, top: `${lane * 30}px` },
        },
        h(
          "span",
          {},
          h("span", { aria: { hidden: true } }, `${LETTERS[node.kind]} `),
          h("span", { class: "unseen" }, `${WORDS[node.kind]} `),
          node.name,
          h("span", { class: "unseen" }, told(node, length).slice(`${WORDS[node.kind]} ${node.name}`.length)),
        ),
      ),
    ),
  );
  return [
    h("div", { class: "flame-axis" }, axis(whole)),
    h("ol", { class: "flame", style: { height: `${high * 30}px` } }, made),
    h("p", { class: "small muted" }, legend()),
  ];
}
