//! A turn as a tree: runs, model attempts, tool calls, and remarks between them.
//!
//! A run's figures are its own attempts' and those of every run below it, each counted once. What a restart cut off
//! is shown as `interrupted`; what still goes on has no end.

use std::collections::HashSet;

use drupe_agent::Entry;
use drupe_extension_api::{
    AgentId, Event, EventBody, InvocationId, Message, Spend, Usage,
    control::{CallKind, TraceNode, TurnTrace},
};
use drupe_journal::TurnRows;
use jiff::Timestamp;

use crate::{
    limit,
    tree::{Attempt, CallRows, RunRows, Tree},
    words::{between, excerpt, grouped, name},
};

/// Everything that a turn set off, as far as it has come. A turn that never began has no run; remarks that belong
/// to none are then shown by themselves.
pub fn trace(rows: &TurnRows) -> TurnTrace {
    let tree = Tree::of(rows);
    let mut left: HashSet<&InvocationId> = tree.runs.iter().map(|run| run.id).collect();
    let (nodes, sum) = match tree.root() {
        Some(_) => {
            let mut sum = Sum::default();
            let mut branch = Branch { tree: &tree, left: &mut left };
            let nodes = tree.roots().map(|root| {
                let (node, below) = branch.run(root, &[]);
                sum.add(&below);
                node
            });
            (nodes.collect(), sum)
        }
        None => (tree.events.iter().filter_map(|e| remark(e, &[])).collect(), Sum::default()),
    };
    let mut spend = rows.spend.unwrap_or_else(|| so_far(&tree, &sum));
    // As long as its root below: what the last process counted began with that.
    if let Some((began, ended)) = rows.started.zip(rows.finished) {
        spend.elapsed_ms = between(began, ended);
    }
    TurnTrace {
        session: rows.inbound.ask.session.clone(),
        turn: rows.turn.clone(),
        correlation_id: rows.correlation.clone(),
        accepted: rows.accepted,
        started: rows.started,
        status: rows.response.as_ref().map(|response| response.status),
        class: rows.response.as_ref().and_then(|response| response.class),
        spend,
        nodes,
    }
}

/// What a turn without an end has spent.
pub(crate) fn spent(tree: &Tree<'_>) -> Spend {
    let mut sum = Sum::default();
    tree.runs.iter().flat_map(|run| &run.attempts).for_each(|attempt| sum.attempt(attempt));
    so_far(tree, &sum)
}

fn so_far(tree: &Tree<'_>, sum: &Sum) -> Spend {
    let total = |of: fn(&RunRows<'_>) -> usize| {
        u32::try_from(tree.runs.iter().map(of).sum::<usize>()).unwrap_or(u32::MAX)
    };
    let last = tree.rows.events.last().map(|event| event.time);
    Spend {
        usage: sum.usage,
        turns: total(|run| {
            let steps = run.attempts.chunk_by(|a, b| a.step == b.step);
            steps.filter(|step| step[0].is_step() && step.iter().any(Attempt::is_shown)).count()
        }),
        tool_calls: total(|run| run.calls.iter().filter(|call| call.counts()).count()),
        invocations: total(|_| 1),
        cost_usd: sum.cost(),
        elapsed_ms: tree.rows.started.zip(last).map_or(0, |(began, last)| between(began, last)),
    }
}

/// Tokens and money of attempts.
#[derive(Default, Clone, Copy)]
struct Sum {
    usage: Usage,
    usd: f64,
    priced: bool,
    unpriced: bool,
}

impl Sum {
    fn attempt(&mut self, attempt: &Attempt<'_>) {
        let Some(told) = attempt.told else { return };
        self.usage += told.usage;
        match told.cost_usd {
            Some(usd) => (self.usd, self.priced) = (self.usd + usd, true),
            None => self.unpriced |= told.usage.total() > 0,
        }
    }

    fn add(&mut self, other: &Self) {
        self.usage += other.usage;
        self.usd += other.usd;
        self.priced |= other.priced;
        self.unpriced |= other.unpriced;
    }

    /// No sum where a price is unknown.
    fn cost(&self) -> Option<f64> {
        (self.priced && !self.unpriced).then_some(self.usd)
    }
}

/// Where a node stands among those beside it: the position of its first event, and what follows that event.
type Key = (u64, u8);

struct Branch<'t, 'a> {
    tree: &'t Tree<'a>,
    /// Runs that have no node yet, so that each gets one.
    left: &'t mut HashSet<&'a InvocationId>,
}

