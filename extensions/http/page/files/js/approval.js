// A question that waits for a person: what is to happen, exactly, and the answers: for this call, and where there is such,
// for those like it in the rest of the conversation. The answer bears the hash of what was
// shown, so that nobody agrees to something else than what they read.
import { preview } from "./changes.js";
import { ask } from "./control.js";
import { alarm, fill, h, say } from "./dom.js";
import { moment, state, visible } from "./format.js";
import { inputs } from "./inputs.js";
import { may } from "./who.js";

// Parameters with line breaks where that changes nothing else. A number or a key that a browser reads otherwise than the
// daemon would be shown as something that does not run, so such a text is shown as it is.
function exact(text) {
  try {
    const parsed = JSON.parse(text);
    const bare = text.replace(/"(?:[^"\\]|\\.)*"|\s+/g, (part) => (part.startsWith('"') ? part : ""));
    return JSON.stringify(parsed) === bare ? JSON.stringify(parsed, null, 2) : text;
  } catch {
    return text;
  }
}

export function card(approval, onAnswered) {
  const status = h("p", { class: "small muted", role: "status" });
  const about = approval.call?.about;
  const asked = approval.call?.preview?.input;
  const form = asked && may("operate") ? inputs(asked) : null;
  const buttons = [
    [form ? "Send" : "Allow", true, false, "primary"],
    ["Deny", false, false, ""],
    about ? ["Allow in this session", true, true, ""] : null,
  ]
    .filter(Boolean)
    .map(([label, allow, forSession, look]) =>
      h("button", { type: "button", class: look, on: { click: () => answer(allow, forSession) } }, label),
    );
  const answer = async (allow, forSession) => {
    buttons.forEach((button) => {
      button.disabled = true;
    });
    try {
      const after = await ask("approvals.answer", {
        id: approval.id,
        allow,
        for_session: forSession,
        hash: approval.hash,
        values: allow && form ? form.values() : undefined,
      });
      form?.clear();
      say(allow ? (forSession ? "Allowed in this session" : "Allowed") : "Denied");
      onAnswered(after);
    } catch (fault) {
      status.textContent = fault.help ? `${fault.message}: ${fault.help}` : fault.message;
      alarm(status.textContent);
      buttons.forEach((button) => {
        button.disabled = false;
      });
    }
  };
  const call = approval.call;
  return h(
    "section",
    { class: "question", aria: { label: "A question for you" } },
    h(
      "p",
      { class: "what" },
      h("span", { class: "sign wait", aria: { hidden: true } }, "◆ "),
      call
        ? ["May ", h("b", {}, visible(call.agent)), " run ", h("code", {}, visible(call.tool)), " with exactly this?"]
        : ["May the extension ", h("b", {}, visible(approval.extension)), " be activated?"],
    ),
    approval.needs?.length
      ? h(
          "ul",
          { class: "needs" },
          approval.needs.map((need) => h("li", {}, visible(need))),
        )
      : null,
    call?.params ? h("pre", { tabIndex: 0, class: "io-text" }, visible(exact(call.params))) : null,
    call?.preview ? preview(call.preview) : null,
    form?.element,
    h(
      "div",
      { class: "row" },
      may("operate") ? buttons : h("p", {}, "Whoever operates the daemon answers this."),
      h(
        "span",
        { class: "small muted" },
        call ? `Denied by itself ${moment(call.expires)}. ` : "",
        approval.hash
          ? h("span", { class: "mono", title: "What the answer holds for" }, String(approval.hash).slice(0, 12))
          : null,
      ),
    ),
    about && may("operate")
      ? h(
          "p",
          { class: "small muted" },
          "“In this session” also covers what else ",
          visible(call.agent),
          " does with ",
          h("code", {}, visible(about)),
          ".",
        )
      : null,
    status,
  );
}

// The card beneath a call in a conversation. It is asked for in full when the call begins to wait.
export function question(asked) {
  const element = h("div", {});
  let shown = "";
  const answered = ({ state: now, by }) => {
    const { sign, word, kind } = state(now);
    fill(
      element,
      h(
        "p",
        { class: "small" },
        h("span", { class: `sign ${kind}`, aria: { hidden: true } }, `${sign} `),
        word,
        by ? ` by ${visible(by)}` : "",
      ),
    );
  };
  const load = async () => {
    try {
      const found = (await ask("approvals.list")).find((one) => one.id === asked.id);
      if (found?.state === "pending") {
        fill(
          element,
          card(found, (after) => answered({ state: after.state, by: after.call?.by })),
        );
        say(`${found.call?.tool ?? "A call"} waits for your answer`);
      } else if (found) answered({ state: found.state, by: found.call?.by });
    } catch (fault) {
      fill(
        element,
        h("p", { class: "notice wait" }, `This call waits for an answer that you cannot give here: ${fault.message}.`),
      );
    }
  };
  return {
    element,
    update(approval, call) {
      if (shown === approval.state) return;
      shown = approval.state;
      if (approval.state === "pending" && call === "running") load();
      else if (approval.state !== "pending") answered(approval);
    },
  };
}
