// Numbers, times and states as people read them.

const whole = new Intl.NumberFormat("en");

export function count(number) {
  if (number === undefined || number === null) return "–";
  if (number < 10000) return whole.format(number);
  if (number < 1e6) return `${(number / 1e3).toFixed(number < 1e5 ? 1 : 0)}k`;
  return `${(number / 1e6).toFixed(number < 1e7 ? 2 : 1)}M`;
}

export function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

// A cost that is not known is `?`, never 0.
export function cost(usd) {
  if (usd === undefined || usd === null) return "$?";
  if (usd === 0) return "$0";
  return `$${usd < 0.01 ? usd.toFixed(5) : usd < 1 ? usd.toFixed(3) : usd.toFixed(2)}`;
}

export function duration(ms) {
  if (ms === undefined || ms === null) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export function tokens(usage) {
  return usage ? (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0) : 0;
}

export function bytes(number) {
  if (number === undefined || number === null) return "–";
  if (number < 1024) return `${number} B`;
  if (number < 1024 * 1024) return `${(number / 1024).toFixed(1)} KiB`;
  return `${(number / 1024 / 1024).toFixed(1)} MiB`;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const date = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function when(time) {
  const then = new Date(time);
  const today = new Date().toDateString() === then.toDateString();
  return today ? clock.format(then) : `${date.format(then)}, ${clock.format(then)}`;
}

export function moment(time) {
  return full.format(new Date(time));
}

export function day(time) {
  const then = new Date(time);
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(then).setHours(0, 0, 0, 0)) / 86400000);
  return days <= 0 ? "Today" : days === 1 ? "Yesterday" : days < 7 ? "This week" : "Earlier";
}

// A number in the unit of the limit that counts it.
export function amount(limit, number) {
  return limit.includes("cost") ? cost(number / 1e6) : limit.endsWith("_ms") ? duration(number) : count(number);
}

export function use(budget) {
  return `${amount(budget.limit, budget.used)} of ${amount(budget.limit, budget.allowed)}`;
}

// The sign, the word and the class of each state in which anything can be.
const STATES = {
  success: ["✓", "done", "good"],
  ok: ["✓", "done", "good"],
  allowed: ["✓", "allowed", "good"],
  active: ["✓", "active", "good"],
  ready: ["✓", "ready", "good"],
  end: ["✓", "done", "good"],
  done: ["✓", "done", "good"],
  tool_calls: ["✓", "calls tools", "good"],
  error: ["✕", "failed", "bad"],
  failed: ["✕", "failed", "bad"],
  quarantined: ["✕", "quarantined", "bad"],
  refused: ["⊘", "refused", "bad"],
  denied: ["⊘", "denied", "bad"],
  expired: ["⊘", "expired", "bad"],
  cancelled: ["■", "stopped", ""],
  interrupted: ["■", "interrupted", "wait"],
  withdrawn: ["■", "withdrawn", ""],
  outcome_unknown: ["?", "outcome unknown", "wait"],
  degraded: ["!", "degraded", "wait"],
  awaiting_approval: ["◆", "waits for you", "wait"],
  pending: ["◆", "waits for you", "wait"],
  running: ["●", "running", "run"],
  waiting: ["○", "waiting", ""],
  disabled: ["–", "off", ""],
  skipped: ["–", "skipped", "wait"],
  missed: ["!", "missed", "wait"],
  unknown: ["?", "not known", "wait"],
  paused: ["‖", "paused", "wait"],
};

export function state(name) {
  const [sign, word, kind] = STATES[name] ?? ["·", String(name).replaceAll("_", " "), ""];
  return { sign, word, kind };
}

// JSON with its lines, for people.
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// Characters that cannot be seen, or that turn the order of others, are shown by their numbers.
export function visible(text) {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
