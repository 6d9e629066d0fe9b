// What was used: by day, agent, model and conversation, and how much of the limits.
import { ask } from "./control.js";
import { fill, h } from "./dom.js";
import { amount, cost, count, moment, tokens } from "./format.js";
import { meters } from "./meters.js";
import { columns, days } from "./plot.js";
import { go, to } from "./router.js";

const SPANS = [
  ["7", "7 days"],
  ["30", "30 days"],
  ["90", "90 days"],
];
const KINDS = [
  ["agent", "By agent"],
  ["model", "By model"],
  ["session", "By conversation"],
];

export function usage(place, [, span = "30"]) {
  document.title = "Usage – drupe";
  const length = SPANS.some(([days]) => days === span) ? Number(span) : 30;
  const until = new Date().toISOString().slice(0, 10);
  const since = new Date(Date.now() - (length - 1) * 86400000).toISOString().slice(0, 10);
  const body = h("div", { class: "stack" });
  fill(
    place,
    h(
      "div",
      { class: "page" },
      h(
        "header",
        {},
        h("h1", {}, "Usage"),
        h(
          "div",
          { class: "choice", role: "group", aria: { label: "Span" } },
          SPANS.map(([days, label]) =>
            h(
              "button",
              {
                type: "button",
                aria: { pressed: String(Number(days) === length) },
                on: { click: () => go(`#/usage/${days}`) },
              },
              label,
            ),
          ),
        ),
        h("p", {}, "Days are those of UTC."),
      ),
      body,
    ),
  );
  // Plots are as wide as this is, so it is there before they are.
  fill(body, h("p", { class: "muted" }, "Reading…"));
  draw(body, since, until).catch((fault) =>
    fill(body, h("p", { class: "notice bad" }, fault.message, fault.help ? ` – ${fault.help}` : "")),
  );
  return () => undefined;
}

async function draw(body, since, until) {
  const [byDay, status, ...others] = await Promise.all([
    ask("usage.show", { by: "day", since }),
    ask("status").catch(() => null),
    ...KINDS.map(([by]) => ask("usage.show", { by, since })),
  ]);
  const of = new Map(byDay.map((row) => [row.key, row]));
  const all = days(since, until).map((day) => ({ day, row: of.get(day) }));
  const sum = (pick) => byDay.reduce((total, row) => total + pick(row), 0);
  const unpriced = sum((row) => row.unpriced_tokens);
  fill(
    body,
    h(
      "ul",
      { class: "sums" },
      [
        [cost(sum((row) => row.cost_usd)), unpriced ? `and ${count(unpriced)} tokens of unknown price` : "cost"],
        [count(sum((row) => tokens(row.usage))), "tokens"],
        [count(sum((row) => row.calls)), "model calls"],
        [count(sum((row) => row.invocations)), "runs of agents"],
      ].map(([number, name]) =>
        h("li", {}, h("b", { class: "num" }, number), h("span", { class: "small muted" }, name)),
      ),
    ),
    h(
      "section",
      { class: "block" },
      h("h2", {}, "Cost by day"),
      columns(
        all.map(({ day, row }) => ({ label: day, parts: [["cost", row?.cost_usd ?? 0]] })),
        cost,
        "Cost by day",
        body,
      ),
    ),
    h(
      "section",
      { class: "block" },
      h("h2", {}, "Tokens by day"),
      columns(
        all.map(({ day, row }) => ({
          label: day,
          parts: [
            ["cached", row?.usage.cached_tokens ?? 0],
            ["input", (row?.usage.input_tokens ?? 0) - (row?.usage.cached_tokens ?? 0)],
            ["output", row?.usage.output_tokens ?? 0],
          ],
        })),
        count,
        "Tokens by day",
        body,
      ),
      h(
        "p",
        { class: "small muted keys-of" },
        [
          ["cached", "cached input"],
          ["input", "other input"],
          ["output", "output"],
        ].map(([kind, name]) => [h("span", { class: `swatch ${kind}` }), `${name} `]),
      ),
    ),
    limits(status),
    KINDS.map(([by, title], at) => h("section", { class: "block" }, h("h2", {}, title), rows(by, others[at]))),
    h("details", {}, h("summary", {}, "The days as a table"), rows("day", byDay)),
  );
}

const SCOPES = {
  day: "All of today",
  agent: "The agent that used most today",
  session: "The conversation that used most",
};

function limits(status) {
  const budgets = (status?.budgets ?? []).filter((one) => one.allowed > 0);
  if (!budgets.length) return null;
  const of = (scope) => budgets.filter((one) => one.scope === scope);
  return h(
    "section",
    { class: "block" },
    h("h2", {}, "Limits, and what is used of them"),
    Object.entries(SCOPES)
      .filter(([scope]) => of(scope).length)
      .map(([scope, title]) => [
        h("h3", { class: "small muted" }, title, of(scope)[0].resets ? `, anew ${moment(of(scope)[0].resets)}` : ""),
        meters(
          of(scope).map((one) => [
            one.limit.split(".max_").at(-1).replace("_usd", "").replace("invocations", "runs"),
            one.used,
            one.allowed,
            (number) => amount(one.limit, number),
            one.limit,
          ]),
        ),
      ]),
  );
}

// Rows with a bar as long as their share of the greatest.
function rows(by, list) {
  if (!list.length) return h("p", { class: "muted" }, "Nothing yet.");
  const sorted = by === "day" ? list : [...list].sort((a, b) => tokens(b.usage) - tokens(a.usage)).slice(0, 30);
  const most = Math.max(1, ...sorted.map((row) => tokens(row.usage)));
  const name = (key) =>
    by === "agent"
      ? h("a", { href: to.agent(key) }, key)
      : by === "session"
        ? h("a", { href: to.session(key) }, key)
        : key;
  return h(
    "div",
    { class: "scroll", tabIndex: 0, role: "region", aria: { label: `Usage by ${by}` } },
    h(
      "table",
      { class: "shares" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          [by === "session" ? "conversation" : by, "share", "tokens", "calls", "cost"].map((head) =>
            h("th", { scope: "col" }, head),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        sorted.map((row) =>
          h(
            "tr",
            {},
            h("td", {}, name(row.key)),
            h("td", { class: "share" }, h("span", { style: { width: `${(tokens(row.usage) / most) * 100}%` } })),
            h("td", { class: "num" }, count(tokens(row.usage))),
            h("td", { class: "num" }, count(row.calls)),
            h("td", { class: "num" }, row.unpriced_tokens && !row.cost_usd ? "$?" : cost(row.cost_usd)),
          ),
        ),
      ),
    ),
  );
}
