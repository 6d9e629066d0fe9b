// The place to write: a text, who answers, and what becomes of it while another answer is made.
import { ask, unique } from "./control.js";
import { alarm, fill, h, say } from "./dom.js";
import { Files } from "./files.js";
import { Mention } from "./mention.js";
import { may } from "./who.js";

const MODES = [
  ["followup", "afterwards"],
  ["steer", "meanwhile"],
  ["interrupt", "instead"],
];

let known = null;

// Agents change seldom; each conversation that is opened asks again.
export async function agents() {
  known = await ask("agents.list");
  return known;
}

export class Composer {
  constructor(session, actions) {
    this.session = session;
    this.actions = actions;
    this.key = `draft ${session}`;
    this.text = h("textarea", {
      rows: 1,
      placeholder: "Write a message",
      enterKeyHint: "send",
      aria: { label: "Message" },
      on: { keydown: (event) => this.keyed(event), input: () => this.grown() },
    });
    this.mention = new Mention(this.text, () => known ?? []);
    this.files = new Files((why) => (this.note.textContent = why));
    this.text.addEventListener("paste", (event) => this.files.pasted(event));
    this.agent = h("select", {
      aria: { label: "Who answers in this conversation" },
      on: { change: () => this.selected() },
    });
    this.mode = h(
      "select",
      { hidden: true, aria: { label: "When this message is taken" } },
      MODES.map(([value, label]) => h("option", { value }, label)),
    );
    this.stop = h(
      "button",
      { type: "button", hidden: true, aria: { label: "Stop" }, on: { click: () => this.actions.stop() } },
      h("span", {}, "■"),
      h("span", { class: "word" }, "Stop"),
    );
    this.submit = h("button", { type: "submit", class: "primary", title: "Send (Enter)" }, "Send");
    this.note = h("p", { class: "small muted", role: "status" });
    this.element = h(
      "form",
      {
        class: "composer",
        on: {
          submit: (event) => {
            event.preventDefault();
            this.send();
          },
        },
      },
      this.files.element,
      h("div", { class: "field" }, this.text, this.mention.element),
      h(
        "div",
        { class: "row spread" },
        h("div", { class: "row" }, this.files.button, this.files.input, this.agent, this.mode),
        h("div", { class: "row" }, this.stop, this.submit),
      ),
      this.note,
    );
  }

  async open(agent) {
    this.element.hidden = !may("submit");
    this.agent.hidden = !may("direct");
    try {
      this.text.value = sessionStorage.getItem(this.key) ?? "";
    } catch {
      // A browser that keeps nothing keeps no draft.
    }
    if (matchMedia("(pointer: fine)").matches && !document.activeElement?.closest(".turn, nav"))
      this.text.focus({ preventScroll: true });
    this.options([], agent);
    try {
      this.options(await agents(), agent);
    } catch (fault) {
      this.tell(fault);
    }
  }

  options(list, agent) {
    const ids = list.map(({ id }) => id).filter((id) => id !== "orchestrator");
    if (agent && !ids.includes(agent)) ids.push(agent);
    fill(
      this.agent,
      h("option", { value: "" }, "drupe"),
      ids.map((id) => h("option", { value: id }, `@${id}`)),
    );
    this.agent.value = agent ?? "";
    this.chosen = this.agent.value;
  }

  async selected() {
    const wanted = this.agent.value;
    try {
      await this.actions.select(wanted || null);
      this.chosen = wanted;
      say(wanted ? `${wanted} answers from now on` : "drupe answers from now on");
    } catch (fault) {
      this.agent.value = this.chosen;
      this.tell(fault);
    }
  }

  keyed(event) {
    if (event.isComposing || this.mention.keyed(event)) return;
    if (event.key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.altKey) {
      event.preventDefault();
      this.send();
    }
  }

  grown() {
    this.keep();
    this.mention.update();
  }

  keep() {
    try {
      if (this.text.value) sessionStorage.setItem(this.key, this.text.value);
      else sessionStorage.removeItem(this.key);
    } catch {
      // See `open`.
    }
  }

  async send() {
    const text = this.files.joined(this.text.value.trim());
    if (!text || this.sending) return;
    this.sending = true;
    this.submit.disabled = true;
    // The same message sent again, because its answer was lost, is one turn: it has an id of its own.
    if (this.pending?.text !== text) this.pending = { text, id: unique() };
    try {
      await this.actions.send({ ...this.pending, queue: this.mode.hidden ? undefined : this.mode.value });
      this.pending = null;
      this.files.clear();
      this.text.value = "";
      this.keep();
      this.note.textContent = "";
    } catch (fault) {
      this.tell(fault);
    } finally {
      this.sending = false;
      this.submit.disabled = false;
    }
  }

  tell(fault) {
    this.note.textContent = fault.help ? `${fault.message} – ${fault.help}` : fault.message;
    alarm(this.note.textContent);
  }

  running(now) {
    this.stop.hidden = !now || !may("direct");
    this.mode.hidden = !now;
  }

  connection(state) {
    if (state === "lost")
      this.note.textContent = "The connection is lost. It is tried again; nothing that was sent is lost.";
    else if (this.note.textContent.startsWith("The connection")) this.note.textContent = "";
  }

  // What to begin with, in a conversation that has nothing yet.
  welcome(place) {
    const examples = (known ?? []).filter(({ id }) => id !== "orchestrator").slice(0, 6);
    fill(
      place,
      h(
        "div",
        { class: "welcome" },
        h("h2", {}, "What can I do for you?"),
        h("p", { class: "muted" }, "Write below. Begin with @ to choose who answers this one message."),
        h(
          "ul",
          {},
          examples.map(({ id, description }) =>
            h(
              "li",
              {},
              h(
                "button",
                {
                  type: "button",
                  on: {
                    click: () => {
                      this.text.value = `@${id} `;
                      this.text.focus();
                    },
                  },
                },
                h("b", {}, `@${id}`),
                h("span", { class: "muted small" }, description),
              ),
            ),
          ),
        ),
      ),
    );
  }

  close() {
    this.keep();
    this.files.close();
  }
}