impl<'t, 'a> Branch<'t, 'a> {
    fn run(&mut self, run: &'t RunRows<'a>, above: &[AgentId]) -> (TraceNode, Sum) {
        self.left.remove(run.id);
        let path = [above, std::slice::from_ref(run.agent)].concat();
        let top = self.tree.root().is_some_and(|root| root.id == run.id);
        let rows = self.tree.rows;
        let began = if top { rows.started } else { None }.or(run.began()).unwrap_or(rows.accepted);
        let mut sum = Sum::default();
        let mut parts = self.attempts(run, &path, began, &mut sum);
        for call in &run.calls {
            let (node, below) = self.call(call, &path, began);
            sum.add(&below);
            parts.push(((call.began.map_or(u64::MAX, |event| event.seq), 0), node));
        }
        for other in &self.tree.runs {
            // A run whose caller is not there is shown below the root, so that nothing is left out.
            let here = other.parent == Some(run.id)
                || (top && other.parent.is_some_and(|id| self.tree.run(id).is_none()));
            if here && self.left.contains(other.id) {
                let (node, below) = self.run(other, &path);
                sum.add(&below);
                parts.push(((other.events.first().map_or(u64::MAX, |event| event.seq), 0), node));
            }
        }
        let others: &[&Event] = if top { &self.tree.events } else { &[] };
        let remarks = run.events.iter().chain(others);
        parts.extend(remarks.filter_map(|event| Some(((event.seq, 0), remark(event, &path)?))));
        parts.extend(notes(run, &path, began));
        parts.sort_by_key(|(key, _)| *key);
        let node = TraceNode {
            kind: CallKind::Run,
            id: run.id.to_string(),
            name: run.agent.to_string(),
            path,
            started: began,
            elapsed_ms: self.elapsed(run, top),
            first_ms: None,
            outcome: self.outcome(run),
            class: run.end.and_then(|(_, response, _)| response.class),
            usage: Some(sum.usage),
            cost_usd: sum.cost(),
            bytes_in: Some(run.task.len() as u64),
            bytes_out: run.end.map(|(_, response, _)| response.content.len() as u64),
            nodes: parts.into_iter().map(|(_, node)| node).collect(),
        };
        (node, sum)
    }

    /// A root that has its turn alone is as long as that: its own figure begins anew with each process.
    fn elapsed(&self, run: &RunRows<'_>, top: bool) -> Option<u64> {
        let rows = self.tree.rows;
        match rows.started.zip(rows.finished).filter(|_| top && self.tree.roots().count() == 1) {
            Some((began, ended)) => Some(between(began, ended)),
            None => run.end.map(|(_, _, spend)| spend.elapsed_ms),
        }
    }

    fn outcome(&self, run: &RunRows<'_>) -> Option<String> {
        match run.end {
            Some((_, response, _)) => Some(name(&response.status)),
            None => self.tree.over().then(|| "interrupted".to_owned()),
        }
    }

    fn attempts(
        &self,
        run: &RunRows<'_>,
        path: &[AgentId],
        mut at: Timestamp,
        sum: &mut Sum,
    ) -> Vec<(Key, TraceNode)> {
        let mut key = (0, 0);
        // The step of the attempt before, and where its end was told.
        let mut before: Option<(u32, Key)> = None;
        let node = |attempt: &Attempt<'_>| {
            sum.attempt(attempt);
            // One that repeats another begins where that ended: what is said of its own end comes after it.
            let repeats = before.filter(|(step, _)| *step == attempt.step).map(|(_, end)| end);
            let told = attempt.told.map(|told| told.event.seq);
            let began = attempt.began.map(|event| (event.seq, 0)).or(repeats);
            key = began.or(told.map(|seq| (seq, 0))).unwrap_or(key);
            before = Some((attempt.step, told.map_or(key, |seq| (seq, 1))));
            at = attempt.began.map_or(at, |event| event.time);
            let node = TraceNode {
                id: attempt.id(run.id),
                outcome: match attempt.told {
                    Some(told) => Some(excerpt(told.stop)),
                    None => (!attempt.open(run, self.tree)).then(|| "interrupted".to_owned()),
                },
                class: attempt.failed.and_then(|row| match row.entry {
                    Entry::Failed { class, .. } => Some(*class),
                    _ => None,
                }),
                elapsed_ms: attempt.told.map(|told| told.latency_ms),
                first_ms: attempt.told.and_then(|told| told.first_ms),
                usage: attempt.told.map(|told| told.usage),
                cost_usd: attempt.told.and_then(|told| told.cost_usd),
                ..leaf(CallKind::Model, attempt.model, path, at)
            };
            // The next attempt of the step, if one follows, begins where this one ended.
            let lasted = jiff::SignedDuration::from_millis(
                attempt.told.map_or(0, |told| i64::try_from(told.latency_ms).unwrap_or(i64::MAX)),
            );
            at = at.checked_add(lasted).unwrap_or(at);
            (key, node)
        };
        run.attempts.iter().map(node).collect()
    }

    fn call(&mut self, call: &'t CallRows<'a>, path: &[AgentId], at: Timestamp) -> (TraceNode, Sum) {
        let child = self.tree.run(&call.child).filter(|run| self.left.contains(run.id));
        let below = child.map(|run| self.run(run, path));
        let (nodes, sum) = below.map_or((Vec::new(), Sum::default()), |(node, sum)| (vec![node], sum));
        let open = call.open(self.tree);
        let node = TraceNode {
            id: call.effect.to_string(),
            elapsed_ms: call.ended.map(|(_, _, ms)| ms).filter(|_| !open),
            outcome: match (call.result, call.ended) {
                (Some((_, status, _)), _) => Some(name(&status)),
                (None, _) if open => None,
                (None, Some((_, outcome, _))) => Some(name(&outcome)),
                (None, None) => Some("interrupted".to_owned()),
            },
            bytes_in: call.bytes_in(),
            bytes_out: call.result.map(|(_, _, content)| content.len() as u64),
            nodes,
            ..leaf(CallKind::Tool, call.tool, path, call.began.map_or(at, |event| event.time))
        };
        (node, sum)
    }
}

