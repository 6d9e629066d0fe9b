//! The door: a turn with a fault in the real loop and a real journal, and what holds for whatever is told of it.

use std::{collections::HashMap, sync::Arc};

use drupe_agent::{Agent, Batch, Clock, Steered, Task, TurnScope, ids, run_turn};
use drupe_extension_api::{
    AgentRef, AgentResponse, CorrelationId, EventBody, Preview, SessionId, Spend, TurnId,
    control::{CallKind, Explanation, TraceNode, TurnTrace},
    wire::Submit,
};
use drupe_journal::{Inbound, Origin, Outbound, Storage, Store, TurnDone, TurnRows, TurnStart};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::fakes::Paused;
use crate::{trace, why_call, why_run, why_turn};

/// A turn to run.
pub struct Fault {
    pub agent: Arc<dyn Agent>,
    pub inbound: Inbound,
    /// By what the agent was chosen.
    pub selected: Option<&'static str>,
    pub scope: Box<dyn FnOnce(&mut TurnScope)>,
    pub cancel: CancellationToken,
    /// A further message that comes while it runs.
    pub steered: Option<&'static str>,
    /// After how many milliseconds the process ends, for the next one to go on.
    pub dies_after: Option<u64>,
}

pub fn session() -> SessionId {
    SessionId::new("s").expect("a valid id")
}

pub fn inbound(external_id: &str, text: &str) -> Inbound {
    let ask = Submit { channel: "test".into(), ..Submit::new(session(), external_id, text) };
    Inbound::new(ask, Origin::OPERATOR)
}

impl Fault {
    pub fn of(agent: Arc<dyn Agent>) -> Self {
        Self {
            agent,
            inbound: inbound("1", "do it"),
            selected: None,
            scope: Box::new(|_| ()),
            cancel: CancellationToken::new(),
            steered: None,
            dies_after: None,
        }
    }

    pub fn scope(self, change: impl FnOnce(&mut TurnScope) + 'static) -> Self {
        Self { scope: Box::new(change), ..self }
    }

    /// Runs it in a new journal; gives the journal and the turn.
    pub async fn run(self) -> (Store, TurnId) {
        let clock = Paused::new();
        let store = Store::open(&Storage::Memory, Arc::clone(&clock) as Arc<dyn Clock>, Arc::new(|_| ()))
            .expect("a journal in memory opens");
        let turn = store.accept(self.inbound.clone()).await.expect("it is accepted").turn;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        let input = Preview::of(&self.inbound.ask.text);
        let mut events = vec![(None, EventBody::TurnStarted { input })];
        if let Some(by) = self.selected {
            events.push((None, EventBody::SubagentSelected { by: by.into() }));
        }
        start(&store, &turn, events).await;
        let mut scope = scope(&store, &turn, &clock, &self.inbound);
        if let Some(text) = self.steered {
            let later = store.accept(inbound("2", text)).await.expect("it is accepted").turn;
            let pushed = scope.steering.push(Steered { turn: later, text: text.into(), strangers: None });
            assert_eq!(pushed, Ok(()));
        }
        (self.scope)(&mut scope);
        let limits = self.agent.limits().clone();
        let task = || Task::new(self.inbound.ask.text.as_str());
        let run = run_turn(Arc::new(scope), &self.agent, task(), &limits, self.cancel.clone());
        let outcome = match self.dies_after {
            None => run.await,
            Some(ms) => {
                let died = tokio::time::timeout(std::time::Duration::from_millis(ms), run).await;
                assert!(died.is_err(), "the turn ended before the process did");
                let resumed = store.resume(&turn).await.expect("items are closed");
                start(&store, &turn, Vec::new()).await;
                let mut again = self::scope(&store, &turn, &clock, &self.inbound);
                again.records = resumed.recorded.into();
                run_turn(Arc::new(again), &self.agent, task(), &limits, self.cancel).await
            }
        };
        finish(&store, outcome.response, outcome.spend, outcome.last).await;
        (store, turn)
    }
}

pub async fn start(store: &Store, turn: &TurnId, events: Vec<(Option<AgentRef>, EventBody)>) {
    let start = TurnStart {
        turn: turn.clone(),
        session: session(),
        root: ids::root_invocation(turn),
        correlation: CorrelationId::new("c").expect("a valid id"),
        events,
    };
    store.start_turn(start).await.expect("it begins");
}

pub fn scope(store: &Store, turn: &TurnId, clock: &Arc<Paused>, inbound: &Inbound) -> TurnScope {
    let journal = Arc::new(store.clone());
    let mut scope = TurnScope::new(session(), turn.clone(), inbound.ask.text.clone(), journal);
    scope.clock = Arc::clone(clock) as Arc<dyn Clock>;
    scope.chain = inbound.chain.clone();
    scope
}

/// Ends a turn as the kernel does.
pub async fn finish(store: &Store, response: AgentResponse, spend: Spend, last: Batch) {
    let (status, error, class) = (response.status, response.error.clone(), response.class);
    let completed = EventBody::TurnCompleted { status, error, class, spend };
    let outbox = Outbound { channel: "test".into(), address: None, text: response.content.clone() };
    let done = TurnDone {
        conversation: None,
        snapshot: None,
        summary: None,
        response,
        spend,
        diagnostics: Vec::new(),
        outbox: Some(outbox),
        copies: Vec::new(),
        last,
        events: vec![(None, completed)],
        start: None,
        ratios: Vec::new(),
    };
    store.finish_turn(done).await.expect("it ends");
}

/// What is told of the turn has these fragments in its sentences, in whatever order, and cites these tables.
pub async fn check(fault: Fault, fragments: &[&str], tables: &[&str]) -> Explanation {
    told(&rows(fault).await, fragments, tables)
}

