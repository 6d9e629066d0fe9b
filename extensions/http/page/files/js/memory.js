// What is remembered over conversations: the facts, a page at a time, the latest first or those that fit a question.
import { ask } from "./control.js";
import { fill, h, say } from "./dom.js";
import { factRow, memoryAsk, words } from "./fact.js";
import { counted, state, visible } from "./format.js";
import { rename, to } from "./router.js";

// Facts of a page.
const PAGE = 25;

// How long the typing pauses before it is looked up, in milliseconds.
const PAUSE = 250;

export function memory(place, [, ...given]) {
  document.title = "Memory – drupe";
  const shown = new Memory(place, address(given));
  shown.open();
  return () => shown.close();
}

// The address has names and values behind each other: `in/orchestrator/page/2/q/sister`.
function address(given) {
  const values = {};
  for (let at = 0; at + 1 < given.length; at += 2) values[given[at]] = given[at + 1];
  return { in: values.in ?? "", q: values.q ?? "", page: Math.max(1, Math.floor(Number(values.page)) || 1) };
}

class Memory {
  constructor(place, at) {
    Object.assign(this, { at, reading: 0, closed: false });
    this.search = h("input", {
      type: "search",
      value: at.q,
      placeholder: "Search",
      aria: { label: "Search facts" },
      on: { input: () => this.later() },
    });
    this.whose = h("select", {
      aria: { label: "Whose facts" },
      on: { change: () => this.turnTo({ in: this.whose.value, page: 1 }) },
    });
    this.counted = h("p", { class: "small muted", role: "status" });
    this.list = h("ul", { class: "stack" });
    this.pages = h("nav", { class: "row", aria: { label: "Pages" } });
    this.tools = h(
      "form",
      {
        class: "row ask",
        role: "search",
        on: {
          submit: (event) => {
            event.preventDefault();
            this.look();
          },
        },
      },
      this.search,
      this.whose,
    );
    this.body = h("div", { class: "stack" }, this.tools, this.counted, this.list, this.pages);
    this.heading = h("h1", { tabIndex: -1 }, "Memory");
    fill(
      place,
      h(
        "div",
        { class: "page" },
        h(
          "header",
          {},
          this.heading,
          h("p", {}, "Facts that are kept over conversations. Those that fit a message are given to models with it."),
        ),
        this.body,
      ),
    );
  }

  async open() {
    if (await this.names()) await this.read();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
  }

  // Whose facts there are; whether there is a memory at all.
  async names() {
    try {
      const list = await memoryAsk("namespaces");
      if (this.closed) return false;
      const all = list.reduce((sum, one) => sum + one.facts, 0);
      // One that is in the address has none any more.
      if (this.at.in && !list.some((one) => one.namespace === this.at.in)) {
        list.push({ namespace: this.at.in, facts: 0 });
      }
      fill(
        this.whose,
        h("option", { value: "" }, `All (${all})`),
        list.map((one) => h("option", { value: one.namespace }, `${visible(one.namespace)} (${one.facts})`)),
      );
      this.whose.value = this.at.in;
      return true;
    } catch (fault) {
      if (!this.closed) fill(this.body, await unavailable(fault));
      return false;
    }
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), PAUSE);
  }

  look() {
    clearTimeout(this.timer);
    const q = this.search.value.trim();
    if (q !== this.at.q) this.turnTo({ q, page: 1 });
  }

  turnTo(change) {
    Object.assign(this.at, change);
    const { page } = this.at;
    rename(to.memory({ ...this.at, page: page > 1 ? String(page) : "" }));
    return this.read();
  }

  async read() {
    const mine = ++this.reading;
    const { page, q } = this.at;
    try {
      const { facts, total } = await memoryAsk("list", {
        limit: PAGE,
        offset: (page - 1) * PAGE,
        ...(q ? { query: q } : {}),
        ...(this.at.in ? { namespace: this.at.in } : {}),
      });
      if (this.closed || mine !== this.reading) return;
      const last = Math.max(1, Math.ceil(total / PAGE));
      if (page > last) {
        await this.turnTo({ page: last });
        return;
      }
      this.counted.textContent = total
        ? `${counted(total, "fact")}${total > 1 ? (q ? ", the best first" : ", the latest first") : ""}`
        : q
          ? "No fact fits. Words are compared, no meanings."
          : "Nothing is kept yet.";
      fill(
        this.list,
        facts.map((fact) => factRow(fact, () => this.gone())),
      );
      fill(this.pages, last > 1 ? this.turning(page, last) : null);
    } catch (fault) {
      if (this.closed || mine !== this.reading) return;
      this.counted.textContent = "";
      fill(this.list, h("li", { class: "notice bad" }, words(fault)));
      fill(this.pages);
    }
  }

  turning(page, last) {
    const step = (label, by, possible) =>
      h(
        "button",
        {
          type: "button",
          disabled: !possible,
          on: {
            click: async () => {
              await this.turnTo({ page: page + by });
              say(`Page ${page + by} of ${last}`);
              this.list.firstElementChild?.focus();
            },
          },
        },
        label,
      );
    return [
      step("Previous", -1, page > 1),
      h("span", { class: "small muted" }, `Page ${page} of ${last}`),
      step("Next", 1, page < last),
    ];
  }

  // The row with the focus is gone.
  async gone() {
    await this.names();
    await this.read();
    if (!this.closed) this.heading.focus();
  }
}

// Why there is no memory: that its extension is off is no fault.
async function unavailable(fault) {
  const known = await ask("extensions.show", { id: "memory" }).catch(() => null);
  if (known && fault.code === "not_found") {
    return h(
      "p",
      { class: "notice wait" },
      `The extension memory is ${state(known.state).word}, so nothing is kept and no fact is given to models`,
      known.reason ? `: ${visible(known.reason)}. ` : ". ",
      h("a", { href: to.extension("memory") }, "The extension"),
    );
  }
  return h("p", { class: "notice bad" }, words(fault));
}
