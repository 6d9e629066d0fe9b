//! Turns that the loop ran, replayed from what it recorded of them.

mod spawned;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use drupe_agent::{
    Agent, AgentTool, Compaction, Definition, Entry, LoopAgent, MemoryJournal, Model, ModelEvent, ModelFault,
    ModelProfile, ModelRequest, Price, Recipe, Registered, RegistryBuilder, Steered, StopReason, Task, Tool,
    ToolContext, ToolError, ToolFuture, ToolOutput, TurnScope, refuse, run_turn, update_plan,
};
use drupe_extension_api::{FailureClass, SessionId, ToolCallRequest, ToolSpec, TurnId, Usage};
use futures_util::{StreamExt, future::BoxFuture, stream, stream::BoxStream};
use serde_json::{Value, json, value::RawValue};
use tokio_util::sync::CancellationToken;

use crate::{Recording, Replayed, RootContext, replay};

/// Answers from a list; asked for more, it never answers.
struct Script {
    profile: ModelProfile,
    answers: Mutex<VecDeque<Vec<ModelEvent>>>,
    /// Done when it is asked for more than it has, of which nothing comes then.
    used_up: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Model for Script {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        if request.sparing {
            return stream::iter(say("what came before, in short")).boxed();
        }
        match self.answers.lock().expect("no test panics here").pop_front() {
            Some(events) => stream::iter(events).boxed(),
            None => {
                let used_up = self.used_up.as_ref().expect("it is asked as often as it can answer");
                used_up();
                stream::pending().boxed()
            }
        }
    }
}

fn profile() -> ModelProfile {
    ModelProfile {
        name: "test/model".into(),
        context_window: 100_000,
        max_output_tokens: 1_000,
        price: Some(Price { written: 4.5, ..Price::flat(3.0, 0.3, 15.0) }),
        tools: true,
        images: true,
    }
}

fn script(answers: Vec<Vec<ModelEvent>>) -> Script {
    Script { profile: profile(), answers: Mutex::new(answers.into()), used_up: None }
}

fn done(stop: StopReason, input: u64, output: u64) -> ModelEvent {
    let usage =
        Usage { input_tokens: input, cached_tokens: input / 3, output_tokens: output, ..Usage::default() };
    ModelEvent::Done { usage: Some(usage), stop, model: "test/model".into() }
}

fn say(text: &str) -> Vec<ModelEvent> {
    vec![ModelEvent::Text(text.into()), done(StopReason::End, 100, 10)]
}

fn calls(all: &[(&str, Value)]) -> Vec<ModelEvent> {
    let call = |(at, (name, params)): (usize, &(&str, Value))| {
        let arguments = if params.is_null() { String::new() } else { params.to_string() };
        ModelEvent::ToolCall(ToolCallRequest { call_id: format!("c{at}"), name: (*name).into(), arguments })
    };
    let reasons = ModelEvent::Reasoning("I think".into());
    let all = all.iter().enumerate().map(call);
    [reasons].into_iter().chain(all).chain([done(StopReason::ToolCalls, 120, 20)]).collect()
}

/// A tool that gives its parameters back, so many times.
struct Echo(Arc<ToolSpec>, usize);

impl Tool for Echo {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn origin(&self) -> &str {
        "test"
    }

    fn call(&self, params: Box<RawValue>, _: ToolContext) -> ToolFuture<'_> {
        let text = params.get().repeat(self.1);
        Box::pin(async move {
            match text.contains("fail") {
                true => Err(ToolError::failed("it failed as it was told to")),
                false => Ok(ToolOutput::text(text)),
            }
        })
    }
}

fn echo(name: &str, times: usize, annotations: Value) -> Arc<Registered> {
    let spec = json!({
        "name": name, "description": format!("Gives back what {name} is given."), "annotations": annotations,
        "input_schema": {"type": "object", "properties": {"n": {"type": ["integer", "string"]}}, "additionalProperties": false},
    });
    let spec: ToolSpec = serde_json::from_value(spec).expect("a tool");
    Registered::new(Arc::new(Echo(Arc::new(spec), times))).expect("the schema is valid")
}

