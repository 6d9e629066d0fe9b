// Extensions: in which state each is and why, what it brings, and turning it on and off.
import { card } from "./approval.js";
import { table } from "./agents.js";
import { ask } from "./control.js";
import { alarm, fill, h, say } from "./dom.js";
import { bytes, moment, state } from "./format.js";
import { to } from "./router.js";
import { explained } from "./why.js";

export function extensions(place, [, id]) {
  const page = h("div", { class: "page" });
  fill(place, page);
  const read = () =>
    (id ? one(page, id, read) : all(page)).catch((fault) =>
      fill(page, h("p", { class: "notice bad" }, fault.message, fault.help ? ` – ${fault.help}` : "")),
    );
  read();
  return () => undefined;
}

// What needs somebody stands first.
const ORDER = ["bad", "wait", "", "good"];

async function all(page) {
  document.title = "Extensions – drupe";
  const list = await ask("extensions.list");
  const rank = (one) => ORDER.indexOf(state(one.state).kind);
  const sorted = [...list].sort((a, b) => rank(a) - rank(b) || a.id.localeCompare(b.id));
  fill(
    page,
    h("header", {}, h("h1", {}, "Extensions"), h("p", {}, "Everything that the assistant can do lives in these.")),
    h(
      "ul",
      { class: "cards" },
      sorted.map((one) => {
        const { sign, word, kind } = state(one.state);
        return h(
          "li",
          {},
          h(
            "a",
            { class: "card", href: to.extension(one.id), data: { step: "" } },
            h(
              "span",
              { class: "row spread" },
              h("b", {}, one.id),
              h("span", { class: `badge ${kind}` }, `${sign} ${word}`),
            ),
            one.reason ? h("span", { class: "text" }, one.reason) : null,
            h(
              "span",
              { class: "small muted" },
              [one.version, one.capabilities.join(", "), one.isolation, one.source].filter(Boolean).join(" · "),
            ),
          ),
        );
      }),
    ),
  );
}

async function one(page, id, read) {
  const [shown, asked] = await Promise.all([ask("extensions.show", { id }), ask("approvals.list").catch(() => [])]);
  document.title = `${shown.name || id} – drupe`;
  const { sign, word, kind } = state(shown.state);
  const waiting = asked.filter((approval) => approval.extension === id && approval.state === "pending");
  const off = shown.state === "disabled";
  const told = h("p", { class: "small", role: "status" });
  const why = h("div", {});
  const button = h(
    "button",
    { type: "button", class: off ? "primary" : "", on: { click: () => turn(id, off, button, told, read) } },
    off ? "Turn on" : "Turn off",
  );
  fill(
    page,
    h(
      "header",
      {},
      h("h1", {}, shown.name || id),
      h("span", { class: `badge ${kind}` }, `${sign} ${word}`),
      h("p", {}, shown.summary || shown.description),
    ),
    waiting.map((approval) => card(approval, read)),
    shown.reason ? h("p", { class: `notice ${kind}` }, shown.reason) : null,
    shown.setup_instructions
      ? h("p", { class: "notice wait" }, h("b", {}, "To set it up: "), shown.setup_instructions)
      : null,
    h(
      "div",
      { class: "row" },
      button,
      h("button", { type: "button", on: { click: () => explained(why, id) } }, "Why is it so?"),
    ),
    told,
    why,
    h(
      "dl",
      { class: "facts" },
      [
        ["id", h("code", {}, shown.id)],
        ["version", shown.version],
        ["brings", shown.capabilities.join(", ")],
        ["runs", shown.isolation],
        ["from", shown.source],
        ["rights", shown.rights.join(", ")],
        ["needs", shown.depends_on.map((other) => h("a", { href: to.extension(other) }, `${other} `))],
        ["since", moment(shown.since)],
        ["content", shown.content ? h("code", {}, shown.content) : null],
      ]
        .filter(([, value]) => value && value.length !== 0)
        .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
    shown.tools.length
      ? h(
          "section",
          { class: "block" },
          h("h2", {}, "Tools"),
          table(
            ["tool", "adds to a request"],
            shown.tools.map((tool, at) => [h("code", {}, tool), shown.sizes?.[at] ? bytes(shown.sizes[at].bytes) : ""]),
          ),
        )
      : null,
    h(
      "section",
      { class: "block" },
      h("h2", {}, "What became of it"),
      h(
        "ol",
        { class: "lines" },
        [...shown.history].reverse().map((step) => {
          const then = state(step.state);
          return h(
            "li",
            {},
            h("span", { class: `badge ${then.kind}` }, `${then.sign} ${then.word}`),
            h("span", {}, step.reason ?? ""),
            h("span", { class: "small muted" }, moment(step.time)),
          );
        }),
      ),
    ),
  );
}

async function turn(id, on, button, told, read) {
  button.disabled = true;
  try {
    const after = await ask(on ? "extensions.enable" : "extensions.disable", { id });
    say(`${id} is ${state(after.state).word}`);
    await read();
  } catch (fault) {
    told.textContent = fault.help ? `${fault.message} – ${fault.help}` : fault.message;
    alarm(told.textContent);
    button.disabled = false;
  }
}
