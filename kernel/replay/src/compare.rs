//! Whether two lists of records say the same, and the first thing in which they do not.
//!
//! Records are compared run by run. Within a run they have an order that does not depend on which of several calls at the same
//! time ended first. What is left out of each is what cannot be the same: see [`said`].

use std::collections::{HashMap, HashSet};

use drupe_agent::Entry;
use drupe_extension_api::{
    AgentId, EffectId, EventBody, FailureClass, InvocationId, ItemKind, LimitScope, ToolStatus,
};
use serde_json::{Map, Value};

use crate::{
    feed::{Feed, LeftAt},
    invocations::{OUTSIDE, step_of, uninterrupted},
};

/// The most bytes of each side of a difference that are told.
const SHOWN: usize = 600;

/// How far two costs may be apart that are the same: prices are worked out from what was paid.
const CENTS: f64 = 1e-9;

/// Something that is not as it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub run: InvocationId,
    pub agent: AgentId,
    /// The step, from 1; none before the first.
    pub step: Option<u32>,
    pub what: String,
    /// The beginning of what was recorded.
    pub recorded: String,
    /// The beginning of what came now.
    pub now: String,
}

/// What is compared of a record.
#[derive(Debug)]
struct Said {
    /// Its place among the records of the turn.
    at: usize,
    rank: Rank,
    /// The call, where several have one rank: what spawned agents are asked has no place in a step.
    call: String,
    kind: &'static str,
    value: Value,
}

/// The step, the part of the step, and the place within the part.
type Rank = (u32, u8, u32);

/// Parts of a step. Results come after all that is committed before a call runs.
const BEGIN: u8 = 0;
const MODEL: u8 = 2;
const CALL: u8 = 3;
const ASKED: u8 = 4;
const DECIDED: u8 = 5;
const RESULT: u8 = 6;
const AFTER: u8 = 7;
const TOLD: u8 = 8;
const END: (u32, u8) = (u32::MAX, u8::MAX);

/// The first difference, by the order in which things were recorded.
pub(crate) fn first(recorded: &[Entry], made: &[Entry], feed: &Feed) -> Option<Difference> {
    let left = feed.left();
    let of_code = calls_of_code(feed);
    let of_loop = |entry: &Entry| call_of(entry).is_none_or(|call| !of_code.contains(call));
    let mut then = by_run(uninterrupted(recorded).into_iter().filter(|(_, entry)| of_loop(entry)));
    let mut now = by_run(made.iter().enumerate());
    for run in left_and_above(&left, feed) {
        // What a run spent that was left is a part of what those above it spent.
        [&mut then, &mut now]
            .into_iter()
            .filter_map(|runs| runs.get_mut(&run))
            .for_each(|said| without_spending(said));
    }
    let is_loops = |run: &&InvocationId| !feed.runs.of_code.contains(*run);
    let mut found: Option<(usize, Difference)> = None;
    let new = now.keys().filter(|run| !then.contains_key(*run));
    for run in feed.runs.order.iter().filter(is_loops).chain(new) {
        let is_code = feed.run(run).is_some_and(|record| record.recipe.is_none());
        let list = |all: &HashMap<InvocationId, Vec<Said>>| -> Vec<usize> {
            let said = all.get(run).map(Vec::as_slice).unwrap_or_default();
            let kept = said.iter().enumerate().filter(|(_, said)| {
                (!is_code || said.kind == "beginning" || said.kind == "end") && is_before(said, left.get(run))
            });
            kept.map(|(at, _)| at).collect()
        };
        let empty = Vec::new();
        let (of_then, of_now) = (then.get(run).unwrap_or(&empty), now.get(run).unwrap_or(&empty));
        let (then_at, now_at) = (list(&then), list(&now));
        let then_said: Vec<&Said> = then_at.iter().map(|at| &of_then[*at]).collect();
        let now_said: Vec<&Said> = now_at.iter().map(|at| &of_now[*at]).collect();
        let Some((at, step, what, recorded, came)) = differs(&then_said, &now_said) else { continue };
        if found.as_ref().is_some_and(|(first, _)| *first <= at) {
            continue;
        }
        let agent = agent_of(run, feed, made);
        let difference = Difference {
            run: run.clone(),
            agent,
            step: (step > 0 && step < u32::MAX).then_some(step),
            what,
            recorded,
            now: came,
        };
        found = Some((at, difference));
    }
    found.map(|(_, difference)| difference)
}

