// What a call does to a file, where its parameters say so: the file as it is to be, or which lines take the place of which.
// And what its tool says that it would change, as a unified diff.
import { h } from "./dom.js";
import { visible } from "./format.js";

// `title`, `element`, and where all of the file is known its `name` and `content`; null for any other parameters.
export function change(input) {
  let given;
  try {
    given = JSON.parse(input);
  } catch {
    return null;
  }
  const { path, content, old, new: anew, patch } = given ?? {};
  if (typeof path !== "string") return null;
  const title = visible(path);
  const name = path.split("/").at(-1) || "file";
  if (typeof content === "string") return { title, name, content, element: lined([["", content]]) };
  if (typeof old === "string" && typeof anew === "string")
    return {
      title,
      element: lined([
        ["- ", old],
        ["+ ", anew],
      ]),
    };
  return typeof patch === "string" ? { title, element: lined([[null, patch]]) } : null;
}

// What a tool says that a call would change.
export function preview({ text, failed, input }) {
  if (input) return h("p", { class: "asked" }, visible(text));
  if (failed) return h("p", { class: "small muted" }, `What it would change cannot be shown: ${visible(text)}`);
  const body = lined([[null, visible(text)]]);
  body.setAttribute("aria-label", "What it would change");
  return h("div", { class: "preview" }, h("p", { class: "small muted" }, "It would change this:"), body);
}

const LOOKS = { "-": "gone", "+": "new" };

// Lines that go and lines that come have a sign as well as a colour. With the sign null the text has its own.
function lined(texts) {
  const lines = texts.flatMap(([sign, text]) =>
    text.split("\n").map((line) => {
      const look = LOOKS[(sign ?? line)[0]] ?? "";
      return look ? h("span", { class: look }, `${sign ?? ""}${line}\n`) : `${sign ?? ""}${line}\n`;
    }),
  );
  return h("pre", { tabIndex: 0, class: "io-text" }, lines);
}