fn definition(id: &str, more: Value) -> Definition {
    let mut all = json!({"id": id, "instructions": "Work.", "models": ["test/model"]});
    let fields = all.as_object_mut().expect("an object");
    fields.extend(more.as_object().cloned().unwrap_or_default());
    serde_json::from_value(all).expect("a definition")
}

fn looping(
    definition: Definition,
    tools: Vec<Arc<Registered>>,
    model: Script,
    defer: usize,
) -> Arc<dyn Agent> {
    let mut builder = RegistryBuilder::default();
    builder.defer_above(defer);
    tools.into_iter().for_each(|tool| builder.add(tool).expect("names are unique"));
    builder.exclude("gone", "its extension is off");
    Arc::new(LoopAgent::new(definition, Arc::new(builder.build()), Arc::new(model), true))
}

/// A turn of that agent, and its recording.
struct Recorded {
    entries: Vec<Entry>,
    recording: Recording,
}

async fn recorded(
    agent: &Arc<dyn Agent>,
    scope: impl FnOnce(&mut TurnScope),
    cancel: CancellationToken,
) -> Recorded {
    let journal = Arc::new(MemoryJournal::default());
    let (session, turn): (SessionId, TurnId) = ("s".parse().expect("an id"), "t-1".parse().expect("an id"));
    let mut shared = TurnScope::new(session.clone(), turn.clone(), "do it".into(), journal.clone());
    scope(&mut shared);
    let most = shared.tool_response_max_bytes;
    let task = Task { notes: vec!["it is late".into()], ..Task::new("do it") };
    let limits = agent.limits().clone();
    let outcome = run_turn(Arc::new(shared), agent, task, &limits, cancel).await;
    let batches = journal.batches();
    let recipes = batches.iter().flat_map(|batch| batch.recipes.clone()).chain(outcome.last.recipes);
    let recipes = recipes.map(|kept| (kept.hash.to_string(), Recipe::read(&kept.json).expect("a recipe")));
    let recipes = recipes.collect();
    let mut entries: Vec<Entry> = batches.into_iter().flat_map(|batch| batch.entries).collect();
    entries.extend(outcome.last.entries);
    let recording = Recording {
        session,
        turn,
        correlation: None,
        message: "do it".into(),
        chain: Default::default(),
        at_ms: 0,
        starts: 1,
        entries: entries.clone(),
        recipes,
        roots: vec![RootContext::default()],
        client_tools: Vec::new(),
        tool_response_max_bytes: most,
    };
    Recorded { entries, recording }
}

/// What the records are, in short.
fn kinds(entries: &[Entry]) -> String {
    let short = |entry: &Entry| {
        let text = serde_json::to_string(entry).expect("a record has a form");
        text[..text.floor_char_boundary(300)].to_owned()
    };
    entries.iter().map(short).collect::<Vec<_>>().join("\n")
}

async fn is_the_same(what: &str, agent: Arc<dyn Agent>) -> Replayed {
    let Recorded { entries, recording } = recorded(&agent, |_| {}, CancellationToken::new()).await;
    let replayed = replay(recording).await;
    assert_eq!(replayed.difference, None, "{what}: {}", kinds(&entries));
    assert!(replayed.runs > 0, "{what}: {replayed:?}");
    replayed
}

fn plain(answers: Vec<Vec<ModelEvent>>, more: Value) -> Arc<dyn Agent> {
    let tools = vec![
        echo("alpha", 1, json!({"effect": "once"})),
        echo("beta", 1, json!({"read_only": true, "effect": "pure", "reads_untrusted": true})),
        update_plan::tool(),
        refuse::tool(),
    ];
    looping(definition("main", more), tools, script(answers), 40)
}

