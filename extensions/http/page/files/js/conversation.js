// A conversation: its turns, what happens in them now, and the place to write.
import { Beside } from "./beside.js";
import { Composer } from "./composer.js";
import { Fault, ask, unique } from "./control.js";
import { alarm, fill, h, say } from "./dom.js";
import { rename, to } from "./router.js";
import { follow } from "./stream.js";
import { conversation } from "./who.js";
import { TurnView } from "./turn-view.js";
import { apply, ended, settle, turn as made } from "./turns.js";

// Turns that are shown at first; more are shown when somebody wants them.
const SHOWN = 40;
// How near the end of the page counts as being there, in pixels.
const NEAR = 120;

export class Conversation {
  constructor(place, session, goal) {
    this.place = place;
    this.session = session;
    this.goal = goal;
    this.turns = new Map();
    this.views = new Map();
    this.dirty = new Set();
    this.closed = false;
    this.known = 0;
    this.list = h("div", { class: "turns" });
    this.earlier = h("button", { class: "quiet", type: "button", hidden: true, on: { click: () => this.more() } });
    this.head = h("header", { class: "talk-head" });
    this.down = h(
      "button",
      { class: "down", type: "button", hidden: true, on: { click: () => this.bottom() } },
      "↓ Latest",
    );
    this.beside = new Beside(session);
    this.composer = new Composer(session, {
      send: (message) => this.send(message),
      stop: () => this.stop(),
      select: (agent) => this.select(agent),
    });
    fill(
      place,
      h(
        "section",
        { class: "talk", aria: { label: "Conversation" } },
        this.head,
        this.earlier,
        this.list,
        h("div", { class: "writing" }, this.down, this.beside.element, this.composer.element),
      ),
    );
    // Who reads the end stays there while it grows; who reads elsewhere is not moved. Only who goes up leaves the end: what
    // grows faster than it is scrolled to is far from it for a moment, too.
    this.pinned = !goal;
    this.top = 0;
    this.onScroll = () => {
      this.pinned = this.near() || (this.pinned && place.scrollTop >= this.top);
      this.top = place.scrollTop;
      this.down.hidden = this.pinned;
    };
    place.addEventListener("scroll", this.onScroll, { passive: true });
    this.sizes = new ResizeObserver(() => {
      if (this.pinned) this.bottom();
      else this.down.hidden = this.near();
    });
    this.sizes.observe(this.list);
    this.sizes.observe(this.composer.element);
  }

  async open() {
    let detail = null;
    try {
      if (this.isNew) throw new Fault({ code: "not_found" });
      detail = await this.read();
    } catch (fault) {
      if (fault.code !== "not_found") {
        fill(this.list, h("p", { class: "notice bad" }, fault.message, fault.help ? ` (${fault.help})` : ""));
        if (fault.code === "invalid" || fault.code === "denied") return;
      }
    }
    if (this.closed) return;
    fill(this.head, title(detail?.title || "New conversation"), this.isNew ? null : this.name());
    const begun = this.composer.open(detail?.agent ?? null);
    if (this.turns.size === 0) begun.then(() => this.turns.size === 0 && this.composer.welcome(this.list));
    const open = [...this.turns.values()].some((turn) => !ended(turn));
    if (open) this.beside.look();
    this.past = new Set([...this.turns.values()].filter(ended).map((turn) => turn.id));
    this.draw();
    this.aim();
    this.known = detail?.last_seq ?? 0;
    // A turn that runs is told from its beginning; what ended before is known already.
    this.end = follow(
      this.session,
      open ? 0 : (detail?.last_seq ?? 0),
      (event) => this.take(event),
      (state) => this.connection(state),
    );
  }

  name() {
    return h("span", { class: "mono small muted" }, this.session);
  }

  async read() {
    let detail = null;
    let after;
    do {
      detail = await ask("sessions.show", { id: this.session, brief: true, after });
      for (const result of detail.turns)
        this.turns.set(result.turn, settle(this.turns.get(result.turn) ?? made(result.turn), result));
      after = detail.next;
    } while (after !== undefined && after !== null && !this.closed);
    return detail;
  }

  draw() {
    const all = [...this.turns.values()];
    const goal = all.findIndex((turn) => turn.id === this.goal);
    this.from ??= Math.max(0, goal >= 0 ? Math.min(goal, all.length - SHOWN) : all.length - SHOWN);
    this.earlier.hidden = this.from === 0;
    this.earlier.textContent = `Show ${this.from} earlier`;
    for (const turn of all.slice(this.from)) this.view(turn).update();
    this.running();
  }

  more() {
    const height = this.place.scrollHeight;
    this.from = Math.max(0, this.from - SHOWN);
    const all = [...this.turns.values()];
    this.list.prepend(
      ...all
        .slice(this.from, this.from + SHOWN)
        .filter((turn) => !this.views.has(turn.id))
        .map((turn) => {
          const view = this.view(turn, true);
          view.update();
          return view.element;
        }),
    );
    this.earlier.hidden = this.from === 0;
    this.earlier.textContent = `Show ${this.from} earlier`;
    this.place.scrollTop += this.place.scrollHeight - height;
  }

