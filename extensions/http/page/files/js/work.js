// The rows that show what a turn does: calls of tools and agents with how long they take, plans, remarks and questions.
import { Call } from "./call.js";
import { fill, h } from "./dom.js";
import { duration, use } from "./format.js";

// One row for each part but the texts, kept by its id, so that what is open stays open while others change.
export class Work {
  constructor(session, turn) {
    this.session = session;
    this.turn = turn;
    this.rows = new Map();
    this.element = h("ol", { class: "work" });
  }

  update(parts) {
    let at = 0;
    for (const part of parts) {
      if (
        ["text", "reasoning", "model"].includes(part.kind) ||
        (part.kind === "tool" && part.name === "update_plan" && part.state !== "refused")
      )
        continue;
      let row = this.rows.get(part.id);
      if (!row) {
        row = part.kind === "tool" || part.kind === "run" ? new Call(this, part) : new Line(part);
        this.rows.set(part.id, row);
      }
      if (this.element.children[at] !== row.element)
        this.element.insertBefore(row.element, this.element.children[at] ?? null);
      row.update(part);
      at += 1;
    }
    this.element.hidden = at === 0;
  }

  nested() {
    return new Work(this.session, this.turn);
  }
}

// A plan, a remark, or a message that was added.
class Line {
  constructor(part) {
    this.element = h("li", { class: part.kind });
    this.drawn = "";
  }

  update(part) {
    const drawn = JSON.stringify([part.state, part.steps, part.text]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    if (part.kind === "plan") fill(this.element, plan(part.steps));
    else if (part.kind === "steer")
      fill(this.element, h("p", { class: "steered" }, h("span", { class: "small muted" }, "You added "), part.text));
    else fill(this.element, remark(part));
  }
}

const MARKS = { done: ["✓", "done"], in_progress: ["▸", "in progress"], pending: ["○", "to do"] };

function plan(steps) {
  const done = steps.filter((step) => step.status === "done").length;
  return h(
    "section",
    { class: "plan", aria: { label: `Plan, ${done} of ${steps.length} done` } },
    h(
      "ol",
      {},
      steps.map(({ step, status }) => {
        const [mark, word] = MARKS[status] ?? ["·", status];
        return h(
          "li",
          { class: status },
          h("span", { aria: { hidden: true } }, mark),
          h("span", {}, step),
          h("span", { class: "unseen" }, word),
        );
      }),
    ),
  );
}

function remark(part) {
  if (part.kind === "error") return h("p", { class: "remark bad" }, "✕ ", part.output?.text ?? part.text);
  const limit = part.code === "limit" || part.code === "limit_reached";
  const text = typeof part.text === "string" ? part.text : `${part.text.limit}: ${use(part.text)} used`;
  const word =
    part.code === "limit"
      ? "near a limit"
      : part.code === "limit_reached"
        ? "limit reached"
        : part.code.replaceAll("_", " ");
  return h("p", { class: `remark ${limit ? "wait" : ""}` }, h("span", { class: "kind" }, `! ${word}`), " ", text);
}

// Times that go on, once a second; nothing else on the page moves by itself.
setInterval(() => {
  for (const time of document.querySelectorAll("time[data-since]")) {
    time.textContent = duration(
      Math.max(0, Math.floor((Date.now() - Date.parse(time.dataset.since)) / 1000) * 1000),
    ).replace(/\.0+ /, " ");
  }
}, 1000);
