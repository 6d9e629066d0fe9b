//! Tests of the whole crate through its handle, on real files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod archive;
mod backup;
mod bus;
mod bytes;
mod cancelled;
mod checkpoints;
mod crash;
mod damage;
mod deletion;
mod faults;
mod files;
mod find;
mod group;
mod images;
mod operator;
mod outbox;
mod parts;
mod people;
mod power;
mod proof;
mod questions;
mod readings;
mod recent;
mod recipes;
mod records;
mod released;
mod resume;
mod retention;
mod schedules;
mod sizes;
mod steering;
mod told;
mod turns;
mod unreadable;
mod upgrade;
mod usage;
mod vfs;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use drupe_agent::{Batch, Chain, Entry, ManualClock, ids};
use drupe_extension_api::{
    AgentRef, AgentResponse, CorrelationId, EffectClass, EffectId, Event, EventBody, InvocationId, Item,
    ItemKind, ItemOutcome, Message, SessionId, Spend, ToolCallRequest, ToolStatus, TurnId, Usage,
    wire::{OutboundKind, QueueMode, Submit},
};
use tempfile::TempDir;

use crate::{
    Inbound, Opening, Origin, Outbound, Published, Sent, Stage, Storage, Store, StoreError, ToldTurns,
    TurnDone, TurnStart,
};

/// A folder with a journal, a clock that stands still, and what was published.
struct Home {
    folder: TempDir,
    clock: Arc<ManualClock>,
    published: Arc<Mutex<Vec<Arc<Event>>>>,
    /// Topics of the messages that were published.
    messages: Arc<Mutex<Vec<String>>>,
    /// How often it was said that messages wait to be delivered.
    due: Arc<Mutex<u32>>,
}

impl Home {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        Self {
            folder: tempfile::tempdir().unwrap(),
            clock,
            published: Arc::default(),
            messages: Arc::default(),
            due: Arc::default(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("journal.db")
    }