/// Runs it; everything that is recorded of it.
pub async fn rows(fault: Fault) -> TurnRows {
    let (store, turn) = fault.run().await;
    store.turn_rows(&turn).await.expect("it reads").expect("the turn is there")
}

/// The same of a turn that has run.
pub fn told(rows: &TurnRows, fragments: &[&str], tables: &[&str]) -> Explanation {
    let now = Timestamp::from_millisecond(super::fakes::NOON_MS + 3_600_000).expect("a time");
    let told = why_turn(rows, now);
    holds(rows, &told);
    let all = told.sentences.join("\n");
    for fragment in fragments {
        let said =
            all.contains(fragment) || told.remedy.as_ref().is_some_and(|remedy| remedy.contains(fragment));
        assert!(said, "`{fragment}` is not in:\n{all}\nremedy: {:?}", told.remedy);
    }
    for table in tables {
        assert!(told.cited.iter().any(|c| c.table == *table), "`{table}` is not cited: {:#?}", told.cited);
    }
    traced(rows, &trace(rows));
    for cut in cuts(rows) {
        let (told, traced) = (why_turn(&cut, now), trace(&cut));
        holds(&cut, &told);
        sums(&traced.nodes);
        for (_, entry) in &cut.entries {
            holds(&cut, &why_run(&cut, entry.invocation(), now).expect("the run is there"));
            if let drupe_agent::Entry::Intent { effect, .. } = entry {
                holds(&cut, &why_call(&cut, effect, now).expect("the call is there"));
            }
        }
    }
    told
}

/// What holds for every explanation: it says something, and the rows that it names are there.
pub fn holds(rows: &TurnRows, told: &Explanation) {
    assert!(!told.sentences.is_empty() && !told.cited.is_empty(), "{told:#?}");
    for sentence in &told.sentences {
        assert!(sentence.ends_with(['.', '!', '?', '…']), "no sentence: {sentence}");
        assert!(sentence.len() < 1_500, "too long: {sentence}");
    }
    for row in &told.cited {
        let there = match row.table.as_str() {
            "turns" => row.key == rows.turn.as_str(),
            "entries" => rows.entries.iter().any(|(number, _)| number.to_string() == row.key),
            "events" => rows.events.iter().any(|e| format!("{}/{}", e.session, e.seq) == row.key),
            "recipes" => rows.recipes.contains_key(&row.key),
            "outbox" => rows.deliveries.iter().any(|d| d.number.to_string() == row.key),
            other => panic!("no row of a turn is in `{other}`"),
        };
        assert!(there && !row.says.is_empty(), "{row:?}");
    }
}

/// What holds for the trace of a turn that has ended.
fn traced(rows: &TurnRows, trace: &TurnTrace) {
    sums(&trace.nodes);
    let mut seen: HashMap<CallKindName, u32> = HashMap::new();
    walk(&trace.nodes, &mut |node| {
        *seen.entry(kind(node)).or_default() += 1;
        if rows.finished.is_some() && node.kind != CallKind::Note {
            assert!(node.outcome.is_some(), "it has no end: {node:#?}");
        }
        assert!(node.kind == CallKind::Note || !node.path.is_empty(), "it has no path: {node:#?}");
    });
    let Some(root) = trace.nodes.first().filter(|node| node.kind == CallKind::Run) else { return };
    let spend = rows.spend.expect("it has ended");
    assert_eq!(seen.get("run").copied().unwrap_or(0), spend.invocations, "runs");
    assert_eq!(root.usage, Some(spend.usage), "the root's tokens are the turn's");
    assert_eq!(root.cost_usd.is_some(), spend.cost_usd.is_some_and(|usd| usd > 0.0), "costs");
}

type CallKindName = &'static str;

fn kind(node: &TraceNode) -> CallKindName {
    match node.kind {
        CallKind::Run => "run",
        CallKind::Model => "model",
        CallKind::Tool => "tool",
        CallKind::Note => "note",
    }
}

pub fn walk(nodes: &[TraceNode], see: &mut impl FnMut(&TraceNode)) {
    for node in nodes {
        see(node);
        walk(&node.nodes, see);
    }
}

/// The figures of each run are those of the attempts in and below it.
pub fn sums(nodes: &[TraceNode]) {
    walk(nodes, &mut |node| {
        if node.kind != CallKind::Run {
            return;
        }
        let mut usage = drupe_extension_api::Usage::default();
        let mut usd = 0.0;
        walk(&node.nodes, &mut |below| {
            if below.kind == CallKind::Model {
                usage += below.usage.unwrap_or_default();
                usd += below.cost_usd.unwrap_or(0.0);
            }
        });
        assert_eq!(node.usage, Some(usage), "{}", node.id);
        if let Some(sum) = node.cost_usd {
            assert!((sum - usd).abs() < 1e-9, "{}: {sum} is not {usd}", node.id);
        }
    });
}

/// The turn as it stood after each of its records, as long as it ran.
fn cuts(rows: &TurnRows) -> Vec<TurnRows> {
    let of = |entries: usize, events: usize| TurnRows {
        entries: rows.entries[..entries].to_vec(),
        events: rows.events[..events].to_vec(),
        deliveries: Vec::new(),
        finished: None,
        response: None,
        spend: None,
        ..rows.clone()
    };
    let (entries, events) = (rows.entries.len(), rows.events.len());
    (0..=entries)
        .map(|n| of(n, events * n / entries.max(1)))
        .chain((0..=events).map(|n| of(entries, n)))
        .collect()
}