/// Calls that code of a tool made on behalf of a run. What is fed is the result of the tool, and so none of them is made again.
fn calls_of_code(feed: &Feed) -> HashSet<&EffectId> {
    let runs = feed.runs.order.iter().filter_map(|run| feed.run(run)).filter(|run| run.recipe.is_some());
    let calls: HashSet<&EffectId> =
        runs.flat_map(|run| &run.calls).filter(|call| call.is_of_code()).map(|call| &call.effect).collect();
    if !calls.is_empty() {
        feed.remark(
            "calls that code of tools made are not replayed: the tool is fed by its recorded result".into(),
        );
    }
    calls
}

fn call_of(entry: &Entry) -> Option<&EffectId> {
    match entry {
        Entry::Intent { effect, .. } | Entry::Result { effect, .. } | Entry::Decided { effect, .. } => {
            Some(effect)
        }
        Entry::Asked { question, .. } => Some(&question.effect),
        _ => None,
    }
}

fn agent_of(run: &InvocationId, feed: &Feed, made: &[Entry]) -> AgentId {
    let began = made.iter().find_map(|entry| match entry {
        Entry::Begin { invocation, agent, .. } if invocation == run => Some(agent.clone()),
        _ => None,
    });
    let known = feed.run(run).and_then(|record| record.agent.clone()).or(began);
    known.unwrap_or_else(|| AgentId::new("unknown").expect("the word has the form of an id"))
}

/// Whether it stands before the place at which the run was left, if it was.
fn is_before(said: &Said, left: Option<&LeftAt>) -> bool {
    let Some(LeftAt { step, whole }) = left else { return true };
    let (of, part, _) = said.rank;
    // What is told at the end of the step may tell of what ended the run.
    let last = if *whole { AFTER } else { ASKED };
    of < *step || (of == *step && part <= last)
}

type Found = (usize, u32, String, String, String);

fn differs(then: &[&Said], now: &[&Said]) -> Option<Found> {
    for at in 0..then.len().max(now.len()) {
        let (recorded, came) = (then.get(at), now.get(at));
        let place = |said: &Said| (said.at, said.rank.0);
        match (recorded, came) {
            (Some(recorded), Some(came)) if recorded.kind == came.kind => {
                if let Some((path, old, new)) = unlike(&recorded.value, &came.value) {
                    let (at, step) = place(recorded);
                    return Some((at, step, what(recorded.kind, &path), old, new));
                }
            }
            (Some(recorded), came) => {
                let (at, mut step) = place(recorded);
                step = came.map_or(step, |came| step.min(came.rank.0));
                let came = came.map_or_else(|| "nothing more".to_owned(), |came| came.told());
                return Some((at, step, "what happens next".into(), recorded.told(), came));
            }
            (None, Some(came)) => {
                let at = then.last().map_or(0, |last| last.at + 1);
                return Some((
                    at,
                    came.rank.0,
                    "what happens next".into(),
                    "nothing more".into(),
                    came.told(),
                ));
            }
            (None, None) => break,
        }
    }
    None
}

fn what(kind: &str, path: &str) -> String {
    match (kind, path) {
        ("request", "request_hash") => {
            "the request to the model: its system prompt, its tools or its messages (SHA-256)".into()
        }
        (kind, "") => format!("the {kind}"),
        (kind, path) => format!("the {kind}, `{path}`"),
    }
}

impl Said {
    fn told(&self) -> String {
        cut(&format!("{} {}", self.kind, self.value))
    }
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(SHOWN);
    if end < text.len() { format!("{}… ({} bytes)", &text[..end], text.len()) } else { text.to_owned() }
}

/// Where two values part, and what each has there.
fn unlike(old: &Value, new: &Value) -> Option<(String, String, String)> {
    let shown = |value: &Value| match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) => cut(text),
        value => cut(&value.to_string()),
    };
    let under = |key: String, (path, old, new): (String, String, String)| {
        let path = if path.is_empty() { key } else { format!("{key}.{path}") };
        (path, old, new)
    };
    match (old, new) {
        (Value::Object(olds), Value::Object(news)) => {
            let keys = olds.keys().chain(news.keys().filter(|key| !olds.contains_key(*key)));
            let none = Value::Null;
            keys.into_iter().find_map(|key| {
                let (old, new) = (olds.get(key).unwrap_or(&none), news.get(key).unwrap_or(&none));
                unlike(old, new).map(|found| under(key.clone(), found))
            })
        }
        (Value::Array(olds), Value::Array(news)) if olds.len() == news.len() => {
            let pairs = olds.iter().zip(news).enumerate();
            pairs
                .into_iter()
                .find_map(|(at, (old, new))| unlike(old, new).map(|found| under(at.to_string(), found)))
        }
        (Value::Number(one), Value::Number(other)) if one.is_f64() || other.is_f64() => {
            let (one, other) = (one.as_f64()?, other.as_f64()?);
            let apart = (one - other).abs() > CENTS * one.abs().max(other.abs()).max(1.0);
            apart.then(|| (String::new(), one.to_string(), other.to_string()))
        }
        (old, new) => (old != new).then(|| (String::new(), shown(old), shown(new))),
    }
}

