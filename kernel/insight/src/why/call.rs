//! One tool call.

use drupe_extension_api::{EffectClass, EffectId, FailureClass, ToolStatus, control::Explanation};
use drupe_journal::TurnRows;
use jiff::Timestamp;

use super::parts;
use crate::{
    told::{self, Told},
    tree::{CallRows, RunRows, Tree},
    words::{excerpt, grouped, lasting},
};

/// Why a tool call ended as it did, or what it does at `now`; none where the turn has no such call.
pub fn why_call(rows: &TurnRows, effect: &EffectId, now: Timestamp) -> Option<Explanation> {
    let tree = Tree::of(rows);
    let (run, call) = tree.runs.iter().find_map(|run| {
        let call = run.calls.iter().find(|call| call.effect == effect)?;
        Some((run, call))
    })?;
    let mut told = Told::of("tool_call", effect);
    let row = call.result.map_or(call.intent, |(row, ..)| row);
    told.say(parts::of_call(&tree, run, call, now), [told::entry(row)]);
    if let Some(child) = tree.run(&call.child) {
        parts::ended_below(&mut told, &tree, child);
        let agent = child.agent;
        told.say(format!("It set off a run of `{agent}`, {}.", child.id), [told::entry(child.begin)]);
    }
    parts::about(&mut told, &tree, run, call, now);
    asked(&mut told, run, call);
    sizes(&mut told, call);
    unknown(&mut told, call);
    Some(told.done())
}

/// Who called it.
fn asked(told: &mut Told, run: &RunRows<'_>, call: &CallRows<'_>) {
    let Some(request) = call.request else {
        let text = format!("Code of `{}` called it, outside the steps of a model.", run.agent);
        return told.say(text, [told::entry(call.intent)]);
    };
    let text = format!("The model asked for it with the parameters `{}`.", excerpt(&request.arguments));
    told.say(text, [told::entry(call.intent)]);
    let mut answers = run.attempts.iter().filter(|attempt| attempt.step == call.step && attempt.answered());
    if let Some(ended) = answers.next_back().and_then(|attempt| attempt.told) {
        told.cite(told::event(ended.event));
    }
}

/// How long it took and how much it gave.
fn sizes(told: &mut Told, call: &CallRows<'_>) {
    let Some((event, _, elapsed_ms)) = call.ended else { return };
    let gave = call.result.map(|(_, _, content)| content.len() as u64);
    let gave = gave.map(|bytes| format!(" and gave {} bytes", grouped(bytes))).unwrap_or_default();
    told.say(format!("It took {}{gave}.", lasting(elapsed_ms)), [told::event(event)]);
}

/// What a call whose outcome nobody knows means, and what to do.
fn unknown(told: &mut Told, call: &CallRows<'_>) {
    match call.result {
        Some((_, ToolStatus::OutcomeUnknown, _)) => {
            let class = match call.class {
                EffectClass::Pure => "runs again without harm",
                EffectClass::Idempotent => "may run again",
                EffectClass::Once => "must not run twice, so it was not repeated",
            };
            told.say(format!("By its declaration such a call {class}."), [told::entry(call.intent)]);
            told.remedy("look whether it took effect before you ask for it again");
        }
        Some((_, ToolStatus::Error | ToolStatus::Refused, _)) => told.remedy(FailureClass::Tool.remedy()),
        _ => {}
    }
}