    fn open(&self) -> Store {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<Store, StoreError> {
        self.open_as(&Storage::Full(self.path()))
    }

    fn open_as(&self, storage: &Storage) -> Result<Store, StoreError> {
        self.open_seen(storage, &Arc::default())
    }

    fn open_seen(&self, storage: &Storage, opening: &Arc<Opening>) -> Result<Store, StoreError> {
        let published = Arc::clone(&self.published);
        let (messages, due) = (Arc::clone(&self.messages), Arc::clone(&self.due));
        let publish = move |what| match what {
            Published::Event(event) => published.lock().unwrap().push(event),
            Published::Message(message) => messages.lock().unwrap().push(message.topic.clone()),
            Published::Due => *due.lock().unwrap() += 1,
        };
        Store::open_seen(storage, self.clock.clone(), Arc::new(publish), opening)
    }

    /// Positions of the published events of a session.
    fn published(&self, session: &SessionId) -> Vec<u64> {
        self.published.lock().unwrap().iter().filter(|e| e.session == *session).map(|e| e.seq).collect()
    }
}

fn session(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

/// Ids in the form of those that follow from a place.
fn derived(kind: char, place: &str) -> String {
    format!("{kind}-{:0<32}", ids::hex(place.as_bytes()))
}

fn invocation(id: &str) -> InvocationId {
    InvocationId::new(derived('i', id)).unwrap()
}

fn message(id: &str, external_id: &str, text: &str) -> Inbound {
    let ask = Submit::new(session(id), external_id, text);
    let ask = Submit {
        channel: "test".into(),
        address: Some("room".into()),
        queue: Some(QueueMode::Followup),
        ..ask
    };
    Inbound::new(ask, Origin::OPERATOR)
}

fn remark(text: &str) -> (Option<AgentRef>, EventBody) {
    (None, EventBody::Diagnostic { code: "test".into(), message: text.into() })
}

fn item(id: &str) -> Item {
    Item { id: id.into(), kind: ItemKind::ToolCall, name: Some("tool".into()), input: None, output: None }
}

/// Where a run stands.
fn place(id: &str) -> AgentRef {
    AgentRef { id: "agent".parse().unwrap(), invocation: invocation(id), parent: None, depth: 0 }
}

fn item_started(id: &str) -> (Option<AgentRef>, EventBody) {
    (Some(place("a")), EventBody::ItemStarted { item: item(id) })
}

fn item_completed(id: &str) -> (Option<AgentRef>, EventBody) {
    (Some(place("a")), EventBody::ItemCompleted { item: item(id), outcome: ItemOutcome::Ok, elapsed_ms: 1 })
}

fn done(turn: &TurnId, answer: &str) -> TurnDone {
    TurnDone {
        conversation: None,
        snapshot: None,
        summary: None,
        response: AgentResponse::success(answer),
        spend: Spend { turns: 1, ..Spend::default() },
        diagnostics: Vec::new(),
        copies: Vec::new(),
        outbox: Some(Outbound { channel: "test".into(), address: Some("room".into()), text: answer.into() }),
        last: batch_of(turn, Vec::new()),
        events: vec![remark("done")],
        start: None,
        ratios: Vec::new(),
    }
}

/// What a run recorded of a turn.
fn batch_of(turn: &TurnId, entries: Vec<Entry>) -> Batch {
    Batch { entries, ..Batch::empty(session("s"), turn.clone()) }
}

/// A remark of the run `r`.
fn said(text: &str) -> Entry {
    Entry::Told { invocation: invocation("r"), event: remark(text).1 }
}

fn start(turn: &TurnId, session_id: &str, events: Vec<(Option<AgentRef>, EventBody)>) -> TurnStart {
    TurnStart {
        turn: turn.clone(),
        session: session(session_id),
        root: invocation("root"),
        correlation: CorrelationId::new("c-1").unwrap(),
        events,
    }
}

fn begin(id: &str, agent: &str, parent: Option<&str>, task: &str) -> Entry {
    Entry::Begin {
        invocation: invocation(id),
        agent: agent.parse().unwrap(),
        parent: parent.map(invocation),
        depth: u32::from(parent.is_some()),
        task: task.into(),
        recipe: None,
    }
}

fn step(id: &str, step: u32) -> Entry {
    Entry::Step {
        invocation: invocation(id),
        step,
        attempt: 1,
        model: "offline/test".into(),
        request_hash: "00".into(),
        reserved_tokens: 100,
        reserved_usd: 0.0,
        unpriced: false,
        bytes_per_token: None,
        shown: false,
    }
}

fn answer(id: &str, step: u32, text: &str, calls: &[&str]) -> Entry {
    let call = |name: &&str| ToolCallRequest {
        call_id: format!("call-{name}"),
        name: (*name).into(),
        arguments: "{}".into(),
    };
    Entry::Answer {
        invocation: invocation(id),
        step,
        message: Message::Assistant {
            content: text.into(),
            reasoning: None,
            tool_calls: calls.iter().map(call).collect(),
            provider_items: None,
        },
        model: "offline/test".into(),
        usage: Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() },
        cost_usd: None,
        estimated: false,
        stop: Default::default(),
        said: String::new(),
        told: None,
    }
}

fn intent(id: &str, step: u32, index: u32, class: EffectClass) -> Entry {
    Entry::Intent {
        invocation: invocation(id),
        step,
        index,
        effect: effect(id, step, index),
        tool: "tool".into(),
        class,
        over_limit: false,
        waits: false,
        kind: ItemKind::default(),
        input: None,
        by: None,
    }
}

fn result(id: &str, step: u32, index: u32, content: &str) -> Entry {
    Entry::Result {
        invocation: invocation(id),
        step,
        index,
        effect: effect(id, step, index),
        tool: "tool".into(),
        kind: ItemKind::default(),
        status: ToolStatus::Ok,
        elapsed_ms: 1,
        content: content.into(),
        images: Vec::new(),
        left: false,
    }
}

/// `turn` is taken in.
fn steered(id: &str, turn: &TurnId) -> Entry {
    let message = Message::User { content: "and more".into() };
    Entry::Steered { invocation: invocation(id), step: 1, turn: turn.clone(), message }
}

fn effect(id: &str, step: u32, index: u32) -> EffectId {
    EffectId::new(derived('e', &format!("{id}.{step}.{index}"))).unwrap()
}
