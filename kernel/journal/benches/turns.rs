//! What the journal costs a turn: CPU time of all threads, for each kind of turn and each durability.
//!
//! `cargo bench -p drupe-journal --bench turns [-- memory|process|full|echo|tool|delegate …]`. Nothing but the journal
//! works here: the records of a turn come one after another, as the loop commits them.

#![expect(clippy::unwrap_used, reason = "a program for developers ends by panicking")]
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::{fs, path::Path, sync::Arc, time::Instant};

use drupe_agent::{Attempted, Batch, Entry, Journal, ManualClock, ShownAnswer};
use drupe_extension_api::{
    AgentRef, AgentResponse, EffectClass, EffectId, EventBody, InvocationId, Message, Preview,
    ResponseStatus, SessionId, Spend, ToolCallRequest, ToolStatus, TurnId, Usage, wire::Submit,
};
use drupe_journal::{Inbound, Origin, Storage, Store, ToldTurns, TurnDone, TurnStart};
use futures_util::future::join_all;

const QUESTION: &str = "what do you think of the weather?";
const ANSWER: &str = "An answer of a usual length, that says something about it.";

/// Turns of one session, before another begins.
const TURNS_OF_A_SESSION: usize = 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Echo,
    Tool,
    Delegate,
}

/// One run of an agent, and the records that it makes.
struct Run {
    id: InvocationId,
    place: AgentRef,
}

impl Run {
    fn new(turn: &TurnId, agent: &str, parent: Option<&Run>) -> Self {
        let id = InvocationId::new(format!("i-{turn}-{agent}")).unwrap();
        let depth = u32::from(parent.is_some());
        let parent = parent.map(|run| run.id.clone());
        let place = AgentRef { id: agent.parse().unwrap(), invocation: id.clone(), parent, depth };
        Self { id, place }
    }

    fn begin(&self) -> Entry {
        Entry::Begin {
            invocation: self.id.clone(),
            agent: self.place.id.clone(),
            parent: self.place.parent.clone(),
            depth: self.place.depth,
            task: QUESTION.into(),
            recipe: None,
        }
    }

    fn step(&self, step: u32) -> Entry {
        Entry::Step {
            invocation: self.id.clone(),
            step,
            attempt: 1,
            model: "mock/echo".into(),
            request_hash: "0".repeat(64),
            reserved_tokens: 5000,
            reserved_usd: 0.05,
            unpriced: false,
            bytes_per_token: None,
            shown: true,
        }
    }

    fn answer(&self, step: u32, tool: Option<&str>) -> Entry {
        let call = |name: &str| ToolCallRequest {
            call_id: "call_0123456789".into(),
            name: name.into(),
            arguments: r#"{"key":"alpha"}"#.into(),
        };
        Entry::Answer {
            invocation: self.id.clone(),
            step,
            message: Message::Assistant {
                content: ANSWER.into(),
                reasoning: None,
                tool_calls: tool.into_iter().map(call).collect(),
                provider_items: None,
            },
            model: "mock/echo".into(),
            usage: Usage { input_tokens: 900, output_tokens: 40, ..Usage::default() },
            cost_usd: None,
            estimated: false,
            stop: Default::default(),
            said: String::new(),
            told: Some(Attempted {
                attempt: 1,
                latency_ms: 2,
                first_ms: None,
                shown: Some(ShownAnswer { since: 1, elapsed_ms: 3, reasoned_ms: None, broken: None }),
            }),
        }
    }

    fn effect(&self, step: u32) -> EffectId {
        EffectId::new(format!("e-{}-{step}", self.id)).unwrap()
    }

