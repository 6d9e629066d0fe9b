// Input and output of an item in full, asked for when somebody wants them.
import { ask } from "./control.js";
import { fill, h } from "./dom.js";
import { pretty } from "./format.js";

export async function inspect(place, session, id) {
  fill(place, h("p", { class: "muted small" }, "Reading…"));
  try {
    const { input, output } = await ask("items.show", { session, id });
    const block = (title, text) =>
      text === undefined || text === null
        ? null
        : h(
            "section",
            {},
            h("h3", { class: "small muted" }, title),
            h("pre", { tabIndex: 0, class: "io-text" }, pretty(text)),
          );
    const shown = [block("Input", input), block("Output", output)].filter(Boolean);
    fill(place, ...(shown.length ? shown : [h("p", { class: "muted small" }, "Nothing is kept of it yet.")]));
  } catch (fault) {
    fill(place, h("p", { class: "muted small" }, fault.message));
  }
}
