// A fact of the memory: its text and where it comes from, and what changes or forgets it.
import { confirm } from "./confirm.js";
import { ask } from "./control.js";
import { alarm, fill, h, say } from "./dom.js";
import { moment, visible } from "./format.js";
import { to } from "./router.js";

// Characters of a text that name its buttons.
const NAMED = 60;

// What the extension that keeps facts is asked.
export const memoryAsk = (what, params = {}) => ask("extensions.ask", { id: "memory", ask: what, params });

export const words = (fault) => (fault.help ? `${fault.message} – ${fault.help}` : fault.message);

// `onForgotten` is told when there is no such fact any more.
export function factRow(fact, onForgotten) {
  const element = h("li", { class: "kept", tabIndex: -1, data: { fact: String(fact.id) } });
  const told = h("p", { class: "small", role: "status" });
  const fail = (fault) => {
    told.textContent = words(fault);
    alarm(told.textContent);
  };
  const draw = () => {
    told.textContent = "";
    const name = visible(fact.text).slice(0, NAMED);
    const button = (label, act, look) =>
      h("button", { type: "button", class: look, aria: { label: `${label}: ${name}` }, on: { click: act } }, label);
    const change = button("Edit", edit, "");
    fill(
      element,
      h("p", { class: "text" }, visible(fact.text)),
      fact.strangers
        ? h("p", {}, h("span", { class: "badge wait" }, "! kept while text of strangers was read"))
        : null,
      h("p", { class: "small muted" }, source(fact)),
      h("div", { class: "row" }, change, button("Forget", forget, "danger")),
      told,
    );
    return change;
  };
  const edit = () => {
    told.textContent = "";
    const text = h("textarea", { rows: 3, required: true, value: fact.text, aria: { label: "Text of the fact" } });
    const save = h("button", { class: "primary" }, "Save");
    const leave = () => draw().focus();
    fill(
      element,
      h(
        "form",
        {
          class: "fields",
          aria: { label: "Edit the fact" },
          on: {
            keydown: (event) => event.key === "Escape" && leave(),
            submit: async (event) => {
              event.preventDefault();
              save.disabled = true;
              try {
                fact = await memoryAsk("edit", { id: fact.id, text: text.value });
                leave();
                say("The fact is changed");
              } catch (fault) {
                save.disabled = false;
                fail(fault);
              }
            },
          },
        },
        text,
        h("div", { class: "row" }, save, h("button", { type: "button", on: { click: leave } }, "Cancel")),
      ),
      told,
    );
    text.focus();
  };
  const forget = async () => {
    if (!(await confirm("Forget this fact?", visible(fact.text), "Forget"))) return;
    try {
      await memoryAsk("forget", { id: fact.id });
      say("It is forgotten");
      onForgotten();
    } catch (fault) {
      fail(fault);
    }
  };
  draw();
  return element;
}

// The day, who kept it and where, and how sure it is.
function source(fact) {
  return [
    h("time", { dateTime: fact.changed, title: moment(fact.changed) }, days.format(new Date(fact.changed))),
    fact.by_operator ? " · written by you · kept " : ` · kept by ${visible(fact.agent)} `,
    "in ",
    h("a", { href: to.message(fact.session, fact.turn) }, visible(fact.session)),
    ` · confidence ${Math.round(fact.confidence * 100)} %`,
    ` · of ${visible(fact.namespace)}`,
    fact.recalled ? ` · last given to a model ${moment(fact.recalled)}` : "",
  ];
}

const days = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
