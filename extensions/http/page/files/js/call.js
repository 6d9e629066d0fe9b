// The row of a call of a tool or of an agent: what it is, how it goes, how long it takes, and below it what it set off. Its
// parts stay the same elements while it changes, so that what has the focus keeps it.
import { question } from "./approval.js";
import { fill, h } from "./dom.js";
import { cost, count, duration, state, visible } from "./format.js";
import { inspect } from "./inspect.js";
import { to } from "./router.js";

// What a tool says that its calls are.
const KINDS = { command_execution: "command", file_change: "file" };

export class Call {
  constructor(work, part) {
    this.work = work;
    this.drawn = "";
    this.asks = null;
    this.sign = h("span", { aria: { hidden: true } });
    this.kind = h("span", { class: "kind" });
    this.name = h("a", { class: "name", href: to.node(work.session, work.turn, part.id) });
    this.gist = h("span", { class: "gist" }, gist(part));
    this.facts = h("span", { class: "facts num" });
    this.time = h("time", { class: "num" });
    this.word = h("span", { class: "unseen" });
    this.saying = h("p", { class: "saying", hidden: true });
    this.io = h("div", { class: "io", hidden: true });
    this.toggle = h(
      "button",
      { class: "quiet more", type: "button", hidden: part.kind !== "tool", on: { click: () => this.open(part.id) } },
      "⋯",
    );
    this.toggle.setAttribute("aria-expanded", "false");
    this.toggle.setAttribute("aria-label", `Input and output of ${part.name}`);
    this.below = work.nested();
    this.head = h(
      "div",
      { class: "head" },
      this.sign,
      this.kind,
      this.name,
      this.gist,
      this.facts,
      this.time,
      this.word,
      this.toggle,
    );
    this.element = h("li", { class: part.kind }, this.head, this.io, this.saying, this.below.element);
  }

  update(part) {
    // A call of an agent is one row with its run.
    const inner =
      part.kind === "tool" && part.parts.length === 1 && part.parts[0].kind === "run" ? part.parts[0] : null;
    const agent = inner ?? (part.kind === "run" ? part : null);
    const used = agent ?? part;
    const drawn = JSON.stringify([part.state, part.elapsed, used.tokens, used.cost, part.approval, Boolean(agent)]);
    if (drawn !== this.drawn) {
      this.drawn = drawn;
      this.draw(part, agent, used);
    }
    this.below.update(used.parts);
    this.say(used);
  }

  draw(part, agent, used) {
    const waits = part.approval?.state === "pending" && part.state === "running";
    const { sign, word, kind } = state(waits ? "pending" : part.state);
    this.sign.textContent = sign;
    this.sign.className = `sign ${kind}`;
    this.word.textContent = word;
    this.word.className = kind === "bad" || kind === "wait" ? `word ${kind}` : "unseen";
    this.kind.textContent = agent ? "agent" : (KINDS[part.type] ?? "tool");
    this.name.textContent = visible(agent ? agent.agent : part.name);
    this.facts.textContent = [used.tokens ? `${count(used.tokens)} tokens` : "", used.cost ? cost(used.cost) : ""]
      .filter(Boolean)
      .join(" · ");
    if (part.elapsed === null && part.state === "running") this.time.dataset.since = part.started;
    else {
      delete this.time.dataset.since;
      this.time.textContent = part.elapsed === null ? "" : duration(part.elapsed);
    }
    if (part.approval && !this.asks) {
      this.asks = question(part.approval);
      this.io.after(this.asks.element);
    }
    this.asks?.update(part.approval, part.state);
    if (!this.io.hidden) inspect(this.io, this.work.session, part.id);
  }

  // What a sub-agent says at the moment: its latest line.
  say(run) {
    const last = run.state === "running" ? run.parts.findLast((part) => part.kind === "text" && part.text) : null;
    const line = last ? last.text.trim().split("\n").at(-1).slice(-160) : "";
    this.saying.textContent = line;
    this.saying.hidden = !line;
  }

  open(id) {
    this.io.hidden = !this.io.hidden;
    this.toggle.setAttribute("aria-expanded", String(!this.io.hidden));
    if (this.io.hidden) fill(this.io);
    else inspect(this.io, this.work.session, id);
  }
}

// The beginning of what a call was given, on one line.
function gist(part) {
  const text = part.input?.text;
  if (!text) return "";
  try {
    const given = JSON.parse(text);
    // Which file it is about says more than what stands in it.
    const { path, ...others } = given;
    const values = [path, ...Object.values(others)].filter((value) => value !== undefined && typeof value !== "object");
    return visible(values.join(" · ").slice(0, 120));
  } catch {
    return visible(text.slice(0, 120));
  }
}