  view(turn, apart = false) {
    let view = this.views.get(turn.id);
    if (!view) {
      view = new TurnView(this.session, turn, { retry: (text) => this.send({ text }), stop: (id) => this.stop(id) });
      this.views.set(turn.id, view);
      this.list.querySelector(".welcome")?.remove();
      if (!apart) this.list.append(view.element);
    }
    return view;
  }

  take(event) {
    if (!event.turn || this.past.has(event.turn)) return;
    let turn = this.turns.get(event.turn);
    if (!turn) this.turns.set(event.turn, (turn = made(event.turn)));
    turn.known = this.known;
    apply(turn, event);
    this.beside.take(event);
    if (event.kind === "interaction.turn.steered") this.taken(event);
    if (event.kind === "interaction.turn.completed") this.over(turn);
    this.dirty.add(turn.id);
    this.frame ??= requestAnimationFrame(() => this.flush());
  }

  // What comes while nobody listens is told again, but for the parts of texts.
  connection(state) {
    this.composer.connection(state);
    for (const turn of state === "lost" ? this.turns.values() : [])
      for (const part of turn.items.values()) if (part.state === "running") part.missed = true;
  }

  flush() {
    this.frame = undefined;
    for (const id of this.dirty) if (this.turns.has(id)) this.view(this.turns.get(id)).update();
    this.dirty.clear();
    this.running();
  }

  // A message that was taken into the running turn has no answer of its own.
  taken(event) {
    this.past.add(event.data.from);
    this.turns.delete(event.data.from);
    this.views.get(event.data.from)?.element.remove();
    this.views.delete(event.data.from);
  }

  async over(turn) {
    window.dispatchEvent(new Event("sessions-changed"));
    try {
      settle(turn, await ask("turn.wait", { turn: turn.id, brief: true }));
    } catch {
      // What the events told is shown.
    }
    say(
      turn.state === "success"
        ? `Answer: ${turn.content.slice(0, 300)}`
        : `The turn ended: ${turn.error ?? turn.state}`,
    );
    this.dirty.add(turn.id);
    this.frame ??= requestAnimationFrame(() => this.flush());
  }

  running() {
    const open = [...this.turns.values()].filter((turn) => !ended(turn));
    this.composer.running(open.length > 0);
  }

  async send({ text, queue, agent, id = unique() }) {
    const submit = { external_id: id, session: this.session, text, channel: "" };
    if (queue) submit.queue = queue;
    if (agent) submit.agent = agent;
    const { turn, duplicate } = await ask("turn.submit", submit);
    // Its events may come before this answer does.
    if (duplicate || this.past?.has(turn)) return;
    const known = this.turns.get(turn);
    if (known) known.input = text;
    if (known) return this.view(known).update();
    // One that steers is shown once it is known where it belongs.
    const mine = made(turn, text);
    mine.accepted = new Date().toISOString();
    this.turns.set(turn, mine);
    this.view(mine).update();
    this.running();
    this.bottom();
    window.dispatchEvent(new Event("sessions-changed"));
  }

  async stop(turn) {
    try {
      await (turn ? ask("turn.stop", { turn }) : ask("sessions.stop", { id: this.session }));
      say("Stopped");
    } catch (fault) {
      alarm(fault.message);
    }
  }

  select(agent) {
    return ask("session.select", { session: this.session, agent });
  }

  near() {
    return this.place.scrollHeight - this.place.scrollTop - this.place.clientHeight < NEAR;
  }

  bottom() {
    this.pinned = true;
    this.place.scrollTop = this.place.scrollHeight;
    this.down.hidden = true;
  }

  aim() {
    const view = this.goal ? this.views.get(this.goal) : null;
    if (view) {
      view.element.scrollIntoView({ block: "start" });
      view.element.focus({ preventScroll: true });
    } else this.bottom();
  }

  close() {
    this.closed = true;
    this.beside.close();
    this.end?.();
    this.sizes.disconnect();
    this.composer.close();
    this.place.removeEventListener("scroll", this.onScroll);
  }
}

function title(text) {
  document.title = `${text} – drupe`;
  return h("h1", {}, text);
}

export function session(place, [, id, view, turn]) {
  const shown = new Conversation(place, id, view === "m" ? turn : null);
  shown.open();
  return () => shown.close();
}

export function fresh(place) {
  const day = new Date().toISOString().slice(0, 10);
  const shown = new Conversation(place, conversation(`page-${day}-${unique().slice(0, 6)}`), null);
  shown.isNew = true;
  const send = shown.send.bind(shown);
  // It gets its address with its first message.
  shown.composer.actions.send = async (message) => {
    await send(message);
    if (!shown.isNew) return;
    shown.isNew = false;
    rename(to.session(shown.session));
    fill(shown.head, title(message.text.slice(0, 80)), shown.name());
  };
  shown.open();
  return () => shown.close();
}
