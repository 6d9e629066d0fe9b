//! Models that fail, one after the other: whatever they do, and wherever a process dies, what the turn has spent is the sum
//! of the records, of the rows of usage, and of the trace.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use drupe_agent::{
    Agent, Batch, Clock, Definition, EarlierTurn, Entry, Journal, JournalFault, LoopAgent, Model, ModelEvent,
    ModelFault, ModelProfile, ModelRequest, Price, RecordedTurn, Registered, RegistryBuilder, StopReason,
    Task, TurnOutcome, run_turn,
};
use drupe_extension_api::{
    EffectId, EventBody, FailureClass, Message, SessionId, Spend, ToolCallRequest, TurnId, Usage,
    control::{UsageBy, UsageQuery, UsageRow},
};
use drupe_journal::{Storage, Store, TurnRows};
use futures_util::{StreamExt, future::BoxFuture, stream, stream::BoxStream};
use proptest::prelude::*;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    door::{finish, inbound, scope, start, sums},
    fakes::{Paused, as_tool},
};
use crate::trace;

/// Models, and what they take. Whole numbers of tokens cost whole millionths.
const MODELS: [(&str, Option<Price>); 3] = [
    ("list/dear", Some(Price::flat(10.0, 10.0, 20.0))),
    ("list/cheap", Some(Price::flat(1.0, 1.0, 2.0))),
    ("list/unknown", None),
];

/// An attempt: its model, what the provider reports, and whether text came.
#[derive(Debug, Clone)]
struct Try {
    model: usize,
    reported: Option<(u64, u64)>,
    text: bool,
    class: FailureClass,
}

/// How a request ends after the attempts that failed.
#[derive(Debug, Clone)]
enum Last {
    /// With calls of the agent below, or the last answer where there is none.
    Answers(Try, usize),
    Fails(Try),
}

#[derive(Debug, Clone)]
struct Script {
    /// The requests of `main`, and those of `below`.
    agents: [Vec<(Vec<Try>, Last)>; 2],
    max_tokens: u64,
}

impl Try {
    fn usage(&self) -> Option<Usage> {
        self.reported.map(|(input_tokens, output_tokens)| Usage {
            input_tokens,
            output_tokens,
            ..Usage::default()
        })
    }

    fn name(&self) -> String {
        MODELS[self.model].0.to_owned()
    }

    fn text(&self) -> Option<ModelEvent> {
        self.text.then(|| ModelEvent::Text("some words of an answer".into()))
    }

    fn fault(&self) -> ModelFault {
        let fault = ModelFault::transient(self.class, "the line broke");
        if self.text { fault.began() } else { fault }
    }
}

/// What a request plays.
fn events((failed, last): &(Vec<Try>, Last)) -> Vec<ModelEvent> {
    let (Last::Answers(end, _) | Last::Fails(end)) = last;
    let mut events = Vec::new();
    for (at, attempt) in failed.iter().enumerate() {
        let next = failed.get(at + 1).unwrap_or(end).name();
        events.extend(attempt.text());
        let (fault, model, usage) = (attempt.fault(), attempt.name(), attempt.usage());
        events.push(ModelEvent::Retry { fault, model, next, usage });
    }
    events.extend(end.text());
    match last {
        Last::Fails(end) => events.push(ModelEvent::Failed(end.fault().with_usage(end.usage()))),
        Last::Answers(end, calls) => {
            events.extend((0..*calls).map(|at| {
                let (call_id, name) = (format!("c{at}"), "agent_below".to_owned());
                ModelEvent::ToolCall(ToolCallRequest { call_id, name, arguments: r#"{"task":"go"}"#.into() })
            }));
            let stop = if *calls > 0 { StopReason::ToolCalls } else { StopReason::End };
            events.push(ModelEvent::Done { usage: end.usage(), stop, model: end.name() });
        }
    }
    events
}

/// Plays the n-th request of an agent to one that holds n answers; after them, an answer.
struct Tries {
    profile: ModelProfile,
    script: Script,
}

impl Model for Tries {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn price_of(&self, model: &str) -> Option<Price> {
        MODELS.iter().find(|(name, _)| *name == model).and_then(|(_, price)| *price)
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let answers = request.messages.iter().filter(|m| matches!(***m, Message::Assistant { .. })).count();
        let script = &self.script.agents[usize::from(request.agent.id.as_str() == "below")];
        let done = || {
            let usage = Some(Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() });
            let done = ModelEvent::Done { usage, stop: StopReason::End, model: MODELS[0].0.into() };
            vec![ModelEvent::Text("done".into()), done]
        };
        stream::iter(script.get(answers).map_or_else(done, events)).boxed()
    }
}

/// A journal that records so many commits and no more, as for a process that dies.
struct Dies(Store, AtomicUsize);

impl Journal for Dies {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), JournalFault>> {
        let left = self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        match left {
            Ok(_) => self.0.commit(batch),
            Err(_) => Box::pin(std::future::ready(Err(JournalFault("it is dead".into())))),
        }
    }

    fn output(
        &self,
        session: SessionId,
        effect: EffectId,
    ) -> BoxFuture<'_, Result<Option<String>, JournalFault>> {
        self.0.output(session, effect)
    }

    fn image(&self, hash: String) -> BoxFuture<'_, Result<Option<Vec<u8>>, JournalFault>> {
        self.0.image(hash)
    }

    fn earlier(
        &self,
        session: SessionId,
        words: Vec<String>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<EarlierTurn>, JournalFault>> {
        self.0.earlier(session, words, most)
    }
}

