// One turn in a conversation: what was asked, what is done about it, what was answered, what it cost.
import { ask } from "./control.js";
import { copy, fill, h } from "./dom.js";
import { asked } from "./files.js";
import { cost, counted, duration, state, tokens, when } from "./format.js";
import { Growing, show } from "./markdown.js";
import { to } from "./router.js";
import { ended, fromTrace } from "./turns.js";
import { Work } from "./work.js";

export class TurnView {
  // `actions` has `retry(text)` and `stop(turn)`.
  constructor(session, turn, actions) {
    this.session = session;
    this.turn = turn;
    this.actions = actions;
    this.segments = [];
    this.asked = h("div", { class: "asked" });
    this.body = h("div", { class: "answer" });
    this.foot = h("footer", { class: "meta" });
    this.element = h(
      "article",
      { class: "turn", id: `turn-${turn.id}`, tabIndex: -1, aria: { label: "Message and answer" } },
      h("h2", { class: "unseen" }, "You asked"),
      this.asked,
      h("h2", { class: "unseen" }, "Answer"),
      this.body,
      this.foot,
    );
    this.footDrawn = "";
    this.final = false;
  }

  update() {
    const { turn } = this;
    if (this.askedDrawn !== turn.input) {
      this.askedDrawn = turn.input;
      fill(this.asked, asked(turn.input));
      // A long one scrolls, and is reached by the keyboard then.
      requestAnimationFrame(() => {
        if (this.asked.scrollHeight > this.asked.clientHeight + 1) this.asked.tabIndex = 0;
      });
    }
    if (turn.root) this.live(turn.root);
    else if (ended(turn) && !this.final) this.past();
    else if (!ended(turn)) this.waits();
    this.meta();
  }

  waits() {
    if (this.waiting) return;
    this.waiting = h(
      "p",
      { class: "muted small" },
      this.turn.state === "waiting" ? "○ Waits for its turn" : "● Begins",
    );
    fill(this.body, this.waiting);
  }

  // What happens, part by part. Parts are only added, so segments keep their place; where one does not, all after it are
  // made anew.
  live(root) {
    if (this.waiting || this.final) {
      this.waiting?.remove();
      this.waiting = null;
      this.final = false;
    }
    const wanted = segments([...root.parts, ...this.turn.notes]);
    let at = 0;
    for (const segment of wanted) {
      const view = this.segments[at];
      if (!view || view.key !== segment.key) {
        for (const old of this.segments.splice(at)) old.element.remove();
        this.segments.push(this.segment(segment));
        this.body.append(this.segments[at].element);
      }
      this.segments[at].update(segment);
      at += 1;
    }
    for (const old of this.segments.splice(at)) old.element.remove();
    if (ended(this.turn)) this.failure();
  }

  segment({ key, work, thinking }) {
    if (work) {
      const rows = new Work(this.session, this.turn.id);
      return { key, element: rows.element, update: (segment) => rows.update(segment.parts) };
    }
    const prose = h("div", { class: "prose" });
    const growing = new Growing(prose);
    const element = thinking ? h("details", { class: "happened" }, h("summary", {}, "What it thought"), prose) : prose;
    let over = false;
    return {
      key,
      element,
      update: ({ part }) => {
        prose.classList.toggle("cut", part.missed && part.state === "running");
        if (part.state === "running") growing.set(part.text);
        else if (!over) {
          over = true;
          this.whole(part).then((text) => growing.end(text));
        }
      },
    };
  }

  // A long text comes cut in events; all of it is asked for.
  async whole(part) {
    if (part.whole || !part.output) return part.text;
    try {
      return (await ask("items.show", { session: this.session, id: part.id })).output ?? part.text;
    } catch {
      return part.text;
    }
  }

  failure() {
    const { turn } = this;
    if (turn.state === "success" || this.failed) return;
    const { sign, word } = state(turn.class === "cancelled" ? "cancelled" : turn.state);
    const calm = turn.class === "cancelled";
    this.failed = h(
      "p",
      { class: calm ? "notice" : "notice bad" },
      h("b", {}, `${sign} ${word}`),
      turn.error ? `: ${turn.error} ` : " ",
      h("a", { href: to.why(turn.id) }, "Why?"),
    );
    this.body.append(this.failed);
  }

