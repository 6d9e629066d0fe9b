//! What a run has to record with its next commit, and what it has begun and not ended.
//!
//! Everything that begins ends: an item that is still open when its run ends is closed here, and an end that comes
//! after that is dropped. It deliberately decides nothing else, and commits nothing.

use drupe_extension_api::{
    AgentRef, EffectId, EventBody, InvocationId, Item, ItemOutcome, ToolStatus, control::ApprovalState,
};

use crate::{journal::Entry, topics::TopicMessage};

/// What the model reads of a call that was dropped while it ran.
const DROPPED: &str = "stopped before it ended";

/// What is taken to be committed.
#[derive(Default)]
pub(crate) struct Taken {
    pub entries: Vec<Entry>,
    pub events: Vec<(Option<AgentRef>, EventBody)>,
    pub messages: Vec<TopicMessage>,
}

/// Entries, events and messages of one run that are not committed yet.
#[derive(Default)]
pub(crate) struct Ledger {
    entries: Vec<Entry>,
    events: Vec<(Option<AgentRef>, EventBody)>,
    messages: Vec<TopicMessage>,
    open_items: Vec<Item>,
    open_calls: Vec<(u32, u32, EffectId)>,
    /// Calls about which a person is asked, with their tools.
    asked: Vec<(EffectId, String)>,
}

impl Ledger {
    /// Adds a record. A result counts once, and only for a call that is open; a question that the call leaves open is
    /// withdrawn. It tells the events of what it adds.
    pub(crate) fn record(&mut self, place: &AgentRef, entry: Entry) {
        match &entry {
            Entry::Asked { step, index, question, .. } => {
                self.open_call(*step, *index, question.effect.clone());
                self.asked.push((question.effect.clone(), question.tool.clone()));
            }
            Entry::Decided { effect, .. } => self.asked.retain(|(asked, _)| asked != effect),
            Entry::Intent { step, index, effect, .. } => self.open_call(*step, *index, effect.clone()),
            Entry::Result { invocation, effect, .. } => {
                let Some(at) = self.open_calls.iter().position(|(.., open)| open == effect) else { return };
                self.open_calls.remove(at);
                self.withdraw(invocation, effect, place);
            }
            _ => {}
        }
        self.add(place, entry);
    }

    fn add(&mut self, place: &AgentRef, entry: Entry) {
        for body in entry.events() {
            self.event(place.clone(), body);
        }
        self.entries.push(entry);
    }

    /// A call that an earlier process recorded without an end is open again.
    pub(crate) fn open_call(&mut self, step: u32, index: u32, effect: EffectId) {
        if self.open_calls.iter().all(|(.., open)| *open != effect) {
            self.open_calls.push((step, index, effect));
        }
    }

    /// So is the question about it.
    pub(crate) fn open_question(&mut self, effect: EffectId, tool: String) {
        self.asked.push((effect, tool));
    }

    /// Withdraws the question about a call, unless it is settled.
    pub(crate) fn withdraw(&mut self, invocation: &InvocationId, effect: &EffectId, place: &AgentRef) {
        let Some(at) = self.asked.iter().position(|(asked, _)| asked == effect) else { return };
        let (effect, tool) = self.asked.remove(at);
        let (invocation, state) = (invocation.clone(), ApprovalState::Withdrawn);
        self.add(place, Entry::Decided { invocation, effect, tool, state, by: None });
    }

    /// Adds an event. An item completes once, and only if it was started.
    pub(crate) fn event(&mut self, place: AgentRef, body: EventBody) {
        match &body {
            EventBody::ItemStarted { item } => self.open_items.push(item.clone()),
            EventBody::ItemCompleted { item, .. } => {
                let Some(at) = self.open_items.iter().position(|open| open.id == item.id) else { return };
                self.open_items.remove(at);
            }
            _ => {}
        }
        self.events.push((Some(place), body));
    }

    /// Ends all that is open.
    pub(crate) fn close(&mut self, invocation: &InvocationId, place: &AgentRef) {
        for (step, index, effect) in std::mem::take(&mut self.open_calls) {
            self.withdraw(invocation, &effect, place);
            let item = self.open_items.iter().find(|item| item.id == effect.as_str());
            let tool = item.and_then(|item| item.name.clone()).unwrap_or_default();
            let kind = item.map(|item| item.kind).unwrap_or_default();
            let (invocation, status, content) = (invocation.clone(), ToolStatus::Cancelled, DROPPED.into());
            let elapsed_ms = 0;
            let result =
                Entry::Result { invocation, step, index, effect, tool, kind, status, elapsed_ms, content };
            self.add(place, result);
        }
        for item in std::mem::take(&mut self.open_items) {
            let body = EventBody::ItemCompleted { item, outcome: ItemOutcome::Cancelled, elapsed_ms: 0 };
            self.events.push((Some(place.clone()), body));
        }
    }

    /// Forgets messages of the user whose taking in was not committed: nobody was asked about them, and they are answered
    /// by themselves.
    pub(crate) fn forget_steered(&mut self) {
        self.entries.retain(|entry| !matches!(entry, Entry::Steered { .. }));
        self.events.retain(|(_, body)| !matches!(body, EventBody::TurnSteered { .. }));
    }

    /// Adds a message for a topic.
    pub(crate) fn message(&mut self, message: TopicMessage) {
        self.messages.push(message);
    }

    /// Takes what is to be committed; what is open stays open.
    pub(crate) fn take(&mut self) -> Taken {
        Taken {
            entries: std::mem::take(&mut self.entries),
            events: std::mem::take(&mut self.events),
            messages: std::mem::take(&mut self.messages),
        }
    }
}

impl Taken {
    /// Adds what comes after it.
    pub(crate) fn then(&mut self, later: Self) {
        self.entries.extend(later.entries);
        self.events.extend(later.events);
        self.messages.extend(later.messages);
    }
}
