// What is done at set times: how each schedule stands, what became of its last times, and what can be done about it.
import { confirm } from "./confirm.js";
import { ask } from "./control.js";
import { alarm, fill, h, say } from "./dom.js";
import { counted, moment, state, visible } from "./format.js";
import { to } from "./router.js";
import { scheduleForm } from "./schedule-form.js";
import { may } from "./who.js";

// How often it is read anew, in milliseconds: sooner while something runs.
const EVERY = 4000;
const SOON = 1000;

// Characters of a task that are shown unasked.
const LONG = 300;

export function schedules(place, [, chosen]) {
  document.title = "Schedules – drupe";
  const list = h("ul", { class: "stack" });
  const told = h("div", {});
  const shown = new Map();
  let timer = null;
  let closed = false;
  let reading = 0;
  const read = async () => {
    clearTimeout(timer);
    const mine = ++reading;
    let all = [];
    try {
      all = await ask("schedules.list");
      // One that was asked for later has the newer state.
      if (closed || mine !== reading) return;
      draw(all);
    } catch (fault) {
      if (closed || mine !== reading) return;
      fill(told, h("p", { class: "notice bad" }, words(fault)));
    }
    const soon = all.some((one) => open(one.last));
    timer = setTimeout(tick, soon ? SOON : EVERY);
  };
  const tick = () => {
    if (document.visibilityState === "visible") read();
    else timer = setTimeout(tick, EVERY);
  };
  // What is there already keeps its place in the page, and so the focus and what is opened in it.
  const draw = (all) => {
    fill(told, all.length ? null : h("p", { class: "empty" }, "Nothing is done at set times."));
    const there = new Set(all.map(({ id }) => id));
    for (const [id, schedule] of shown) {
      if (there.has(id)) continue;
      const focused = schedule.element.contains(document.activeElement);
      schedule.element.remove();
      shown.delete(id);
      if (focused) heading.focus();
    }
    all.forEach((one, at) => {
      let schedule = shown.get(one.id);
      if (!schedule) {
        schedule = new Schedule(one.id, read);
        shown.set(one.id, schedule);
        if (one.id === chosen) requestAnimationFrame(() => schedule.choose());
      }
      schedule.update(one);
      if (list.children[at] !== schedule.element) list.insertBefore(schedule.element, list.children[at] ?? null);
    });
  };
  const heading = h("h1", { tabIndex: -1 }, "Schedules");
  fill(
    place,
    h(
      "div",
      { class: "page" },
      h(
        "header",
        {},
        heading,
        h("p", {}, "What is done at set times. Each time is done once, or it says here why it was not."),
      ),
      told,
      list,
      may("operate")
        ? h(
            "section",
            { class: "block" },
            h("h2", {}, "Add one"),
            scheduleForm(async ({ id }) => {
              await read();
              shown.get(id)?.choose(false);
            }),
          )
        : null,
    ),
  );
  read();
  return () => {
    closed = true;
    clearTimeout(timer);
  };
}

const words = (fault) => (fault.help ? `${fault.message} – ${fault.help}` : fault.message);
const open = (run) => run?.state === "running" || run?.state === "waiting";

// A name that somebody gave has no `/`, and what an extension brings has one.
const added = (id) => !id.includes("/");

class Schedule {
  constructor(id, read) {
    Object.assign(this, { id, read, drawn: "" });
    const button = (label, act, look = "") =>
      h("button", { type: "button", class: look, aria: { label: `${label} ${id}` }, on: { click: act } }, label);
    this.run = button("Run now", () => this.act("schedules.run", {}, "runs now"));
    this.pause = button("Pause", () => {
      const pause = !this.one.paused;
      this.act("schedules.pause", { pause }, pause ? "is paused" : "goes on");
    });
    this.badge = h("span", {});
    this.facts = h("div", { class: "block" });
    this.told = h("p", { class: "small", role: "status" });
    this.times = h("div", {});
    this.past = h(
      "details",
      { on: { toggle: () => this.past.open && this.show() } },
      h("summary", { class: "small muted" }, "The last times"),
      this.times,
    );
    const decides = may("operate") || (added(id) && may("direct"));
    this.element = h(
      "li",
      { class: "kept", tabIndex: -1, data: { schedule: id } },
      h("div", { class: "row spread" }, h("h2", {}, id), this.badge),
      this.facts,
      decides
        ? h(
            "div",
            { class: "row" },
            this.run,
            this.pause,
            added(id) ? button("Remove", () => this.remove(), "danger") : null,
          )
        : null,
      this.told,
      this.past,
    );
  }

