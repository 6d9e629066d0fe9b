//! What happened within a run that tells why it ended as it did: limits, failed models, calls that gave nothing.

use drupe_agent::Entry;
use drupe_extension_api::{
    AgentResponse, BudgetUse, Event, EventBody, FailureClass, ItemKind, ItemOutcome, Message, ResponseStatus,
    ToolStatus,
    control::{ApprovalState, Cited},
};
use jiff::Timestamp;

use super::turn;
use crate::{
    limit,
    told::{self, Told},
    tree::{Attempt, CallRows, RunRows, Tree},
    words::{between, ended, excerpt, grouped, lasting, name, sentence},
};

/// The most sentences about one kind of thing in one run; the rest is in the trace.
const MOST: usize = 8;

/// All of it, in the order of importance.
pub(super) fn causes(told: &mut Told, tree: &Tree<'_>, run: &RunRows<'_>, now: Timestamp) {
    limits(told, run);
    attempts(told, tree, run, now);
    asked(told, tree, run, now);
    calls(told, tree, run, now);
    notes(told, run);
    turn::steered(told, run);
    remarks(told, &run.events);
}

/// The class of a failure, in brackets.
pub(super) fn class(response: &AgentResponse) -> String {
    response.class.map(|class| format!(" (class `{}`)", name(&class))).unwrap_or_default()
}

/// What to do about a failure that says so better than anything that happened on the way.
pub(super) fn fatal(told: &mut Told, class: Option<FailureClass>) {
    match class {
        // The limit itself says more.
        None | Some(FailureClass::Budget | FailureClass::Timeout) => {}
        Some(class) => told.remedy(class.remedy()),
    }
}

/// What to do where nothing better was said.
pub(super) fn remedy(told: &mut Told, class: Option<FailureClass>) {
    if let Some(class) = class {
        told.remedy(class.remedy());
    }
}

/// How a sub-agent's run ended, where it did not succeed.
pub(super) fn ended_below(told: &mut Told, tree: &Tree<'_>, run: &RunRows<'_>) {
    let agent = run.agent;
    match run.end {
        Some((row, response, _)) if response.status != ResponseStatus::Success => {
            let how = if response.status == ResponseStatus::Refused { "refused its task" } else { "failed" };
            let why = excerpt(response.error.as_deref().unwrap_or(&response.content));
            let text = format!("Sub-agent `{agent}` {how}{}: {}", class(response), ended(&why));
            told.say(text, [told::entry(row)]);
            let failed = |event: &&&Event| matches!(event.body, EventBody::SubagentFailed { .. });
            if let Some(event) = run.events.iter().find(failed) {
                told.cite(told::event(event));
            }
        }
        None if tree.over() => {
            told.say(format!("The end of sub-agent `{agent}` was never recorded."), [told::entry(run.begin)]);
        }
        _ => {}
    }
}

/// Limits that stopped work, then those that are nearly used up.
fn limits(told: &mut Told, run: &RunRows<'_>) {
    let exceeded =
        |used: &BudgetUse| format!("A limit stopped work of `{}`: {}.", run.agent, limit::standing(used));
    for event in &run.events {
        if let EventBody::BudgetExceeded(used) = &event.body {
            told.say(exceeded(used), [told::event(event)]);
            told.remedy(limit::remedy(used));
        }
    }
    let stopped = |of: &BudgetUse| {
        let same = |used: &BudgetUse| (used.scope, &used.limit) == (of.scope, &of.limit);
        run.events.iter().any(|event| matches!(&event.body, EventBody::BudgetExceeded(used) if same(used)))
    };
    for event in &run.events {
        if let EventBody::BudgetWarning(used) = &event.body
            && !stopped(used)
        {
            told.say(
                format!("Most of a limit of `{}` was used: {}.", run.agent, limit::standing(used)),
                [told::event(event)],
            );
        }
    }
}

/// Attempts of models that failed, were cut off, or stopped for another reason than being done.
fn attempts(told: &mut Told, tree: &Tree<'_>, run: &RunRows<'_>, now: Timestamp) {
    let worth = |(_, attempt): &(usize, &Attempt<'_>)| {
        attempt.told.is_none_or(|told| !["end", "tool_calls"].contains(&told.stop))
    };
    let mut found = run.attempts.iter().enumerate().filter(worth);
    for (at, attempt) in found.by_ref().take(MOST) {
        let next = run.attempts.get(at + 1).filter(|next| next.step == attempt.step);
        let because = because(run, attempt);
        told.say(of_attempt(tree, run, attempt, next, now), [because]);
        if let Some(row) = attempt.failed {
            told.cite(told::entry(row));
        }
    }
    if let Some((_, attempt)) = found.next() {
        let rest = found.count() + 1;
        told.say(format!("{rest} more attempts ended like that."), [because(run, attempt)]);
    }
}