    fn intent(&self, step: u32, tool: &str) -> Entry {
        Entry::Intent {
            invocation: self.id.clone(),
            step,
            index: 0,
            effect: self.effect(step),
            tool: tool.into(),
            class: EffectClass::Pure,
            over_limit: false,
            waits: false,
            kind: Default::default(),
            input: Some(Preview::of(r#"{"key":"alpha"}"#)),
            by: None,
        }
    }

    fn result(&self, step: u32) -> Entry {
        Entry::Result {
            invocation: self.id.clone(),
            step,
            index: 0,
            effect: self.effect(step),
            tool: "lookup".into(),
            kind: Default::default(),
            elapsed_ms: 1,
            status: ToolStatus::Ok,
            content: "the value of alpha is 42".into(),
            images: Vec::new(),
            left: false,
        }
    }

    fn end(&self) -> Entry {
        let spend = Spend { turns: 1, ..Spend::default() };
        Entry::End {
            invocation: self.id.clone(),
            response: AgentResponse::success(ANSWER),
            spend,
            below: self.place.parent.is_some(),
        }
    }
}

/// A turn from its message to its answer.
async fn turn(store: &Store, session: SessionId, n: usize, work: Work) {
    let ask = Submit::new(session.clone(), format!("{session}-{n}"), QUESTION);
    let inbound = Inbound::new(Submit { channel: "bench".into(), ..ask }, Origin::OPERATOR);
    let queued = store.accept(inbound).await.unwrap().queued.unwrap();
    if queued.earlier_turns > 0 {
        store
            .conversation(&session, ToldTurns { most: TURNS_OF_A_SESSION, ..ToldTurns::default() })
            .await
            .unwrap();
    }
    let turn = queued.turn;
    let root = Run::new(&turn, "orchestrator", None);
    let begins = store.beginning(TurnStart {
        turn: turn.clone(),
        session: session.clone(),
        root: root.id.clone(),
        correlation: turn.as_str().parse().unwrap(),
        events: vec![(None, EventBody::TurnStarted { input: Preview::of(QUESTION) })],
    });
    let sub = Run::new(&turn, "keeper", Some(&root));
    let runs = [root.place.clone(), sub.place.clone()];
    let commit = async |runs: &[AgentRef], entries| {
        let (session, turn, runs) = (session.clone(), turn.clone(), runs.to_vec());
        begins.commit(Batch { runs, entries, ..Batch::empty(session, turn) }).await.unwrap();
    };
    commit(&runs[..1], vec![root.begin(), root.step(1)]).await;
    if work != Work::Echo {
        commit(&runs[..1], vec![root.answer(1, Some("tool")), root.intent(1, "tool")]).await;
        let mut entries = Vec::new();
        if work == Work::Delegate {
            commit(&runs[1..], vec![sub.begin(), sub.step(1)]).await;
            commit(&runs[1..], vec![sub.answer(1, Some("kv_get")), sub.intent(1, "kv_get")]).await;
            commit(&runs[1..], vec![sub.result(1), sub.step(2)]).await;
            entries = vec![sub.answer(2, None), sub.end()];
        }
        let among = if entries.is_empty() { &runs[..1] } else { &runs };
        entries.extend([root.result(1), root.step(2)]);
        commit(among, entries).await;
    }
    let (status, spend) = (ResponseStatus::Success, Spend::default());
    let last = EventBody::TurnCompleted { status, error: None, class: None, spend };
    let done = TurnDone {
        conversation: None,
        snapshot: None,
        summary: None,
        response: AgentResponse::success(ANSWER),
        spend,
        diagnostics: Vec::new(),
        outbox: None,
        copies: Vec::new(),
        last: Batch {
            runs: runs[..1].to_vec(),
            entries: vec![root.answer(2, None), root.end()],
            ..Batch::empty(session, turn)
        },
        events: vec![(None, last)],
        start: begins.rest(),
        ratios: Vec::new(),
    };
    store.finish_turn(done).await.unwrap();
}

/// CPU time of all threads of this process, in nanoseconds.
fn cpu_ns() -> u64 {
    let of_thread = |thread: fs::DirEntry| {
        let times = fs::read_to_string(thread.path().join("schedstat")).unwrap();
        times.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    fs::read_dir("/proc/self/task").unwrap().map(|thread| of_thread(thread.unwrap())).sum()
}

fn measure(folder: &Path, durability: &str, (work, name): (Work, &str), sessions: usize, turns: usize) {
    let path = folder.join(format!("{durability}-{name}-{sessions}.db"));
    let storage = match durability {
        "memory" => Storage::Memory,
        "process" => Storage::Process(path),
        _ => Storage::Full(path),
    };
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let store = Store::open(&storage, clock, Arc::new(|_| {})).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let load = |from: usize, turns: usize| {
        let one = |session: usize| {
            let store = store.clone();
            runtime.spawn(async move {
                for n in from..from + turns {
                    let session = format!("s-{}-{session}", n / TURNS_OF_A_SESSION);
                    turn(&store, session.parse().unwrap(), n, work).await;
                }
            })
        };
        let all: Vec<_> = (0..sessions).map(one).collect();
        runtime.block_on(async { join_all(all).await.into_iter().for_each(Result::unwrap) });
    };
    load(0, turns / 5);
    let (cpu, began) = (cpu_ns(), Instant::now());
    load(turns, turns);
    let (cpu, wall) = (cpu_ns() - cpu, began.elapsed());
    let all = (turns * sessions) as f64;
    println!(
        "{durability:8} {name:9} {sessions:3} sessions: {:8.1} µs CPU a turn, {:7.0} turns/s",
        cpu as f64 / all / 1000.0,
        all / wall.as_secs_f64()
    );
    runtime.block_on(store.close()).unwrap();
}

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let folder = tempfile::Builder::new().prefix("journal-bench-").tempdir_in(".").unwrap();
    for durability in ["memory", "process", "full"] {
        for (work, name, sessions, turns) in [
            (Work::Echo, "echo", 1, 2000),
            (Work::Tool, "tool", 1, 1000),
            (Work::Delegate, "delegate", 1, 500),
            (Work::Echo, "echo", 64, 40),
        ] {
            if only.is_empty() || only.iter().any(|word| word == durability || word == name) {
                let waits = durability == "full" && sessions == 1;
                let turns = if waits { turns / 10 } else { turns };
                measure(folder.path(), durability, (work, name), sessions, turns);
            }
        }
    }
}
