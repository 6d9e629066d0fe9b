//! Faults on the wire under the limits that a run has by default: each is repeated, and charged what is known of it.

use std::{collections::BTreeSet, sync::Arc};

use drupe_agent::{
    Agent, Definition, Entry, LoopAgent, MemoryJournal, Model, RegistryBuilder, Task, TurnOutcome, TurnScope,
    run_turn,
};
use drupe_extension_api::{DefinitionLimits, FailureClass, ResponseStatus};
use drupe_models::ProfileSettings;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    door::{KINDS, Kind, sized},
    faults::repeatable,
    script::{self, hello},
    server::{Act, Server},
};

/// Bytes of a system prompt as large as an orchestrator's.
const PROMPT: usize = 8_600;

/// Each bound on an answer that the shipped table has, with the kind of its provider and the least window beside it, and
/// that of models of which nothing is known.
fn shipped() -> BTreeSet<(u64, u64, &'static str)> {
    let text = include_str!("../../../../config/models.yaml");
    let table: Value = serde_yaml::from_str(text).unwrap();
    let number = |model: &Value, key: &str| model.get(key).and_then(Value::as_u64);
    let of = |model: &Value| {
        let kind = match model["provider"].as_str().unwrap() {
            "anthropic" => Kind::Messages,
            "gemini" => Kind::Gemini,
            _ => Kind::Responses,
        };
        Some((number(model, "max_output_tokens")?, number(model, "context_window")?, kind.name()))
    };
    let models = table["models"].as_array().unwrap();
    let unknown = KINDS.map(|kind| (4_096, 32_768, kind.name()));
    models.iter().filter_map(of).chain(unknown).chain([(128_000, 400_000, Kind::Chat.name())]).collect()
}

/// A turn of one agent with the limits of a definition that names none.
pub async fn turn(model: Arc<dyn Model>) -> (TurnOutcome, Vec<Entry>) {
    let definition = json!({"id": "main", "name": "main", "instructions": "x".repeat(PROMPT)});
    let definition: Definition = serde_json::from_value(definition).unwrap();
    assert_eq!(definition.limits, DefinitionLimits::default());
    let limits = definition.limits.clone();
    let tools = Arc::new(RegistryBuilder::default().build());
    let agent: Arc<dyn Agent> = Arc::new(LoopAgent::new(definition, tools, model, true));
    let journal = Arc::new(MemoryJournal::default());
    let (session, id) = ("s".parse().unwrap(), "t".parse().unwrap());
    let scope = Arc::new(TurnScope::new(session, id, "hi".into(), journal.clone()));
    let running = run_turn(scope, &agent, Task::new("hi"), &limits, CancellationToken::new());
    let outcome = running.await;
    let committed = journal.batches().into_iter().flat_map(|batch| batch.entries);
    let entries = committed.chain(outcome.last.entries.clone()).collect();
    (outcome, entries)
}

/// Tokens that each failed attempt was charged, and those that were lost.
fn charged(entries: &[Entry]) -> Vec<(u64, u64)> {
    let failed = entries.iter().filter_map(|entry| match entry {
        Entry::Failed { usage, lost_tokens, .. } => Some((usage.total(), *lost_tokens)),
        _ => None,
    });
    failed.collect()
}

/// Plays a fault and then a good answer; what is wrong, and a line of the table.
async fn play(kind: Kind, (output, window): (u64, u64), (name, act): (&str, Act)) -> (bool, String) {
    let server = Server::start(vec![act, script::stream(&hello(kind))]).await;
    let profile = ProfileSettings {
        context_window: Some(window),
        max_output_tokens: u32::try_from(output).ok(),
        ..ProfileSettings::default()
    };
    let (outcome, entries) = turn(sized(kind, &server, profile)).await;
    let (attempts, charged) = (server.requests().len(), charged(&entries));
    let response = &outcome.response;
    let line = format!(
        "{:<12} {output:>7} {name:<48} {attempts} {:<8} {:<8} {charged:?}",
        kind.name(),
        json!(response.status),
        json!(response.class),
    );
    // The request is about a third as many tokens as bytes; no fault sends more than a few words of an answer.
    let known = charged.iter().all(|(tokens, lost)| *tokens < PROMPT as u64 / 3 + 300 && *lost == 0);
    (response.status == ResponseStatus::Success && attempts == 2 && charged.len() == 1 && known, line)
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the table is for whoever reads the output")]
async fn whatever_the_model_each_fault_is_repeated_within_the_limits_that_a_run_has_by_default() {
    let cases = shipped().into_iter().flat_map(|(output, window, name)| {
        let kind = KINDS.into_iter().find(|kind| kind.name() == name).unwrap();
        // To read so much more for each model says nothing about its budget.
        let faults = repeatable(kind).into_iter().filter(|(_, act)| !matches!(act, Act::Flood(_)));
        faults.map(move |fault| play(kind, (output, window), fault))
    });
    let played: Vec<_> = stream::iter(cases).buffered(24).collect().await;
    println!("{:<12} {:>7} {:<48} attempts, status, class, charged and lost", "kind", "answer", "fault");
    let wrong: Vec<_> = played.iter().filter(|(right, _)| !right).map(|(_, line)| line.as_str()).collect();
    played.iter().for_each(|(_, line)| println!("{line}"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_fault_that_does_not_pass_ends_as_its_class_after_all_attempts_and_is_charged_for_each() {
    for kind in KINDS {
        let server = Server::start(vec![Act::Silence; 3]).await;
        let wide = ProfileSettings {
            context_window: Some(400_000),
            max_output_tokens: Some(128_000),
            ..ProfileSettings::default()
        };
        let (outcome, entries) = turn(sized(kind, &server, wide)).await;
        assert_eq!(outcome.response.class, Some(FailureClass::Timeout), "{}", outcome.response.content);
        assert_eq!(server.requests().len(), 3, "{}", kind.name());
        let charged = charged(&entries);
        assert_eq!(charged.len(), 3);
        assert!(
            charged.iter().all(|(tokens, lost)| (2_000..3_200).contains(tokens) && *lost == 0),
            "{charged:?}"
        );
        let sum: u64 = charged.iter().map(|(tokens, _)| tokens).sum();
        assert_eq!(outcome.spend.usage.total(), sum);
    }
}