fn agent(script: &Script) -> Arc<dyn Agent> {
    let profile = ModelProfile {
        name: MODELS[0].0.into(),
        context_window: 1_000_000,
        max_output_tokens: 100,
        price: MODELS[0].1,
        tools: true,
        images: true,
    };
    let model: Arc<dyn Model> = Arc::new(Tries { profile, script: script.clone() });
    let looping = |id: &str, max_tokens, tools: Vec<Arc<Registered>>| -> Arc<dyn Agent> {
        let definition = json!({"id": id, "name": id, "instructions": "Work."});
        let mut definition: Definition = serde_json::from_value(definition).expect("a definition");
        definition.limits.max_tokens_per_invocation = max_tokens;
        let mut builder = RegistryBuilder::default();
        tools.into_iter().for_each(|tool| builder.add(tool).expect("names are unique"));
        Arc::new(LoopAgent::new(definition, Arc::new(builder.build()), Arc::clone(&model), false))
    };
    let below = looping("below", 1_000_000, Vec::new());
    looping("main", script.max_tokens, vec![as_tool(&below)])
}

/// Runs a turn in a process that dies after so many commits, and then in another one; the journal, the turn, and whether
/// the first did not live to its end.
async fn run(script: &Script, commits: usize) -> (Store, TurnId, bool) {
    let (clock, agent, inbound) = (Paused::new(), agent(script), inbound("1", "do it"));
    let storage = (&Storage::Memory, Arc::clone(&clock) as Arc<dyn Clock>);
    let store = Store::open(storage.0, storage.1, Arc::new(|_| ())).expect("a journal in memory opens");
    let turn = store.accept(inbound.clone()).await.expect("it is accepted").turn;
    let process = async |left: usize, records: RecordedTurn| {
        start(&store, &turn, Vec::new()).await;
        let mut scope = scope(&store, &turn, &clock, &inbound);
        let journal = Arc::new(Dies(store.clone(), AtomicUsize::new(left)));
        (scope.journal, scope.records) = (Arc::clone(&journal) as Arc<dyn Journal>, records.into());
        let limits = agent.limits().clone();
        let run = run_turn(Arc::new(scope), &agent, Task::new("do it"), &limits, CancellationToken::new());
        let outcome = run.await;
        let lives = journal.1.load(Ordering::Relaxed) > 0;
        lives.then_some(outcome)
    };
    let first = process(commits, RecordedTurn::default()).await;
    let died = first.is_none();
    let outcome = match first {
        Some(outcome) => outcome,
        None => {
            let resumed = store.resume(&turn).await.expect("items are closed");
            process(usize::MAX, resumed.recorded).await.expect("the journal records")
        }
    };
    let TurnOutcome { response, spend, last, .. } = outcome;
    finish(&store, response, spend, last).await;
    (store, turn, died)
}

/// Calls, tokens, lost and unpriced tokens, and millionths of a dollar.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Sum {
    calls: u64,
    usage: Usage,
    lost: u64,
    unpriced: u64,
    micros: i64,
}

impl Sum {
    fn add(&mut self, calls: u64, usage: Usage, cost_usd: Option<f64>) {
        self.calls += calls;
        self.usage += usage;
        self.unpriced += if cost_usd.is_none() { usage.total() } else { 0 };
        self.micros += micros(cost_usd.unwrap_or(0.0));
    }
}

fn micros(usd: f64) -> i64 {
    (usd * 1e6).round() as i64
}

/// What the records say of each model.
fn recorded(rows: &TurnRows) -> BTreeMap<String, Sum> {
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for (_, entry) in &rows.entries {
        match entry {
            Entry::Answer { model, usage, cost_usd, .. } => {
                sums.entry(model.clone()).or_default().add(1, *usage, *cost_usd);
            }
            Entry::Failed { model, usage, cost_usd, lost_tokens, lost_usd, repeated, .. } => {
                let sum = sums.entry(model.clone()).or_default();
                sum.add(u64::from(!repeated), *usage, *cost_usd);
                sum.unpriced += lost_unpriced(entry);
                (sum.lost, sum.micros) = (sum.lost + lost_tokens, sum.micros + micros(*lost_usd));
            }
            _ => {}
        }
    }
    sums.retain(|_, sum| *sum != Sum::default());
    sums
}