/// What is compared of each run, in an order that does not depend on what ran at the same time.
fn by_run<'a>(entries: impl IntoIterator<Item = (usize, &'a Entry)>) -> HashMap<InvocationId, Vec<Said>> {
    let mut all: HashMap<InvocationId, Vec<Said>> = HashMap::new();
    let mut steps: HashMap<InvocationId, u32> = HashMap::new();
    let mut places: HashMap<String, (u32, u32)> = HashMap::new();
    for (at, entry) in entries {
        if let Entry::Step { invocation, step, .. } = entry {
            steps.insert(invocation.clone(), *step);
        }
        let run = entry.invocation();
        let current = steps.get(run).copied().unwrap_or_default();
        let list = all.entry(run.clone()).or_default();
        let seq = u32::try_from(list.len()).unwrap_or(u32::MAX);
        if let Entry::Asked { step, index, question, .. } = entry {
            places.insert(question.effect.to_string(), (*step, *index));
        }
        let asked = call_of(entry).and_then(|call| places.get(call.as_str())).copied();
        if let Some((part, index, kind, value)) = said(entry, seq, asked.unwrap_or_default().1) {
            let rank = match (entry, asked) {
                (Entry::End { .. }, _) => (END.0, END.1, 0),
                (Entry::Decided { .. }, Some((step, _))) => (step, part, index),
                (entry, _) => (step_of(entry).unwrap_or(current), part, index),
            };
            let call = call_of(entry).map(ToString::to_string).unwrap_or_default();
            list.push(Said { at, rank, call, kind, value });
        }
    }
    all.values_mut()
        .for_each(|list| list.sort_by(|one, other| (one.rank, &one.call).cmp(&(other.rank, &other.call))));
    all
}

/// What of a record is compared. Left out is what depends on the time, on the machine, on what ran beside it or on learned
/// estimates: times and latencies, numbers of attempts, what was set aside, whether use is an estimate, what people were shown
/// of an answer meanwhile, the order in which calls at the same time began and ended, and what a person was shown of a call.
fn said(entry: &Entry, seq: u32, asked: u32) -> Option<(u8, u32, &'static str, Value)> {
    let (part, index, kind, out): (u8, u32, &'static str, &[&str]) = match entry {
        Entry::Begin { .. } => (BEGIN, 0, "beginning", &["recipe"]),
        Entry::Step { .. } => (
            MODEL,
            seq,
            "request",
            &["attempt", "reserved_tokens", "reserved_usd", "unpriced", "bytes_per_token"],
        ),
        Entry::Answer { .. } => (MODEL, seq, "answer", &["told", "estimated"]),
        Entry::Failed { .. } => {
            (MODEL, seq, "failed attempt", &["attempt", "told", "estimated", "lost_tokens", "lost_usd"])
        }
        Entry::Compacted { .. } => (MODEL, seq, "compaction", &["told", "estimated"]),
        Entry::Intent { index, .. } => (CALL, *index, "tool call", &["waits"]),
        Entry::Asked { index, .. } => (ASKED, *index, "question", &[]),
        Entry::Decided { .. } => (DECIDED, asked, "decision", &[]),
        Entry::Result { index, .. } => (RESULT, *index, "result", &["elapsed_ms", "left", "kind"]),
        Entry::Note { .. } => (AFTER, seq, "note", &[]),
        Entry::Steered { .. } => (AFTER, seq, "message that was taken in", &[]),
        Entry::Told { event, .. } => {
            let value = told(event)?;
            return Some((TOLD, seq, "remark", value));
        }
        Entry::End { .. } => (END.1, 0, "end", &[]),
        Entry::Started { .. } | Entry::Tainted { .. } | Entry::Embedded { .. } => return None,
    };
    let mut value = serde_json::to_value(entry).unwrap_or_default();
    let fields = value.as_object_mut()?;
    for key in ["entry", "invocation"].iter().chain(out) {
        fields.remove(*key);
    }
    match entry {
        Entry::Asked { .. } => {
            without(fields.get_mut("question"), &["preview", "seal", "digest", "asked_ms", "expires_ms"])
        }
        // What an agent was asked that was closed before it began says when that was.
        Entry::Result { step: OUTSIDE, status: ToolStatus::Cancelled, .. } => mask(fields),
        Entry::End { response, .. } => {
            without(fields.get_mut("spend"), &["elapsed_ms"]);
            // How much of a limit was used depends on what ran beside it.
            if matches!(
                response.class,
                Some(FailureClass::Budget | FailureClass::Timeout | FailureClass::Cancelled)
            ) {
                let response = fields.get_mut("response").and_then(Value::as_object_mut);
                response.into_iter().for_each(mask);
            }
        }
        _ => {}
    }
    Some((part, index, kind, value))
}

