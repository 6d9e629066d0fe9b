// The daemon: how it is, what ended before, its configuration, and the tokens that it has given out.
import { table } from "./agents.js";
import { ask } from "./control.js";
import { fill, h } from "./dom.js";
import { counted, duration, moment, state } from "./format.js";
import { letters } from "./letters.js";
import { to } from "./router.js";
import { leave, may, name } from "./who.js";

export function daemon(place) {
  document.title = "Daemon – drupe";
  const now = h("div", { class: "stack" });
  const values = h("div", {});
  const given = h("div", {});
  const dead = h("div", {});
  fill(
    place,
    h(
      "div",
      { class: "page" },
      h(
        "header",
        {},
        h("h1", {}, "Daemon"),
        h("button", { type: "button", on: { click: leave } }, "Sign out"),
        h("p", {}, `Signed in as ${name()}.`),
      ),
      now,
      dead,
      given,
      values,
    ),
  );
  const failed = (where) => (fault) =>
    fill(where, h("p", { class: "notice" }, fault.message, fault.help ? ` – ${fault.help}` : ""));
  ask("status")
    .then((status) => fill(now, shown(status)))
    .catch(failed(now));
  (may("operate") ? ask("tokens.list") : Promise.resolve([]))
    .then((list) =>
      fill(
        given,
        block(
          "Named tokens",
          list.length
            ? table(
                ["name", "may", "conversations", "agents", "made"],
                list.map((one) => [
                  one.name,
                  one.may.join(", "),
                  one.sessions ?? "all",
                  one.agents.length ? one.agents.join(", ") : "all",
                  moment(one.created),
                ]),
              )
            : h("p", { class: "muted" }, "None was made."),
        ),
      ),
    )
    .catch(failed(given));
  letters(dead).catch(failed(dead));
  ask("config.show")
    .then((list) => fill(values, configuration(list)))
    .catch(failed(values));
  return () => undefined;
}

function block(title, ...content) {
  return h("section", { class: "block" }, h("h2", {}, title), content);
}

function shown(status) {
  const { sign, word, kind } = state(status.state);
  return [
    h(
      "dl",
      { class: "facts" },
      [
        ["state", h("span", { class: `sign ${kind}` }, `${sign} ${word}`)],
        ["version", status.version],
        ["model", status.model ?? "none"],
        ["up", duration(status.uptime_ms)],
        ["start", `number ${status.generation}, ${counted(status.restarts, "restart")}`],
        ["conversations", String(status.sessions)],
        ["turns", `${status.running_turns} running, ${status.queued_turns} waiting`],
        ["safe mode", status.safe_mode ? "yes: other people's extensions were left out" : null],
      ]
        .filter(([, value]) => value)
        .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
    status.config_refused
      ? h("p", { class: "notice bad" }, `The configuration as it is written is not in force: ${status.config_refused}`)
      : null,
    status.notices.map((notice) => h("p", { class: "notice" }, notice)),
    status.exits.length
      ? block(
          "The last ends of the kernel",
          h(
            "ol",
            { class: "lines" },
            status.exits.map((exit) =>
              h(
                "li",
                {},
                h("span", { class: `badge ${exit.crash ? "bad" : ""}` }, exit.crash ? "✕ crash" : "■ ended"),
                h(
                  "span",
                  {},
                  exit.how,
                  (exit.blamed ?? []).map((one) => [
                    " – ",
                    h("a", { href: to.extension(one.extension) }, one.extension),
                    ` (${one.operation})`,
                  ]),
                  exit.last_lines?.length
                    ? h(
                        "details",
                        {},
                        h("summary", { class: "small muted" }, "Its last lines"),
                        h("pre", { class: "io-text", tabIndex: 0 }, exit.last_lines.join("\n")),
                      )
                    : null,
                ),
                h("span", { class: "small muted" }, moment(exit.time)),
              ),
            ),
          ),
        )
      : null,
  ];
}

function configuration(list) {
  const body = h("div", {});
  const search = h("input", {
    type: "search",
    placeholder: "Search a key",
    aria: { label: "Search the configuration" },
    on: { input: () => draw() },
  });
  const draw = () => {
    const word = search.value.toLowerCase();
    fill(
      body,
      table(
        ["key", "value", "set by"],
        list
          .filter(({ key, origin }) => `${key} ${origin}`.toLowerCase().includes(word))
          .map(({ key, value, origin }) => [
            key.startsWith("limits.")
              ? h("a", { class: "mono", href: to.why(key) }, key)
              : h("span", { class: "mono" }, key),
            h("code", {}, JSON.stringify(value)),
            origin,
          ]),
      ),
    );
  };
  draw();
  return block("Configuration in force", search, body);
}