#[tokio::test]
async fn whatever_a_model_does_gives_the_same_again() {
    let retry = |class, message: &str, usage| ModelEvent::Retry {
        fault: ModelFault::fatal(class, message),
        model: "test/model".into(),
        next: "test/other".into(),
        usage,
    };
    let used = Some(Usage { input_tokens: 90, output_tokens: 3, ..Usage::default() });
    let failing = |last: Vec<ModelEvent>| {
        [
            vec![
                retry(FailureClass::Network, "no way", used),
                retry(FailureClass::RateLimit, "slower", None),
            ],
            last,
        ]
        .concat()
    };
    let again = || calls(&[("alpha", json!({"n": 1}))]);
    let cut = |stop| {
        vec![ModelEvent::Text("a half".into()), ModelEvent::Said("too much".into()), done(stop, 100, 1_000)]
    };
    let json_form = json!({"output": {"format": "json", "schema": {"type": "object", "required": ["a"]}}});
    let cases: Vec<(&str, Vec<Vec<ModelEvent>>, Value)> = vec![
        ("an answer", vec![say("fine")], json!({})),
        (
            "calls",
            vec![
                calls(&[("alpha", json!({"n": 1})), ("beta", Value::Null), ("alpha", json!({"n": "fail"}))]),
                say("fine"),
            ],
            json!({}),
        ),
        (
            "calls that do not run",
            vec![calls(&[("gone", json!({})), ("none", json!({})), ("alpha", json!({"x": 1}))]), say("fine")],
            json!({}),
        ),
        (
            "a plan",
            vec![
                calls(&[("update_plan", json!({"items": [{"step": "look", "status": "done"}]}))]),
                say("fine"),
            ],
            json!({}),
        ),
        ("a refusal", vec![calls(&[("refuse", json!({"reason": "not mine"}))])], json!({})),
        ("failed attempts", vec![failing(say("fine"))], json!({})),
        (
            "no answer",
            vec![failing(vec![ModelEvent::Failed(ModelFault::fatal(FailureClass::Model, "broken"))])],
            json!({}),
        ),
        (
            "an answer that was cut",
            vec![cut(StopReason::Length { dropped_calls: 0 }), say(" and the rest")],
            json!({}),
        ),
        ("an answer that was filtered", vec![cut(StopReason::Filter { dropped_calls: 1 })], json!({})),
        ("an answer that was declined", vec![cut(StopReason::Refusal { dropped_calls: 0 })], json!({})),
        ("an empty answer", vec![vec![done(StopReason::End, 10, 1)]], json!({})),
        ("the same over and over", vec![again(), again(), again(), again(), again()], json!({})),
        ("no JSON, and then some", vec![say("none"), say("{\"a\": 1}")], json_form.clone()),
        ("no JSON twice", vec![say("none"), say("none")], json_form),
        (
            "no further step",
            vec![calls(&[("alpha", json!({"n": 1}))]), again()],
            json!({"limits": {"max_turns": 1}}),
        ),
        (
            "no further call",
            vec![calls(&[("alpha", json!({"n": 1})), ("alpha", json!({"n": 2}))])],
            json!({"limits": {"max_tool_calls": 1}}),
        ),
        (
            "too many calls in a step",
            vec![calls(&[("alpha", json!({"n": 1})), ("alpha", json!({"n": 2}))]), say("fine")],
            json!({"limits": {"max_tool_calls_per_step": 1}}),
        ),
        ("no room for an answer", vec![say("fine")], json!({"limits": {"max_tokens_per_invocation": 20}})),
        ("no money", vec![again(), again()], json!({"limits": {"max_cost_usd": 0.001}})),
        (
            "one after another",
            vec![calls(&[("alpha", json!({"n": 1})), ("alpha", json!({"n": 2}))]), say("fine")],
            json!({"limits": {"parallel_tool_calls": 1}}),
        ),
    ];
    for (what, answers, more) in cases {
        is_the_same(what, plain(answers, more)).await;
    }
}

