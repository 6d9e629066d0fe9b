// Agents that work beside the running turn: who they are and how they stand, with their end and a line that they are told.
import { ask } from "./control.js";
import { alarm, h, say } from "./dom.js";
import { state, visible } from "./format.js";

// How often to look while some of them work, in milliseconds.
const PACE = 2000;
// The calls after which there may be others, or others at work.
const CALLS = ["spawn_agent", "send_input", "wait_agent", "close_agent"];

// How they stand, in the words of calls.
const STANDS = { working: "running", done: "success", closed: "cancelled" };

export class Beside {
  constructor(session) {
    this.session = session;
    this.rows = new Map();
    this.list = h("ul", {});
    this.element = h(
      "section",
      { class: "beside", hidden: true, aria: { label: "Agents that work beside this turn" } },
      this.list,
    );
  }

  // Something happened in the conversation.
  take(event) {
    if (event.kind === "interaction.turn.completed") this.clear();
    else if (event.kind.startsWith("interaction.item.") && CALLS.includes(event.data.item?.name)) this.look();
  }

  // Shows who there is, and looks again for as long as any of them works.
  async look() {
    clearTimeout(this.next);
    let all = [];
    try {
      all = await ask("spawned.list", { session: this.session });
    } catch {
      // The next look may find them.
    }
    if (this.closed) return;
    const known = new Set(all.map((one) => one.handle));
    for (const [handle, row] of this.rows)
      if (!known.has(handle)) {
        row.element.remove();
        this.rows.delete(handle);
      }
    for (const one of all) {
      let row = this.rows.get(one.handle);
      if (!row) {
        row = new Row(this, one);
        this.rows.set(one.handle, row);
        this.list.append(row.element);
      }
      row.update(one);
    }
    this.element.hidden = this.rows.size === 0;
    if (all.some((one) => one.state === "working")) this.next = setTimeout(() => this.look(), PACE);
  }

  clear() {
    clearTimeout(this.next);
    this.rows.clear();
    this.list.replaceChildren();
    this.element.hidden = true;
  }

  close() {
    this.closed = true;
    clearTimeout(this.next);
  }
}

class Row {
  constructor(beside, { handle, agent }) {
    this.beside = beside;
    this.handle = handle;
    this.sign = h("span", { aria: { hidden: true } });
    this.word = h("span", { class: "small muted" });
    const named = `${visible(agent)} (${handle})`;
    this.text = h("input", { type: "text", maxLength: 32000, placeholder: "Tell it more", aria: { label: `Tell ${named} more` } });
    this.form = h(
      "form",
      { class: "row", on: { submit: (event) => this.tell(event) } },
      this.text,
      h("button", { class: "quiet", aria: { label: `Tell ${named}` } }, "Tell"),
      h(
        "button",
        { class: "quiet", type: "button", aria: { label: `Stop ${named}` }, on: { click: () => this.stop() } },
        "Stop",
      ),
    );
    this.element = h(
      "li",
      {},
      this.sign,
      h("b", {}, `@${visible(agent)}`),
      h("span", { class: "mono small muted" }, handle),
      this.word,
      this.form,
    );
  }

  update(one) {
    const { sign, kind } = state(STANDS[one.state] ?? "running");
    this.sign.textContent = sign;
    this.sign.className = `sign ${kind}`;
    this.word.textContent = one.unread > 0 ? `${one.state}, ${one.unread} unread` : one.state;
    this.form.hidden = one.state !== "working";
  }

  async tell(event) {
    event.preventDefault();
    const text = this.text.value.trim();
    if (!text) return;
    this.text.value = "";
    try {
      this.beside.look();
      await ask("spawned.tell", { session: this.beside.session, handle: this.handle, text });
      say(`${this.handle} has read it`);
    } catch (fault) {
      this.text.value ||= text;
      alarm(fault.message);
    }
  }

  async stop() {
    try {
      await ask("spawned.stop", { session: this.beside.session, handle: this.handle });
      say("Stopped");
    } catch (fault) {
      alarm(fault.message);
    }
    this.beside.look();
  }
}