/// Tokens that were lost and whose price is not known.
fn lost_unpriced(entry: &Entry) -> u64 {
    match entry {
        Entry::Failed { cost_usd: None, lost_tokens, .. } => *lost_tokens,
        _ => 0,
    }
}

/// What the events tell of each model: what is lost they do not.
fn told(rows: &TurnRows) -> BTreeMap<String, (Usage, u64)> {
    let mut sums: BTreeMap<String, (Usage, u64)> = BTreeMap::new();
    for event in &rows.events {
        if let EventBody::ModelAttempt { model, usage, cost_usd, .. } = &event.body {
            let (sum, unpriced) = sums.entry(model.clone()).or_default();
            *sum += *usage;
            *unpriced += if cost_usd.is_none() { usage.total() } else { 0 };
        }
    }
    sums.retain(|_, (sum, _)| sum.total() > 0);
    sums
}

async fn counted(store: &Store, by: UsageBy) -> BTreeMap<String, Sum> {
    let rows = store.usage(UsageQuery { by, ..UsageQuery::default() }).await.expect("it reads");
    let sum = |row: UsageRow| {
        let (lost, unpriced) = (row.lost_tokens, row.unpriced_tokens);
        (row.key, Sum { calls: row.calls, usage: row.usage, lost, unpriced, micros: micros(row.cost_usd) })
    };
    rows.into_iter().map(sum).collect()
}

/// Runs the script in a process that dies after so many commits; whether it died before the end.
async fn check(script: &Script, commits: usize) -> bool {
    let (store, turn, died) = run(script, commits).await;
    let rows = store.turn_rows(&turn).await.expect("it reads").expect("the turn is there");
    let by_model = recorded(&rows);
    let mut all = Sum::default();
    for of in by_model.values() {
        all.usage += of.usage;
        all.calls += of.calls;
        (all.lost, all.unpriced) = (all.lost + of.lost, all.unpriced + of.unpriced);
        all.micros += of.micros;
    }
    let lost = |of: &str| -> u64 {
        let entries = rows.entries.iter().map(|(_, entry)| entry);
        let by = |entry: &&Entry| matches!(entry, Entry::Failed { model, .. } if model == of);
        entries.filter(by).map(lost_unpriced).sum()
    };
    let used = |(model, of): (&String, &Sum)| {
        (of.usage.total() > 0).then(|| (model.clone(), (of.usage, of.unpriced - lost(model))))
    };
    assert_eq!(by_model.iter().filter_map(used).collect::<BTreeMap<_, _>>(), told(&rows));
    assert_eq!(counted(&store, UsageBy::Model).await, by_model, "died after {commits}");
    for by in [UsageBy::Day, UsageBy::Session] {
        assert_eq!(
            counted(&store, by).await.into_values().collect::<Vec<_>>(),
            [all],
            "died after {commits}"
        );
    }
    let spend: Spend = rows.spend.expect("it has ended");
    assert_eq!(spend.usage, all.usage, "died after {commits}");
    let unpriced = all.unpriced - by_model.keys().map(|model| lost(model)).sum::<u64>();
    assert_eq!(spend.cost_usd.is_none(), unpriced > 0, "died after {commits}");
    let known = rows.entries.iter().filter_map(|(_, entry)| match entry {
        Entry::Answer { cost_usd, .. } | Entry::Failed { cost_usd, .. } => *cost_usd,
        _ => None,
    });
    let known = micros(known.sum());
    assert!(spend.cost_usd.is_none_or(|usd| micros(usd) == known), "{spend:?} is not {known}");
    let traced = trace(&rows);
    sums(&traced.nodes);
    assert_eq!(traced.nodes[0].usage, Some(all.usage), "died after {commits}");
    died
}

fn tries() -> impl Strategy<Value = Try> {
    let class =
        prop_oneof![Just(FailureClass::Network), Just(FailureClass::RateLimit), Just(FailureClass::Model)];
    let reported = prop::option::of((0..2_000_u64, 0..200_u64));
    (0..MODELS.len(), reported, any::<bool>(), class).prop_map(|(model, reported, text, class)| Try {
        model,
        reported,
        text,
        class,
    })
}

fn requests(calls: usize) -> impl Strategy<Value = Vec<(Vec<Try>, Last)>> {
    let last = prop_oneof![
        4 => (tries(), 0..=calls).prop_map(|(last, calls)| Last::Answers(last, calls)),
        1 => tries().prop_map(Last::Fails),
    ];
    prop::collection::vec((prop::collection::vec(tries(), 0..3), last), 0..3)
}

fn scripts() -> impl Strategy<Value = Script> {
    let max_tokens = prop_oneof![3 => Just(1_000_000), 1 => 500..6_000_u64];
    (requests(2), requests(0), max_tokens)
        .prop_map(|(main, below, max_tokens)| Script { agents: [main, below], max_tokens })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_a_turn_spends_is_the_sum_of_its_records_wherever_a_process_dies(script in scripts()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut commits = 0;
            while check(&script, commits).await {
                commits += 1;
            }
        });
    }
}
