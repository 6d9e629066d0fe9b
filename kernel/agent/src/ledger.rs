//! What a run has to record with its next commit, and what it has begun and not ended.
//!
//! Everything that begins ends: an item that is still open when its run ends is closed here, and an end that comes
//! after that is dropped. It deliberately decides nothing else, and commits nothing.

use drupe_extension_api::{AgentRef, EffectId, EventBody, InvocationId, Item, ItemOutcome, ToolStatus};

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
}

impl Ledger {
    /// Adds a record. A result counts once, and only for a call that is open.
    pub(crate) fn record(&mut self, entry: Entry) {
        match &entry {
            Entry::Intent { step, index, effect, .. } => self.open_call(*step, *index, effect.clone()),
            Entry::Result { effect, .. } => {
                let Some(at) = self.open_calls.iter().position(|(.., open)| open == effect) else { return };
                self.open_calls.remove(at);
            }
            _ => {}
        }
        self.entries.push(entry);
    }

    /// A call whose intent an earlier process recorded is open again.
    pub(crate) fn open_call(&mut self, step: u32, index: u32, effect: EffectId) {
        self.open_calls.push((step, index, effect));
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
            self.entries.push(Entry::Result {
                invocation: invocation.clone(),
                step,
                index,
                effect,
                status: ToolStatus::Cancelled,
                content: DROPPED.into(),
            });
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

    /// Takes over what another run has not committed.
    pub(crate) fn adopt(&mut self, taken: Taken) {
        self.entries.extend(taken.entries);
        self.events.extend(taken.events);
        self.messages.extend(taken.messages);
    }
}