fn because(run: &RunRows<'_>, attempt: &Attempt<'_>) -> Cited {
    match (attempt.told, attempt.asked) {
        (Some(ended), _) => told::event(ended.event),
        (None, Some(row)) => told::entry(row),
        (None, None) => told::entry(run.begin),
    }
}

fn of_attempt(
    tree: &Tree<'_>,
    run: &RunRows<'_>,
    attempt: &Attempt<'_>,
    next: Option<&Attempt<'_>>,
    now: Timestamp,
) -> String {
    let Attempt { step, attempt: nth, model, .. } = attempt;
    let place = format!("step {step} of `{}`, attempt {nth}", run.agent);
    let Some(seen) = attempt.told else {
        if attempt.open(run, tree) {
            let since = attempt.began.map(|event| lasting(between(event.time, now)));
            let since = since.map(|ms| format!(" for {ms}")).unwrap_or_default();
            return format!("`{model}` has been at work on its answer{since} ({place}).");
        }
        let next = next.map(|next| format!(" `{}` was asked again.", next.model)).unwrap_or_default();
        return format!("The answer of `{model}` was cut off before its end was recorded ({place}).{next}");
    };
    let after = lasting(seen.latency_ms);
    match seen.stop {
        "length" => format!("The answer of `{model}` was cut off at its bound on tokens ({place})."),
        "filter" => format!("The provider's filter ended the answer of `{model}` ({place})."),
        "refusal" => format!("`{model}` declined the task ({place})."),
        stop => {
            let mut text =
                format!("`{model}` gave no answer ({place}) after {after}: {}", ended(&excerpt(stop)));
            match next {
                Some(next) => text.push_str(&format!(" `{}` was asked next.", next.model)),
                None => text.push_str(&given_up(attempt)),
            }
            text
        }
    }
}

/// What the end of the last attempt of a step meant.
fn given_up(attempt: &Attempt<'_>) -> String {
    match attempt.failed.map(|row| row.entry) {
        Some(Entry::Failed { class, lost_tokens, .. }) => {
            let lost = match lost_tokens {
                0 => String::new(),
                lost => format!(", and {} tokens count as used", grouped(*lost)),
            };
            format!(" Nothing was tried after that (class `{}`{lost}).", name(class))
        }
        _ => String::new(),
    }
}

/// Calls about which a person was asked, and what came of it.
fn asked(told: &mut Told, tree: &Tree<'_>, run: &RunRows<'_>, now: Timestamp) {
    let mut found = run.calls.iter().filter(|call| call.question.is_some());
    for call in found.by_ref().take(MOST) {
        about(told, tree, run, call, now);
    }
    if let Some(call) = found.next() {
        let rest = found.count() + 1;
        told.say(format!("A person was asked about {rest} more calls."), [told::entry(call.intent)]);
    }
}

/// What became of the question about one call.
pub(super) fn about(
    told: &mut Told,
    tree: &Tree<'_>,
    run: &RunRows<'_>,
    call: &CallRows<'_>,
    now: Timestamp,
) {
    let (tool, place) = (excerpt(call.tool), format!("step {} of `{}`", call.step, run.agent));
    let Some((row, Entry::Asked { question, .. })) = call.question.map(|row| (row, row.entry)) else {
        if let Entry::Intent { by: Some(by), .. } = call.intent.entry {
            told.say(
                format!("`{tool}` was allowed by {} ({place}).", excerpt(by)),
                [told::entry(call.intent)],
            );
        }
        return;
    };
    let took = |until: Timestamp| {
        let asked = Timestamp::from_millisecond(question.asked_ms).unwrap_or_default();
        lasting(between(asked, until))
    };
    let answer = run
        .events
        .iter()
        .rfind(|event| matches!(&event.body, EventBody::ApprovalAnswered { id, .. } if id == call.effect));
    let after = answer.map(|event| format!(" after {}", took(event.time))).unwrap_or_default();
    let by = |by: &Option<String>| by.as_ref().map(|by| format!(" by {}", excerpt(by))).unwrap_or_default();
    let text = match call.decided.map(|row| row.entry) {
        None if call.waits(tree) => {
            told.remedy(format!(
                "look at what it would do with `drupe approvals`, then `drupe approvals allow {id}` or `deny {id}`",
                id = call.effect
            ));
            format!("`{tool}` has waited for approval for {} ({place}).", took(now))
        }
        Some(Entry::Decided { state: ApprovalState::Allowed, by: who, .. }) => {
            format!("`{tool}` was allowed{}{after} ({place}).", by(who))
        }
        Some(Entry::Decided { state: ApprovalState::Denied, by: who, .. }) => {
            format!("`{tool}` was denied{}{after} ({place}).", by(who))
        }
        Some(Entry::Decided { state: ApprovalState::Expired, .. }) => {
            format!("Nobody answered whether `{tool}` may run{after} ({place}).")
        }
        _ => format!("The question whether `{tool}` may run was withdrawn{after} ({place})."),
    };
    told.say(format!("{text} It was asked since {}.", excerpt(&question.need)), [told::entry(row)]);
    if let Some(row) = call.decided {
        told.cite(told::entry(row));
    }
    if let Some(event) = answer {
        told.cite(told::event(event));
    }
}