#[tokio::test]
async fn a_transcript_is_made_smaller_as_it_was() {
    // Bytes a token are learned meanwhile: what fits depends on that, too.
    let measured = |input| {
        vec![
            ModelEvent::Text("words ".repeat(120)),
            ModelEvent::ToolCall(ToolCallRequest {
                call_id: "c".into(),
                name: "long".into(),
                arguments: json!({"n": input}).to_string(),
            }),
            done(StopReason::ToolCalls, input, 20),
        ]
    };
    let mut hows = std::collections::BTreeSet::new();
    for window in [3_000, 4_000, 5_000, 7_000, 9_000] {
        let mut answers: Vec<Vec<ModelEvent>> = (1..8).map(|step| measured(600 + step * 140)).collect();
        answers.push(say("fine"));
        let model =
            Script { profile: ModelProfile { context_window: window, ..profile() }, ..script(answers) };
        let tools = vec![echo("long", 400, json!({"read_only": true, "effect": "pure"}))];
        let agent = looping(
            definition("main", json!({"limits": {"max_turns": 8, "max_tokens_per_invocation": 10_000_000}})),
            tools,
            model,
            40,
        );
        let Recorded { entries, recording } = recorded(&agent, |_| {}, CancellationToken::new()).await;
        hows.extend(entries.iter().filter_map(|entry| match entry {
            Entry::Compacted { compaction: Compaction::Elided { .. }, .. } => Some("elided"),
            Entry::Compacted { compaction: Compaction::Summarised { .. }, .. } => Some("summarised"),
            Entry::Compacted { compaction: Compaction::Forced, .. } => Some("forced"),
            _ => None,
        }));
        let replayed = replay(recording).await;
        assert_eq!(replayed.difference, None, "{window}: {}", kinds(&entries));
    }
    assert_eq!(hows.into_iter().collect::<Vec<_>>(), ["elided", "forced", "summarised"]);
}

#[tokio::test]
async fn agents_below_and_tools_that_are_looked_up_give_the_same_again() {
    let sub = |id: &str, answers| {
        looping(
            definition(id, json!({"context": ["a document"]})),
            vec![echo("alpha", 1, json!({}))],
            script(answers),
            40,
        )
    };
    let as_tool = |agent: Arc<dyn Agent>, name: &str| {
        let tool = AgentTool::new(agent, name.parse().expect("a name"), "Does a part.".into(), None);
        Registered::new(Arc::new(tool)).expect("the schema is valid")
    };
    let first = sub("first", vec![calls(&[("alpha", json!({"n": 1}))]), say("one")]);
    let second =
        sub("second", vec![vec![ModelEvent::Failed(ModelFault::fatal(FailureClass::Auth, "no key"))]]);
    let third = sub("third", vec![say("three")]);
    let tools = vec![
        as_tool(first, "agent_first"),
        as_tool(second, "agent_second"),
        as_tool(third, "agent_third"),
        echo("alpha", 1, json!({})),
    ];
    let answers = vec![
        calls(&[("search_tools", json!({"query": "part"}))]),
        calls(&[
            ("agent_first", json!({"task": "a"})),
            ("agent_second", json!({"task": "b", "context": "c"})),
            ("agent_third", json!({"task": "d"})),
            ("alpha", json!({})),
        ]),
        say("fine"),
    ];
    let main = looping(definition("main", json!({})), tools, script(answers), 2);
    let replayed = is_the_same("agents below", main).await;
    assert_eq!((replayed.runs, replayed.tool_calls), (4, 5), "{replayed:?}");
}

#[tokio::test]
async fn a_message_that_was_taken_in_is_taken_in_again() {
    let agent = plain(vec![calls(&[("alpha", json!({"n": 1}))]), say("fine")], json!({}));
    let steered = Steered {
        turn: "t-2".parse().expect("an id"),
        text: "and more".into(),
        strangers: Some("a page".into()),
    };
    let Recorded { entries, recording } =
        recorded(&agent, |scope| scope.steering.push(steered).expect("it is open"), CancellationToken::new())
            .await;
    assert!(entries.iter().any(|entry| matches!(entry, Entry::Steered { .. })));
    assert_eq!(replay(recording).await.difference, None, "{}", kinds(&entries));
}

