// Input and output of an item in full, asked for when somebody wants them.
import { change } from "./changes.js";
import { ask } from "./control.js";
import { copy, fill, h, save } from "./dom.js";
import { bytes, pretty } from "./format.js";

// Characters that are shown of one text: a browser that lays out more than this stands still. All of it can be kept.
const SHOWN = 200000;

export async function inspect(place, session, id) {
  fill(place, h("p", { class: "muted small" }, "Reading…"));
  try {
    const { input, output } = await ask("items.show", { session, id });
    const file = change(input ?? "");
    const shown = [
      file ? block(file.title, file.content ?? input, file.name ?? `${id}-input.json`, file.element) : text("Input", input, `${id}-input`),
      text("Output", output, `${id}-output`),
    ].filter(Boolean);
    fill(place, ...(shown.length ? shown : [h("p", { class: "muted small" }, "Nothing is kept of it yet.")]));
  } catch (fault) {
    fill(place, h("p", { class: "muted small" }, fault.message));
  }
}

function text(title, given, name) {
  if (given === undefined || given === null) return null;
  const whole = pretty(given);
  const more = whole.length - SHOWN;
  const lines = h("pre", { tabIndex: 0, class: "io-text" }, more > 0 ? whole.slice(0, SHOWN) : whole);
  const rest = more > 0 ? h("p", { class: "small muted" }, `The rest is in the file that "Save" gives.`) : null;
  return block(title, given, `${name}.${whole === given ? "txt" : "json"}`, [lines, rest]);
}

function block(title, whole, name, ...content) {
  const button = h("button", { class: "quiet", type: "button", on: { click: () => copy(whole, button) } }, "Copy");
  return h(
    "section",
    {},
    h(
      "div",
      { class: "row spread" },
      h("h3", { class: "small muted" }, title, " ", h("span", { class: "num" }, bytes(new Blob([whole]).size))),
      h(
        "span",
        {},
        button,
        h("button", { class: "quiet", type: "button", on: { click: () => save(name, whole) } }, "Save"),
      ),
    ),
    content,
  );
}