/// The runs that were left, and those that they are a part of.
fn left_and_above(left: &HashMap<InvocationId, LeftAt>, feed: &Feed) -> HashSet<InvocationId> {
    let mut all = HashSet::new();
    for run in left.keys() {
        let mut at = Some(run.clone());
        // What is above one that is known is known, too.
        while let Some(run) = at.filter(|run| !all.contains(run)) {
            at = feed.run(&run).and_then(|record| record.parent.clone());
            all.insert(run);
        }
    }
    all
}

fn without_spending(said: &mut [Said]) {
    for end in said.iter_mut().filter(|said| said.kind == "end") {
        without(Some(&mut end.value), &["spend"]);
        without(end.value.get_mut("response"), &["tokens_used"]);
    }
}

fn without(value: Option<&mut Value>, keys: &[&str]) {
    if let Some(fields) = value.and_then(Value::as_object_mut) {
        keys.iter().for_each(|key| drop(fields.remove(*key)));
    }
}

/// Takes the numbers out of the texts of a response.
fn mask(response: &mut Map<String, Value>) {
    for key in ["content", "error"] {
        if let Some(Value::String(text)) = response.get_mut(key) {
            *text = without_numbers(text);
        }
    }
}

fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter.is_ascii_digit() || (letter == ',' && out.ends_with('#')) {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(letter),
        }
    }
    out
}

/// Limits of which a clock tells, or the caller of an agent that did not begin: there is no run of it to replay, and what the
/// call gave says the same.
const NOT_COMPARED: [&str; 3] = ["time_budget_ms", "max_depth", "max_invocations"];

/// What is compared of what is told: what the loop itself concludes from what it was fed.
fn told(event: &EventBody) -> Option<Value> {
    let kept = match event {
        EventBody::Diagnostic { code, message } => {
            let compared = ["context_elided", "context_summarised", "context_forced", "context_left_out"];
            let answers = ["answer_cut", "answer_filtered", "answer_declined"];
            let message = if compared.contains(&code.as_str()) {
                message.clone()
            } else if answers.contains(&code.as_str()) {
                without_numbers(message)
            } else {
                return None;
            };
            serde_json::json!({"code": code, "message": message})
        }
        EventBody::BudgetExceeded(used)
            if used.scope == LimitScope::Run && !NOT_COMPARED.contains(&used.limit.as_str()) =>
        {
            serde_json::json!({"limit": used.limit, "allowed": used.allowed})
        }
        EventBody::ItemUpdated { item: ItemKind::TodoList, delta, .. } => serde_json::json!({"plan": delta}),
        _ => return None,
    };
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_out_of_texts_and_nothing_else_is() {
        assert_eq!(without_numbers("1,234 of 5 ms, then 6"), "# of # ms, then #");
        assert_eq!(without_numbers("none"), "none");
    }

    #[test]
    fn the_place_in_which_two_values_part_is_named() {
        let (old, new) =
            (serde_json::json!({"a": [1, {"b": "x"}]}), serde_json::json!({"a": [1, {"b": "y"}], "c": 1}));
        let found = unlike(&old, &new).expect("they part");
        assert_eq!(found, ("a.1.b".into(), "x".into(), "y".into()));
        assert_eq!(unlike(&serde_json::json!(0.1), &serde_json::json!(0.1 + 1e-12)), None);
        let missing = unlike(&serde_json::json!({"a": 1}), &serde_json::json!({})).expect("one lacks it");
        assert_eq!(missing, ("a".into(), "1".into(), "nothing".into()));
    }
}