fn leaf(kind: CallKind, name: &str, path: &[AgentId], started: Timestamp) -> TraceNode {
    TraceNode {
        kind,
        id: String::new(),
        name: name.to_owned(),
        path: path.to_vec(),
        started,
        elapsed_ms: None,
        first_ms: None,
        outcome: None,
        class: None,
        usage: None,
        cost_usd: None,
        bytes_in: None,
        bytes_out: None,
        nodes: Vec::new(),
    }
}

/// An event that is a remark.
fn remark(event: &Event, path: &[AgentId]) -> Option<TraceNode> {
    let (code, text) = match &event.body {
        EventBody::Diagnostic { code, message } => (code.as_str(), message.clone()),
        EventBody::StreamReset { reason, .. } => ("stream_reset", reason.clone()),
        EventBody::BudgetWarning(used) => ("budget_warning", limit::standing(used)),
        EventBody::BudgetExceeded(used) => ("budget_exceeded", limit::standing(used)),
        EventBody::TurnSteered { input, from } => ("steered", format!("turn {from}: {}", input.text)),
        EventBody::SubagentSelected { by } => ("selected", by.clone()),
        EventBody::HandoffStarted { to, summary } => ("handed_over", format!("to `{to}`: {}", summary.text)),
        EventBody::HandoffEnded { from, reason, .. } => ("came_back", format!("from `{from}`: {reason}")),
        EventBody::ApprovalRequested { need, .. } => ("approval_requested", need.clone()),
        EventBody::ApprovalAnswered { tool, state, by, .. } => {
            let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            ("approval_answered", format!("`{tool}` is {}{by}", name(state)))
        }
        _ => return None,
    };
    let id = format!("{}/{}", event.session, event.seq);
    Some(TraceNode { id, outcome: Some(excerpt(&text)), ..leaf(CallKind::Note, code, path, event.time) })
}

/// Remarks that are records and no events: what the loop told the model, what was lost, why the run did not succeed.
fn notes(run: &RunRows<'_>, path: &[AgentId], began: Timestamp) -> Vec<(Key, TraceNode)> {
    let after = |step: u32| {
        let attempts = run.attempts.iter().filter(|a| a.step == step).filter_map(|a| Some(a.told?.event));
        let calls = run.calls.iter().filter(|c| c.step == step).filter_map(|c| Some(c.ended?.0));
        attempts.chain(calls).max_by_key(|event| event.seq)
    };
    let note = |code: &str, text: &str, row: i64, after: Option<&Event>| {
        let (seq, time) = after.map_or((u64::MAX, began), |event| (event.seq, event.time));
        let note = leaf(CallKind::Note, code, path, time);
        ((seq, 1), TraceNode { id: format!("entries/{row}"), outcome: Some(excerpt(text)), ..note })
    };
    let mut all = Vec::new();
    for (step, row) in &run.notes {
        if let Entry::Note { message: Message::User { content }, .. } = row.entry {
            all.push(note("note", content, row.number, after(*step)));
        }
    }
    for attempt in &run.attempts {
        let Some(row) = attempt.failed else { continue };
        let Entry::Failed { lost_tokens: lost @ 1.., .. } = row.entry else { continue };
        let text = format!("{} tokens count as used: nobody saw the end of the call", grouped(*lost));
        all.push(note("lost_tokens", &text, row.number, after(attempt.step)));
    }
    if let Some((row, response, _)) = run.end
        && let Some(error) = &response.error
    {
        let class = response.class.map_or("error".to_owned(), |class| name(&class));
        all.push(note(&class, error, row.number, run.events.last().copied()));
    }
    all
}
