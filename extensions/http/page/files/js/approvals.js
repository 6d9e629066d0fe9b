// What waits for the person, and what was answered.
import { card } from "./approval.js";
import { ask } from "./control.js";
import { fill, h } from "./dom.js";
import { moment, state, visible } from "./format.js";
import { to } from "./router.js";

const EVERY = 4000;

export function approvals(place, [, chosen]) {
  document.title = "Approvals – drupe";
  const waiting = h("div", { class: "stack" });
  const before = h("div", {});
  fill(
    place,
    h(
      "div",
      { class: "page" },
      h(
        "header",
        {},
        h("h1", {}, "Approvals"),
        h("p", {}, "What you are asked before it happens. An answer holds for exactly what is shown."),
      ),
      waiting,
      before,
    ),
  );
  let drawn = "";
  let closed = false;
  const read = async () => {
    try {
      const list = await ask("approvals.list");
      const now = JSON.stringify(list);
      if (closed || now === drawn) return;
      drawn = now;
      const open = list.filter((one) => one.state === "pending");
      fill(
        waiting,
        open.length
          ? open.map((one) =>
              h(
                "div",
                { id: `approval-${one.id}`, tabIndex: -1 },
                card(one, read),
                h(
                  "p",
                  { class: "small muted row" },
                  one.call
                    ? h("a", { href: to.message(one.call.session, one.call.turn) }, `Conversation ${one.call.session}`)
                    : h("a", { href: to.extension(one.extension) }, "What this extension is"),
                  h("a", { href: to.approval(one.id) }, "Link to this question"),
                ),
              ),
            )
          : h("p", { class: "empty" }, "Nothing waits for you."),
      );
      if (chosen) document.getElementById(`approval-${chosen}`)?.focus();
      const over = list.filter((one) => one.state !== "pending");
      fill(
        before,
        over.length
          ? h("section", { class: "block" }, h("h2", {}, "Answered"), h("ul", { class: "lines" }, over.map(answered)))
          : null,
      );
    } catch (fault) {
      fill(waiting, h("p", { class: "notice bad" }, fault.message, fault.help ? ` – ${fault.help}` : ""));
    }
  };
  read();
  const timer = setInterval(() => document.visibilityState === "visible" && read(), EVERY);
  return () => {
    closed = true;
    clearInterval(timer);
  };
}

function answered(one) {
  const { sign, word, kind } = state(one.state);
  const what = one.call
    ? [
        h("code", {}, visible(one.call.tool)),
        " by ",
        visible(one.call.agent),
        " in ",
        h("a", { href: to.node(one.call.session, one.call.turn, one.id) }, one.call.session),
      ]
    : [h("a", { href: to.extension(one.extension) }, one.extension), `: ${one.needs.map(visible).join("; ")}`];
  return h(
    "li",
    {},
    h("span", { class: `badge ${kind}` }, `${sign} ${word}`),
    h("span", {}, what),
    h(
      "span",
      { class: "small muted" },
      moment(one.answered ?? one.asked),
      one.call?.by ? ` by ${visible(one.call.by)}` : "",
    ),
  );
}
