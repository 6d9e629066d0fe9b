// Agents: who there is, what each may use and spend, what it does not have and why, and a template to begin one with.
import { ask } from "./control.js";
import { copy, fill, h } from "./dom.js";
import { bytes, cost, count, duration } from "./format.js";
import { to } from "./router.js";

export function agents(place, [, id]) {
  const page = h("div", { class: "page" });
  fill(place, page);
  (id ? one(page, id) : all(page)).catch((fault) =>
    fill(page, h("p", { class: "notice bad" }, fault.message, fault.help ? ` – ${fault.help}` : "")),
  );
  return () => undefined;
}

async function all(page) {
  document.title = "Agents – drupe";
  const list = await ask("agents.list");
  fill(
    page,
    h(
      "header",
      {},
      h("h1", {}, "Agents"),
      h(
        "p",
        {},
        "Begin a message with @ and a name, or choose one for a conversation. ",
        h("a", { href: to.agent("orchestrator") }, "The orchestrator"),
        " calls the others by itself.",
      ),
    ),
    h(
      "ul",
      { class: "cards" },
      list.map((agent) =>
        h(
          "li",
          {},
          h(
            "a",
            { class: "card", href: to.agent(agent.id), data: { step: "" } },
            h(
              "span",
              { class: "row spread" },
              h("b", {}, agent.name || agent.id),
              h("span", { class: "mono small muted" }, `@${agent.id}`),
            ),
            h("span", { class: "text" }, agent.description),
            h(
              "span",
              { class: "small muted" },
              [
                agent.model ?? "default model",
                `${agent.tools.length} tools`,
                agent.infer ? null : "not chosen by itself",
              ]
                .filter(Boolean)
                .join(" · "),
            ),
          ),
        ),
      ),
    ),
  );
}

const LIMITS = [
  ["max_turns", "steps", count],
  ["max_tokens_per_invocation", "tokens", count],
  ["time_budget_ms", "time", duration],
  ["max_tool_calls", "calls", count],
  ["max_tool_calls_per_step", "calls in a step", count],
  ["parallel_tool_calls", "calls at a time", count],
  ["max_invocations", "runs", count],
  ["max_active_children", "agents beside it", count],
  ["max_depth", "levels below", count],
  ["max_retries", "repetitions", count],
  ["tool_timeout_ms", "time of a call", duration],
  ["max_cost_usd", "cost", cost],
];

async function one(page, id) {
  const agent = await ask("agents.show", { id });
  document.title = `${agent.name || id} – drupe`;
  const size = new Map((agent.sizes ?? []).map((row) => [row.tool, row]));
  fill(
    page,
    h(
      "header",
      {},
      h("h1", {}, agent.name || id),
      h("span", { class: "mono muted" }, `@${id}`),
      h("p", {}, agent.description),
    ),
    h(
      "dl",
      { class: "facts" },
      [
        ["model", agent.model ?? "the default model"],
        ["called", agent.mode === "handoff" ? "takes the conversation over" : "as a tool"],
        ["chosen by the orchestrator", agent.infer ? "yes" : "no, only by name"],
        agent.usage ? ["an example", agent.usage] : null,
        agent.output ? ["answers as", h("code", {}, JSON.stringify(agent.output))] : null,
      ]
        .filter(Boolean)
        .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
    section(
      "Tools",
      agent.tools.length
        ? table(
            ["tool", "from", "adds to each request"],
            agent.tools.map((tool) => {
              const row = size.get(tool);
              return [
                h("code", {}, tool),
                from(row),
                row ? `${bytes(row.bytes)}${row.on_demand ? ", once it is looked up" : ""}` : "",
              ];
            }),
          )
        : h("p", { class: "muted" }, "None."),
    ),
    agent.excluded?.length
      ? section(
          "Tools that it does not have",
          table(
            ["why not", "tools"],
            grouped(agent.excluded).map(([reason, tools]) => [reason, tools.map((tool) => [h("code", {}, tool), " "])]),
          ),
        )
      : null,
    section(
      "Limits of a run",
      h(
        "dl",
        { class: "facts" },
        LIMITS.filter(([key]) => agent.limits[key] !== undefined && agent.limits[key] !== null).map(
          ([key, name, write]) => [
            h("dt", {}, name),
            h("dd", { class: "num" }, write(agent.limits[key]), " ", h("code", { class: "muted" }, key)),
          ],
        ),
      ),
    ),
    agent.id === "orchestrator" ? null : template(agent),
  );
}

// The tools that the loop brings itself come from no extension.
const CORE = "core";

function from(row) {
  if (!row) return "";
  return row.extension === CORE ? "drupe itself" : h("a", { href: to.extension(row.extension) }, row.extension);
}

// Most tools are left out for the same few reasons.
function grouped(excluded) {
  const found = new Map();
  for (const { tool, reason } of excluded) found.set(reason, [...(found.get(reason) ?? []), tool]);
  return [...found];
}

function section(title, ...content) {
  return h("section", { class: "block" }, h("h2", {}, title), content);
}

export function table(heads, rows) {
  return h(
    "div",
    { class: "scroll", tabIndex: 0, role: "region", aria: { label: heads.join(", ") } },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((head) => h("th", { scope: "col" }, head)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            {},
            row.map((cell) => h("td", {}, cell)),
          ),
        ),
      ),
    ),
  );
}

// The agent as it is written down: complete, with the values that hold, and with comments. Nothing for who has no manifest.
function template(agent) {
  const place = h("div", {});
  ask("agents.template", { id: agent.id }).then(
    ({ manifest, frontmatter }) => {
      const [file, text] = frontmatter
        ? [`${agent.id}.md`, frontmatter]
        : [`${agent.id}/manifest.yaml`, manifest];
      const button = h("button", { type: "button", class: "quiet", on: { click: () => copy(text, button) } }, "Copy");
      fill(
        place,
        section(
          "Its manifest, to begin another one with",
          h(
            "p",
            { class: "muted small" },
            "Another one is kept in the home of the daemon as ",
            h("code", {}, `extensions/${file}`),
            " is, under a name of its own, which is also its ",
            h("code", {}, "id"),
            ".",
          ),
          h(
            "figure",
            { class: "code" },
            h("figcaption", {}, h("span", {}, file), button),
            h("pre", { tabIndex: 0 }, text),
          ),
        ),
      );
    },
    () => undefined,
  );
  return place;
}