/// Calls that did not run, failed, were stopped, or whose outcome nobody knows.
fn calls(told: &mut Told, tree: &Tree<'_>, run: &RunRows<'_>, now: Timestamp) {
    let worth = |call: &&CallRows<'_>| {
        let told_of_itself = tree.run(&call.child).is_some();
        !told_of_itself
            && !call.waits(tree)
            && call.result.is_none_or(|(_, status, _)| status != ToolStatus::Ok)
    };
    let mut found = run.calls.iter().filter(worth);
    for call in found.by_ref().take(MOST) {
        let row = call.result.map_or(call.intent, |(row, ..)| row);
        told.say(of_call(tree, run, call, now), [told::entry(row)]);
        if let Some(event) = call.ended.map(|(event, ..)| event) {
            told.cite(told::event(event));
        }
    }
    if let Some(call) = found.next() {
        let rest = found.count() + 1;
        told.say(format!("{rest} more calls ended like that."), [told::entry(call.intent)]);
    }
}

/// How a call ended, in a sentence.
pub(super) fn of_call(tree: &Tree<'_>, run: &RunRows<'_>, call: &CallRows<'_>, now: Timestamp) -> String {
    let (tool, place) = (excerpt(call.tool), format!("step {} of `{}`", call.step, run.agent));
    let Some((_, status, content)) = call.result else {
        if call.waits(tree) {
            return format!("`{tool}` has not started ({place}).");
        }
        if call.open(tree) {
            let since = call.began.map(|event| lasting(between(event.time, now)));
            let since = since.map(|ms| format!(" for {ms}")).unwrap_or_default();
            return format!("`{tool}` has been running{since} ({place}).");
        }
        return format!("The end of `{tool}` was never recorded ({place}).");
    };
    let why = ended(&excerpt(&said(content)));
    match status {
        ToolStatus::Ok => format!("`{tool}` did its work ({place})."),
        ToolStatus::Error => format!("`{tool}` failed ({place}): {why}"),
        ToolStatus::Refused => format!("`{tool}` did not run ({place}): {why}"),
        ToolStatus::Cancelled => format!("`{tool}` was stopped ({place}): {why}"),
        ToolStatus::OutcomeUnknown => {
            format!("Nobody knows whether `{tool}` took effect ({place}): {why}")
        }
    }
}

/// What a result says. That of an agent is JSON with its report in it.
fn said(content: &str) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_str(content).ok();
    let part = |key: &str| parsed.as_ref()?.get(key)?.as_str().map(str::to_owned);
    let of_agent = part("status").and_then(|_| part("error").or_else(|| part("content")));
    match (of_agent, part("class")) {
        (Some(said), Some(class)) => format!("{said} (class `{class}`)"),
        (Some(said), None) => said,
        _ => content.to_owned(),
    }
}

/// What the loop told the model.
fn notes(told: &mut Told, run: &RunRows<'_>) {
    for (step, row) in &run.notes {
        if let Entry::Note { message: Message::User { content }, .. } = row.entry {
            let text = format!("After step {step} drupe told `{}`: {}", run.agent, ended(&excerpt(content)));
            told.say(text, [told::entry(*row)]);
        }
    }
}

/// What the user was told of, where no other sentence speaks of the same.
pub(super) fn remarks(told: &mut Told, events: &[&Event]) {
    let mut found = events.iter().filter_map(|event| Some((*event, remark(&event.body)?)));
    for (event, text) in found.by_ref().take(MOST) {
        told.say(text, [told::event(event)]);
    }
    if let Some((event, _)) = found.next() {
        let rest = found.count() + 1;
        told.say(format!("There are {rest} more remarks like that."), [told::event(event)]);
    }
}

fn remark(body: &EventBody) -> Option<String> {
    match body {
        EventBody::Diagnostic { code, message } => {
            // Attempts, calls and deliveries speak for themselves.
            let known =
                ["model_retry", "answer_cut", "outcome_unknown", "delivery.uncertain", "delivery.failed"];
            (!known.contains(&code.as_str())).then(|| sentence(&excerpt(message)))
        }
        EventBody::StreamReset { reason, .. } => {
            Some(format!("Text that had been shown became void: {}", ended(&excerpt(reason))))
        }
        EventBody::ItemCompleted { item, outcome: ItemOutcome::Interrupted, .. } => {
            let what = match (item.kind, &item.name) {
                (_, Some(name)) => format!("the call of `{}`", excerpt(name)),
                (ItemKind::AgentMessage, None) => "an answer of the model".to_owned(),
                (kind, None) => format!("an item ({})", name(&kind)),
            };
            Some(format!("The end of the process interrupted {what}."))
        }
        _ => None,
    }
}
