// What a turn is while it runs: a tree of runs, each a list of parts in the order in which they came. Made from events
// alone, without any element, so that a view can be drawn from it at any time.

export function turn(id, input = "") {
  return {
    id,
    input,
    state: "waiting",
    started: null,
    ended: null,
    content: "",
    error: null,
    class: null,
    spend: null,
    by: null,
    from: null,
    runs: new Map(),
    items: new Map(),
    notes: [],
    tokens: 0,
    cost: 0,
    priced: true,
  };
}

// A turn as `sessions.show` and `turn.wait` tell it.
export function settle(kept, result) {
  kept.input = result.input ?? kept.input;
  kept.content = result.content ?? "";
  kept.error = result.error ?? null;
  kept.class = result.class ?? null;
  if (result.status) {
    kept.state = result.status;
    kept.spend = result.spend;
  }
  kept.diagnostics = result.diagnostics ?? [];
  return kept;
}

function run(kept, agent, time) {
  const known = kept.runs.get(agent.invocation);
  if (known) return known;
  const made = {
    kind: "run",
    id: agent.invocation,
    agent: agent.id,
    depth: agent.depth,
    task: null,
    started: time,
    ended: null,
    state: "running",
    parts: [],
    tokens: 0,
    cost: 0,
    error: null,
    content: null,
  };
  kept.runs.set(made.id, made);
  const parent = agent.parent ? kept.runs.get(agent.parent) : null;
  if (parent) (caller(parent, agent.id) ?? parent).parts.push(made);
  return made;
}

// The call that set a run off: events name the agent and the run that called it, so it is the first open call of its tool.
function caller(parent, agent) {
  const open = parent.parts.filter(
    (part) => part.kind === "tool" && part.state === "running" && part.parts.length === 0,
  );
  return open.find((part) => part.name === `agent_${agent}`);
}

function begin(kept, event) {
  const { item } = event.data;
  if (!event.agent || kept.items.has(item.id)) return;
  const parent = run(kept, event.agent, event.time);
  const kind =
    item.type === "agent_message"
      ? "text"
      : item.type === "reasoning"
        ? "reasoning"
        : item.type === "todo_list"
          ? "plan"
          : item.type === "error"
            ? "error"
            : "tool";
  const part = {
    kind,
    type: item.type,
    id: item.id,
    name: item.name ?? item.type,
    input: item.input ?? null,
    output: null,
    state: "running",
    started: event.time,
    elapsed: null,
    text: "",
    whole: false,
    // Its beginning was told before anybody listened.
    missed: event.seq <= (kept.known ?? 0),
    steps: [],
    parts: [],
    approval: null,
  };
  kept.items.set(item.id, part);
  parent.parts.push(part);
}

function update(kept, { id, item, delta }) {
  const part = kept.items.get(id);
  if (!part) return;
  if (item === "todo_list") part.steps = steps(delta);
  else part.text += delta;
}

function end(kept, event) {
  const { item, outcome, elapsed_ms } = event.data;
  begin(kept, event);
  const part = kept.items.get(item.id);
  if (!part) return;
  part.state = outcome;
  part.elapsed = elapsed_ms;
  part.output = item.output ?? null;
  if (part.kind === "plan" && part.output) part.steps = steps(part.output.text) ?? part.steps;
  if ((part.kind === "text" || part.kind === "reasoning") && part.output) {
    part.whole = !part.output.truncated;
    if (part.whole || part.text.length < part.output.text.length) part.text = part.output.text;
  }
}

export function steps(text) {
  try {
    const items = JSON.parse(text).items;
    return Array.isArray(items)
      ? items.map(({ step, status }) => ({ step: String(step), status: String(status) }))
      : [];
  } catch {
    return [];
  }
}

function attempt(kept, event) {
  const { usage, cost_usd } = event.data;
  const used = (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0);
  const own = event.agent ? run(kept, event.agent, event.time) : null;
  for (const place of own ? [kept, own] : [kept]) {
    place.tokens += used;
    place.cost += cost_usd ?? 0;
  }
  if (cost_usd === undefined) kept.priced = false;
}

function over(kept, event, state) {
  if (!event.agent) return;
  const own = run(kept, event.agent, event.time);
  own.state = state;
  own.ended = event.time;
  own.error = event.data.error ?? null;
  if (event.data.spend) {
    own.tokens = (event.data.spend.usage?.input_tokens ?? 0) + (event.data.spend.usage?.output_tokens ?? 0);
    own.cost = event.data.spend.cost_usd ?? own.cost;
  }
}

