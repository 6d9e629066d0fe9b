// What waits for the person, and what was answered.
import { card } from "./approval.js";
import { ask } from "./control.js";
import { alarm, fill, h, say } from "./dom.js";
import { moment, state, visible } from "./format.js";
import { to } from "./router.js";
import { may } from "./who.js";

const EVERY = 4000;

export function approvals(place, [, chosen]) {
  document.title = "Approvals – drupe";
  const waiting = h("div", { class: "stack" });
  const before = h("div", {});
  const standing = h("div", {});
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
      standing,
      before,
    ),
  );
  let drawn = "";
  let closed = false;
  const read = async () => {
    try {
      const [list, grants] = await Promise.all([ask("approvals.list"), ask("approvals.grants")]);
      const now = JSON.stringify([list, grants]);
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
      fill(
        standing,
        grants.length
          ? h(
              "section",
              { class: "block" },
              h("h2", {}, "Allowed for the rest of a conversation"),
              h(
                "ul",
                { class: "lines" },
                grants.map((grant) => granted(grant, read)),
              ),
            )
          : null,
      );
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

function granted(grant, onRevoked) {
  const revoke = async () => {
    try {
      await ask("approvals.revoke", { id: grant.id });
      say("Taken back");
      onRevoked();
    } catch (fault) {
      alarm(fault.help ? `${fault.message}: ${fault.help}` : fault.message);
    }
  };
  return h(
    "li",
    {},
    h(
      "span",
      {},
      h("code", {}, visible(grant.about)),
      " by ",
      visible(grant.agent),
      " in ",
      h("a", { href: to.session(grant.session) }, grant.session),
      grant.for_taint ? ", also where strangers’ text was read" : "",
    ),
    h("span", { class: "small muted" }, `${moment(grant.given)} by ${visible(grant.by)}`),
    may("operate")
      ? h(
          "button",
          { type: "button", aria: { label: `Take back ${visible(grant.about)}` }, on: { click: revoke } },
          "Take back",
        )
      : null,
  );
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
