// Completes the name of an agent after `@` at the beginning of a message, as a list below the text that the keyboard and a
// screen reader reach without leaving it.
import { fill, h, say } from "./dom.js";
import { counted } from "./format.js";

const MOST = 8;

export class Mention {
  constructor(text, agents) {
    this.text = text;
    this.agents = agents;
    this.at = 0;
    this.found = [];
    this.element = h("ul", {
      class: "mentions",
      id: "mentions",
      role: "listbox",
      hidden: true,
      aria: { label: "Agents" },
    });
    text.setAttribute("aria-autocomplete", "list");
    text.setAttribute("aria-controls", "mentions");
    text.addEventListener("blur", () => setTimeout(() => this.hide(), 150));
  }

  update() {
    const before = this.text.value.slice(0, this.text.selectionStart);
    const begun = /^\s*@([a-z0-9_-]*)$/i.exec(before);
    const word = begun?.[1].toLowerCase();
    this.found = begun
      ? this.agents()
          .filter(({ id }) => id.includes(word))
          .sort((a, b) => Number(b.id.startsWith(word)) - Number(a.id.startsWith(word)))
          .slice(0, MOST)
      : [];
    this.at = 0;
    this.draw();
    if (this.found.length) say(`${counted(this.found.length, "agent")}; choose with the arrow keys`);
  }

  draw() {
    const open = this.found.length > 0;
    this.element.hidden = !open;
    if (!open) return this.text.removeAttribute("aria-activedescendant");
    fill(
      this.element,
      this.found.map(({ id, description }, at) =>
        h(
          "li",
          {
            id: `mention-${at}`,
            role: "option",
            aria: { selected: at === this.at },
            on: {
              mousedown: (event) => {
                event.preventDefault();
                this.take(at);
              },
            },
          },
          h("b", {}, `@${id}`),
          " ",
          h("span", { class: "muted small" }, description),
        ),
      ),
    );
    this.text.setAttribute("aria-activedescendant", `mention-${this.at}`);
    this.element.children[this.at]?.scrollIntoView({ block: "nearest" });
  }

  // Whether the key was meant for the list.
  keyed(event) {
    if (this.element.hidden) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      this.at = (this.at + step + this.found.length) % this.found.length;
      this.draw();
    } else if (event.key === "Enter" || event.key === "Tab") this.take(this.at);
    else if (event.key === "Escape") this.hide();
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  take(at) {
    const rest = this.text.value.slice(this.text.selectionStart).trimStart();
    this.text.value = `@${this.found[at].id} ${rest}`;
    this.text.selectionStart = this.text.selectionEnd = this.found[at].id.length + 2;
    this.hide();
    this.text.focus();
  }

  hide() {
    this.found = [];
    this.draw();
  }
}