function note(kept, event, code, text) {
  const part = { kind: "note", id: `${event.session}/${event.seq}`, code, text };
  if (event.agent) run(kept, event.agent, event.time).parts.push(part);
  else kept.notes.push(part);
}

const KINDS = {
  "interaction.turn.started": (kept, event) => {
    if (kept.state === "waiting") kept.state = "running";
    kept.started ??= event.time;
    if (!kept.input) kept.input = event.data.input.text;
  },
  "interaction.turn.completed": (kept, event) => {
    const { status, error, spend } = event.data;
    Object.assign(kept, {
      state: status,
      error: error ?? null,
      class: event.data.class ?? null,
      spend,
      ended: event.time,
    });
    for (const open of kept.runs.values()) if (open.state === "running") open.state = status;
  },
  "interaction.item.started": begin,
  "interaction.item.updated": (kept, event) => update(kept, event.data),
  "interaction.item.completed": end,
  "interaction.stream.reset": (kept, event) => {
    const part = kept.items.get(event.data.id);
    if (part) part.text = "";
  },
  "interaction.stream.skipped": (kept) => {
    for (const part of kept.items.values()) if (part.state === "running") part.missed = true;
  },
  "interaction.turn.steered": (kept, event) => {
    const part = { kind: "steer", id: event.data.from, text: event.data.input.text };
    if (event.agent) run(kept, event.agent, event.time).parts.push(part);
    else kept.notes.push(part);
  },
  "interaction.approval.requested": (kept, event) => {
    const { id, tool, need, expires, input } = event.data;
    if (!event.agent) return;
    const known = kept.items.get(id);
    if (known) known.approval = { id, need, expires, state: "pending" };
    else begin(kept, { ...event, data: { item: { id, type: "tool_call", name: tool, input } } });
    kept.items.get(id).approval ??= { id, need, expires, state: "pending" };
  },
  "interaction.approval.answered": (kept, event) => {
    const part = kept.items.get(event.data.id);
    if (part)
      part.approval = { ...(part.approval ?? { id: event.data.id }), state: event.data.state, by: event.data.by };
  },
  "interaction.subagent.selected": (kept, event) => {
    kept.by = event.agent?.id ?? null;
  },
  "interaction.handoff.started": (kept, event) =>
    note(kept, event, "handoff", `@${event.data.to} has the conversation; /back takes it back`),
  "interaction.handoff.ended": (kept, event) =>
    note(kept, event, "handoff", `@${event.data.from} has the conversation no more: ${event.data.reason}`),
  "interaction.subagent.started": (kept, event) => {
    if (event.agent) run(kept, event.agent, event.time).task = event.data.task;
  },
  "interaction.subagent.completed": (kept, event) => over(kept, event, "success"),
  "interaction.subagent.failed": (kept, event) => over(kept, event, event.data.status),
  "interaction.budget.warning": (kept, event) => note(kept, event, "limit", { ...event.data }),
  "interaction.budget.exceeded": (kept, event) => note(kept, event, "limit_reached", { ...event.data }),
  "interaction.diagnostic": (kept, event) => note(kept, event, event.data.code, event.data.message),
  "interaction.model.attempt": attempt,
};

// Takes one event in. An event of a kind that this page does not know changes nothing.
export function apply(kept, event) {
  if (event.agent) {
    const isNew = !kept.runs.has(event.agent.invocation);
    const own = run(kept, event.agent, event.time);
    // The message went on to another agent: what was done before stays above what that does.
    if (isNew && event.agent.depth === 0) {
      if (kept.root) own.parts.unshift(...kept.root.parts);
      kept.root = own;
    }
  }
  KINDS[event.kind]?.(kept, event);
}

export function ended(kept) {
  return kept.state !== "waiting" && kept.state !== "running";
}

// The rows of a turn that has ended, in the shape that a live one has, from a trace.
export function fromTrace(nodes) {
  const of = (node) => {
    if (node.kind === "note") return { kind: "note", id: node.id, code: node.name, text: node.outcome ?? "" };
    const part = {
      kind: node.kind,
      id: node.id,
      name: node.name,
      agent: node.name,
      state: node.outcome ?? "running",
      elapsed: node.elapsed_ms ?? null,
      started: node.started,
      tokens: (node.usage?.input_tokens ?? 0) + (node.usage?.output_tokens ?? 0),
      cost: node.cost_usd,
      type: "tool_call",
      steps: [],
      parts: [],
    };
    part.parts = (node.nodes ?? []).filter((below) => below.kind !== "model").map(of);
    return part;
  };
  return nodes.map(of);
}
