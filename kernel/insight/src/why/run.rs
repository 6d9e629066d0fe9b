//! One run of an agent.

use drupe_agent::Entry;
use drupe_extension_api::{EventBody, InvocationId, ResponseStatus, control::Explanation};
use drupe_journal::TurnRows;
use jiff::Timestamp;

use super::{parts, turn::spending};
use crate::{
    told::{self, Told, cited},
    tree::{RunRows, Tree},
    words::{between, count, ended, excerpt, grouped, lasting},
};

/// Why a run ended as it did, or what it does at `now`; none where the turn has no such run.
pub fn why_run(rows: &TurnRows, run: &InvocationId, now: Timestamp) -> Option<Explanation> {
    let tree = Tree::of(rows);
    let run = tree.run(run)?;
    let mut told = Told::of("run", run.id);
    ending(&mut told, &tree, run, now);
    let class = run.end.and_then(|(_, response, _)| response.class);
    parts::fatal(&mut told, class);
    caller(&mut told, &tree, run);
    parts::causes(&mut told, &tree, run, now);
    for below in tree.runs.iter().filter(|other| other.parent == Some(run.id)) {
        parts::ended_below(&mut told, &tree, below);
    }
    parts::remedy(&mut told, class);
    Some(told.done())
}

fn ending(told: &mut Told, tree: &Tree<'_>, run: &RunRows<'_>, now: Timestamp) {
    let agent = run.agent;
    let Some((row, response, spend)) = run.end else {
        let since =
            run.began().map(|began| format!(" for {}", lasting(between(began, now)))).unwrap_or_default();
        let text = if tree.over() {
            format!("The end of this run of `{agent}` was never recorded.")
        } else {
            format!("This run of `{agent}` goes on{since}.")
        };
        return told.say(text, [told::entry(run.begin)]);
    };
    let spent = spending(spend);
    let why = ended(&excerpt(response.error.as_deref().unwrap_or(&response.content)));
    let text = match response.status {
        ResponseStatus::Success => {
            format!("This run of `{agent}` answered after {} with {spent}.", lasting(spend.elapsed_ms))
        }
        ResponseStatus::Error => {
            let class = parts::class(response);
            format!(
                "This run of `{agent}` failed{class} after {} with {spent}: {why}",
                lasting(spend.elapsed_ms)
            )
        }
        ResponseStatus::Refused => format!("This run of `{agent}` refused its task: {why}"),
    };
    told.say(text, [told::entry(row)]);
}

/// Who called it, with which task.
fn caller(told: &mut Told, tree: &Tree<'_>, run: &RunRows<'_>) {
    let task = ended(&excerpt(run.task));
    let text = match run.parent.and_then(|id| tree.run(id)) {
        Some(parent) => format!("`{}` called it with the task: {task}", parent.agent),
        None => format!("It is the root of its turn, with the task: {task}"),
    };
    told.say(text, [told::entry(run.begin)]);
    made_of(told, tree, run);
    let started = run.events.iter().find(|event| matches!(event.body, EventBody::SubagentStarted { .. }));
    if let Some(event) = started {
        told.cite(told::event(event));
    }
}

/// What the run was made of, where that is kept.
fn made_of(told: &mut Told, tree: &Tree<'_>, run: &RunRows<'_>) {
    let Entry::Begin { recipe: Some(hash), .. } = run.begin.entry else { return };
    let Some(recipe) = tree.rows.recipes.get(hash) else { return };
    let deferred = match recipe.deferred.len() as u64 {
        0 => String::new(),
        more => format!(", with {} more to look up", grouped(more)),
    };
    let (tools, steps) = (recipe.tools.len() as u64, recipe.definition.limits.max_turns.into());
    let text = format!(
        "It began with {}{deferred}, for at most {}: recipe `{}`.",
        count(tools, "tool"),
        count(steps, "step"),
        &hash[..hash.floor_char_boundary(12)],
    );
    let says =
        format!("the instructions have {} bytes", grouped(recipe.definition.instructions.len() as u64));
    told.say(text, [cited("recipes", hash, says)]);
}