  // A turn that had ended when the page was opened.
  past() {
    this.final = true;
    const { turn } = this;
    const prose = h("div", { class: "prose" });
    fill(this.body, this.happened(), prose);
    if (turn.content && turn.content !== turn.error) show(prose, turn.content);
    this.failure();
  }

  happened() {
    const { spend } = this.turn;
    if (!spend || (spend.tool_calls === 0 && spend.invocations < 2)) return null;
    const place = h("div", {});
    const details = h(
      "details",
      { class: "happened" },
      h(
        "summary",
        {},
        [
          counted(spend.turns, "step"),
          counted(spend.tool_calls, "call"),
          spend.invocations > 1 ? counted(spend.invocations - 1, "sub-agent") : null,
        ]
          .filter(Boolean)
          .join(" · "),
      ),
      place,
    );
    details.addEventListener("toggle", async () => {
      if (!details.open || place.firstChild) return;
      fill(place, h("p", { class: "muted small" }, "Reading…"));
      try {
        const [trace] = await ask("trace.show", { id: this.turn.id });
        const rows = new Work(this.session, this.turn.id);
        rows.update(fromTrace(trace?.nodes ?? []).flatMap((root) => root.parts ?? []));
        fill(place, rows.element);
      } catch (fault) {
        fill(place, h("p", { class: "notice" }, fault.message));
      }
    });
    return details;
  }

  meta() {
    const { turn } = this;
    const over = ended(turn);
    const used = turn.spend ? tokens(turn.spend.usage) : turn.tokens;
    const spent = turn.spend ? turn.spend.cost_usd : turn.priced ? turn.cost : undefined;
    const drawn = JSON.stringify([turn.state, used, spent, turn.started]);
    if (drawn === this.footDrawn) return;
    this.footDrawn = drawn;
    const time = over
      ? turn.spend?.elapsed_ms
        ? h("span", {}, duration(turn.spend.elapsed_ms))
        : null
      : turn.started
        ? h("time", { data: { since: turn.started } }, duration(Math.max(0, Date.now() - Date.parse(turn.started))))
        : null;
    const { sign, word, kind } = state(over && turn.class === "cancelled" ? "cancelled" : turn.state);
    fill(
      this.foot,
      h(
        "span",
        { class: "facts num" },
        over && kind === "good" ? null : h("span", { class: kind }, `${sign} ${word}`),
        turn.root && turn.root.agent !== "orchestrator"
          ? h("a", { href: to.agent(turn.root.agent) }, turn.root.agent)
          : null,
        time,
        used ? h("span", {}, counted(used, "token")) : null,
        used ? h("span", {}, cost(spent)) : null,
        over && turn.accepted ? h("span", {}, when(turn.accepted)) : null,
      ),
      h(
        "span",
        { class: "actions" },
        over
          ? this.button("Copy", (button) => copy(this.turn.content || this.body.innerText, button))
          : this.button("Stop", () => this.actions.stop(turn.id)),
        over ? this.button("Retry", () => this.actions.retry(turn.input)) : null,
        h("a", { class: "button quiet", href: to.turn(this.session, turn.id) }, "Timeline"),
        over ? h("a", { class: "button quiet", href: to.why(turn.id) }, "Why") : null,
        h(
          "a",
          { class: "button quiet", href: to.message(this.session, turn.id), aria: { label: "Link to this message" } },
          "#",
        ),
      ),
    );
  }

  button(label, act) {
    const button = h("button", { class: "quiet", type: "button", on: { click: () => act(button) } }, label);
    return button;
  }
}

// Texts by themselves; what stands between two of them together.
function segments(parts) {
  const made = [];
  for (const part of parts) {
    const last = made.at(-1);
    if (part.kind === "text" || part.kind === "reasoning") {
      if (part.text) made.push({ key: `text ${part.id}`, part, thinking: part.kind === "reasoning" });
    } else if (last?.work) last.parts.push(part);
    else made.push({ key: `work ${part.id}`, work: true, parts: [part] });
  }
  return made;
}
