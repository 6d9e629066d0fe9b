// Why something ended as it did: the daemon's explanation of anything that has an id.
import { ask } from "./control.js";
import { fill, h } from "./dom.js";
import { go, to } from "./router.js";

export async function explained(place, id) {
  fill(place, h("p", { class: "muted small" }, "Reading…"));
  try {
    const { sentences, remedy, cited } = await ask("why", { id });
    fill(
      place,
      h(
        "div",
        { class: "why" },
        sentences.map((sentence, at) => h("p", { class: at ? "" : "first" }, sentence)),
        remedy ? h("p", { class: "notice" }, h("b", {}, "What to do: "), remedy) : null,
        cited.length
          ? h(
              "details",
              {},
              h("summary", { class: "small muted" }, "What this rests on"),
              h(
                "ul",
                { class: "cited small" },
                cited.map((row) => h("li", {}, h("code", {}, `${row.table} ${row.key}`), " ", row.says)),
              ),
            )
          : null,
      ),
    );
  } catch (fault) {
    fill(place, h("p", { class: "notice bad" }, fault.message, fault.help ? ` – ${fault.help}` : ""));
  }
}

export function why(place, [, id]) {
  document.title = "Why – drupe";
  const answer = h("div", { role: "status" });
  const field = h("input", {
    type: "text",
    value: id ?? "",
    required: true,
    aria: { label: "A turn, session, run, call, extension, or the key of a limit" },
  });
  fill(
    place,
    h(
      "div",
      { class: "page" },
      h(
        "header",
        {},
        h("h1", {}, "Why"),
        h("p", {}, "Ask about a turn, a conversation, a run, a call, an extension, or the key of a limit."),
      ),
      h(
        "form",
        {
          class: "row ask",
          on: {
            submit: (event) => {
              event.preventDefault();
              go(to.why(field.value.trim()));
            },
          },
        },
        field,
        h("button", { class: "primary" }, "Ask"),
      ),
      answer,
    ),
  );
  if (id) explained(answer, id);
  return () => undefined;
}