  // Goes there, and opens what became of it.
  choose(past = true) {
    this.element.focus();
    this.element.scrollIntoView({ block: "nearest" });
    if (past) this.past.open = true;
  }

  update(one) {
    const now = JSON.stringify(one);
    if (now === this.drawn) return;
    this.drawn = now;
    this.one = one;
    const label = one.paused ? "Resume" : "Pause";
    this.pause.textContent = label;
    this.pause.setAttribute("aria-label", `${label} ${this.id}`);
    const stands = one.paused ? "paused" : one.last?.state;
    fill(this.badge, stands ? badge(stands) : null);
    fill(this.facts, facts(one));
    if (this.past.open) this.show();
  }

  async act(method, params, done) {
    this.told.textContent = "";
    try {
      await ask(method, { id: this.id, ...params });
      say(`${this.id} ${done}`);
      await this.read();
    } catch (fault) {
      this.told.textContent = words(fault);
      alarm(this.told.textContent);
    }
  }

  async remove() {
    const what = "It is not done any more, and what became of its times is forgotten. Its conversations stay.";
    if (await confirm(`Remove ${this.id}?`, what, "Remove")) this.act("schedules.remove", {}, "is removed");
  }

  async show() {
    try {
      const { runs } = await ask("schedules.show", { id: this.id });
      fill(
        this.times,
        runs.length
          ? h("ol", { class: "lines" }, runs.map(time))
          : h("p", { class: "small muted" }, "It was not due yet."),
      );
    } catch (fault) {
      fill(this.times, h("p", { class: "notice bad" }, words(fault)));
    }
  }
}

function badge(name) {
  const { sign, word, kind } = state(name);
  return h("span", { class: `badge ${kind}` }, `${sign} ${word}`);
}

function facts(one) {
  const { last } = one;
  return [
    one.task
      ? task(visible(one.task))
      : h("p", { class: "muted" }, "The extension’s own code does it."),
    one.paused ? h("p", { class: "notice wait" }, `Paused: ${visible(one.paused)}`) : null,
    h(
      "dl",
      { class: "facts" },
      [
        ["when", [h("code", {}, visible(one.when)), ` ${zone(one.timezone)}`]],
        ["next", one.next ? moment(one.next) + there(one.next, one.timezone) : one.paused ? "not while it is paused" : "never again"],
        last ? ["last", [badge(last.state), " ", what(last)]] : null,
        one.failures ? ["failed", `${counted(one.failures, "time")} in a row`] : null,
        one.held_until ? ["held back", `until ${moment(one.held_until)}`] : null,
        one.only_if ? ["only if", h("code", {}, visible(one.only_if))] : null,
        one.agent ? ["done by", h("a", { href: to.agent(one.agent) }, one.agent)] : null,
        one.session ? ["told in", h("a", { href: to.session(one.session) }, one.session)] : null,
        ["made by", visible(one.made_by)],
      ]
        .filter(Boolean)
        .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
  ];
}

// `system` is the time zone of the machine of the daemon, which is not that of the browser by itself.
const zone = (timezone) => (timezone === "system" ? "in the daemon’s time zone" : visible(timezone));

// The clock of the schedule, where it is another one than that of the browser, in which all times stand.
function there(time, timezone) {
  const clock = (more) =>
    new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short", ...more }).format(new Date(time));
  try {
    const told = clock({ timeZone: timezone });
    return told === clock({}) ? "" : `, which is ${told} in ${timezone}`;
  } catch {
    // `system`, or a name that this browser does not know.
    return "";
  }
}

// A task may be long, and the next schedule is to be found all the same.
function task(text) {
  if (text.length <= LONG) return h("p", { class: "text" }, text);
  return h(
    "details",
    {},
    h("summary", { class: "text" }, `${text.slice(0, LONG)}…`),
    h("pre", { class: "io-text", tabIndex: 0 }, text),
  );
}

// When a run was due, why it is as it is, and where it can be looked at.
function what(run) {
  return [
    run.last_slot && run.slots > 1
      ? `${counted(run.slots, "time")} from ${moment(run.slot)} to ${moment(run.last_slot)}`
      : moment(run.slot),
    run.detail ? `: ${visible(run.detail)}` : "",
    run.turn ? [" ", h("a", { href: to.timeline(run.turn) }, "Timeline")] : null,
  ];
}

function time(run) {
  return h("li", {}, badge(run.state), h("span", {}, what(run)), h("span", { class: "small muted" }, moment(run.changed)));
}