#[tokio::test]
async fn what_was_stopped_is_replayed_up_to_there() {
    let cancel = CancellationToken::new();
    let stops = cancel.clone();
    let mut model = script(vec![calls(&[("alpha", json!({"n": 1}))])]);
    model.used_up = Some(Box::new(move || stops.cancel()));
    let agent = looping(definition("main", json!({})), vec![echo("alpha", 1, json!({}))], model, 40);
    let Recorded { entries, recording } = recorded(&agent, |_| {}, cancel).await;
    let replayed = replay(recording).await;
    assert_eq!((replayed.difference, replayed.steps), (None, 1), "{}", kinds(&entries));
    assert!(replayed.remarks[0].contains("up to where it was cancelled"), "{:?}", replayed.remarks);
}

/// Changes records of a turn with a call and an answer, and gives the first difference.
async fn altered(change: impl Fn(&mut Entry)) -> (Option<u32>, String, String, String) {
    let agent = plain(vec![calls(&[("alpha", json!({"n": 1}))]), say("fine")], json!({}));
    let Recorded { mut recording, .. } = recorded(&agent, |_| {}, CancellationToken::new()).await;
    recording.entries.iter_mut().for_each(change);
    let found = replay(recording).await.difference.expect("something differs");
    assert_eq!(found.agent.as_str(), "main");
    (found.step, found.what, found.recorded, found.now)
}

#[tokio::test]
async fn the_first_difference_is_named_by_step_and_field() {
    let (step, what, ..) = altered(|entry| {
        if let Entry::Result { content, .. } = entry {
            *content = "other".into();
        }
    })
    .await;
    assert_eq!(step, Some(2));
    assert!(what.starts_with("the request to the model"), "{what}");
    let (step, what, recorded, now) = altered(|entry| {
        if let Entry::End { response, .. } = entry {
            response.content = "well".into();
        }
    })
    .await;
    assert_eq!((step, what.as_str()), (None, "the end, `response.content`"));
    assert_eq!((recorded.as_str(), now.as_str()), ("well", "fine"));
    let (step, what, recorded, _) = altered(|entry| {
        if let Entry::Intent { index, .. } = entry {
            *index = 4;
        }
    })
    .await;
    assert_eq!((step, what.as_str(), recorded.as_str()), (Some(1), "the tool call, `index`", "4"));
    let (step, what, ..) = altered(|entry| {
        if let Entry::Step { step: 2, request_hash, .. } = entry {
            *request_hash = "0".repeat(64);
        }
    })
    .await;
    assert!(step == Some(2) && what.contains("SHA-256"), "{what}");
}

#[tokio::test]
async fn a_record_that_is_missing_and_one_too_many_are_differences() {
    let agent = plain(vec![calls(&[("alpha", json!({"n": 1}))]), say("fine")], json!({}));
    let Recorded { mut recording, .. } = recorded(&agent, |_| {}, CancellationToken::new()).await;
    let whole = recording.entries.clone();
    recording
        .entries
        .retain(|entry| !matches!(entry, Entry::Step { step: 2, .. } | Entry::Answer { step: 2, .. }));
    let found = replay(recording).await.difference.expect("the loop asks for more");
    assert_eq!((found.step, found.what.as_str()), (Some(2), "what happens next"), "{found:?}");
    assert!(found.now.starts_with("request"), "{found:?}");
    assert!(whole.len() > 5);
}

#[tokio::test]
async fn code_is_fed_as_a_whole_and_that_is_said() {
    let agent = plain(vec![say("fine")], json!({}));
    let Recorded { mut recording, .. } = recorded(&agent, |_| {}, CancellationToken::new()).await;
    recording.recipes.clear();
    let replayed = replay(recording).await;
    assert_eq!((replayed.runs, replayed.difference), (0, None));
    assert!(replayed.remarks[0].contains("`main` is code"), "{:?}", replayed.remarks);
}
