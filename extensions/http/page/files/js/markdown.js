// Shows markdown. The only place that makes markup of a text, and the only one that the browser lets: the text was
// cleaned by the server, and the policy of the page knows this one name.
import { html } from "./control.js";
import { copy, h } from "./dom.js";

const policy = window.trustedTypes?.createPolicy("drupe-markdown", { createHTML: (cleaned) => cleaned });

function elements(cleaned) {
  const parsed = new DOMParser().parseFromString(policy ? policy.createHTML(cleaned) : cleaned, "text/html");
  const fragment = document.createDocumentFragment();
  fragment.append(...parsed.body.childNodes);
  for (const code of fragment.querySelectorAll("pre")) code.replaceWith(framed(code));
  for (const table of fragment.querySelectorAll("table")) {
    const frame = h("div", { class: "scroll", tabIndex: 0, role: "region", aria: { label: "Table" } });
    table.replaceWith(frame);
    frame.append(table);
  }
  return fragment;
}

function framed(pre) {
  const language = pre.querySelector("code")?.className.replace("language-", "") ?? "";
  const button = h(
    "button",
    { class: "quiet", type: "button", on: { click: () => copy(pre.textContent, button) } },
    "Copy",
  );
  const body = h("pre", { tabIndex: 0 }, ...pre.childNodes);
  return h("figure", { class: "code" }, h("figcaption", {}, h("span", {}, language || "text"), button), body);
}

// Replaces what `place` holds by the text as markdown; as plain text where the server cannot be asked.
export async function show(place, text) {
  try {
    place.replaceChildren(elements(await html(text)));
  } catch {
    place.replaceChildren(h("p", { class: "plain" }, text));
  }
}

// How far a text that still grows is settled: up to its last empty line outside a block of code after which a block
// begins that does not go on with what is before.
function settled(text) {
  let fenced = false;
  let at = 0;
  let end = 0;
  let empty = false;
  for (const line of text.split("\n")) {
    if (/^\s{0,3}(```|~~~)/.test(line)) fenced = !fenced;
    else if (!fenced && empty && /^[^\s\-*+>|0-9]/.test(line)) end = at;
    empty = !fenced && line.trim() === "";
    at += line.length + 1;
  }
  return end;
}

const PACE = 150;

// A text that grows. The part that is settled is asked for once; only the last part is asked for again.
export class Growing {
  constructor(place) {
    this.place = place;
    this.text = "";
    this.settled = 0;
    this.timer = 0;
    this.asked = false;
    this.done = false;
    this.tail = h("div", { class: "tail" });
    place.replaceChildren(this.tail);
  }

  set(text) {
    if (text === this.text || this.done) return;
    if (!text.startsWith(this.text)) {
      this.settled = 0;
      this.place.replaceChildren(this.tail);
    }
    this.text = text;
    if (!this.timer && !this.asked) this.timer = setTimeout(() => this.draw(), PACE);
  }

  async draw() {
    this.timer = 0;
    this.asked = true;
    const text = this.text;
    const from = this.settled;
    const end = from + settled(text.slice(from));
    const block = end > from ? h("div", {}) : null;
    if (block) await show(block, text.slice(from, end));
    const tail = h("div", { class: "tail" });
    await show(tail, text.slice(end));
    this.asked = false;
    if (this.done || !this.text.startsWith(text)) return this.again(text);
    if (block) this.tail.before(block);
    this.settled = end;
    this.tail.replaceWith(tail);
    this.tail = tail;
    this.again(text);
  }

  again(text) {
    if (!this.done && this.text !== text) this.timer = setTimeout(() => this.draw(), PACE);
  }

  // The whole text, once it is whole.
  async end(text) {
    this.done = true;
    clearTimeout(this.timer);
    this.text = text;
    await show(this.place, text);
  }
}
