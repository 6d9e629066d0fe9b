//! What a run has to record with its next commit, and what it has begun and not ended.
//!
//! Everything that begins ends: an item that is still open when its run ends is closed here, and an end that comes
//! after that is dropped. It deliberately decides nothing else, and commits nothing.

use drupe_extension_api::{
    AgentRef, EffectId, EventBody, InvocationId, Item, ItemOutcome, ToolStatus, control::ApprovalState,
};

use crate::{journal::Entry, recipe::KeptRecipe, topics::TopicMessage};

/// What the model reads of a call that was dropped while it ran.
const DROPPED: &str = "stopped before it ended";

/// What is taken to be committed.
#[derive(Default)]
pub(crate) struct Taken {
    pub runs: Vec<AgentRef>,
    pub entries: Vec<Entry>,
    pub recipes: Vec<KeptRecipe>,
    pub messages: Vec<TopicMessage>,
}

/// Entries and messages of one run that are not committed yet.
#[derive(Default)]
pub(crate) struct Ledger {
    entries: Vec<Entry>,
    recipes: Vec<KeptRecipe>,
    messages: Vec<TopicMessage>,
    open_items: Vec<Item>,
    open_calls: Vec<(u32, u32, EffectId)>,
    /// Calls about which a person is asked, with their tools.
    asked: Vec<(EffectId, String)>,
}

impl Ledger {
    /// Adds a record. A result counts once, and only for a call that is open; a question that the call leaves open is
    /// withdrawn. The end of an item counts once, and only if it has begun.
    pub(crate) fn record(&mut self, entry: Entry) {
        match &entry {
            Entry::Told { event: EventBody::ItemCompleted { item, .. }, .. }
                if self.open_items.iter().all(|open| open.id != item.id) =>
            {
                return;
            }
            Entry::Asked { step, index, question, .. } => {
                self.open_call(*step, *index, question.effect.clone());
                self.asked.push((question.effect.clone(), question.tool.clone()));
            }
            Entry::Decided { effect, .. } => self.asked.retain(|(asked, _)| asked != effect),
            Entry::Intent { step, index, effect, .. } => self.open_call(*step, *index, effect.clone()),
            Entry::Result { invocation, effect, .. } => {
                let Some(at) = self.open_calls.iter().position(|(.., open)| open == effect) else { return };
                self.open_calls.remove(at);
                self.withdraw(invocation, effect);
            }
            _ => {}
        }
        self.add(entry);
    }

    fn add(&mut self, mut entry: Entry) {
        if let Entry::Result { effect, left, .. } = &mut entry {
            *left = self.open_items.iter().all(|open| open.id != effect.as_str());
        }
        for event in entry.events() {
            match event {
                EventBody::ItemStarted { item } => self.open_items.push(item),
                EventBody::ItemCompleted { item, .. } => self.open_items.retain(|open| open.id != item.id),
                _ => {}
            }
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
    pub(crate) fn withdraw(&mut self, invocation: &InvocationId, effect: &EffectId) {
        let Some(at) = self.asked.iter().position(|(asked, _)| asked == effect) else { return };
        let (effect, tool) = self.asked.remove(at);
        let (invocation, state) = (invocation.clone(), ApprovalState::Withdrawn);
        self.add(Entry::Decided { invocation, effect, tool, state, by: None });
    }

    /// Ends all that is open.
    pub(crate) fn close(&mut self, invocation: &InvocationId) {
        for (step, index, effect) in std::mem::take(&mut self.open_calls) {
            self.withdraw(invocation, &effect);
            let item = self.open_items.iter().find(|item| item.id == effect.as_str());
            let tool = item.and_then(|item| item.name.clone()).unwrap_or_default();
            let kind = item.map(|item| item.kind).unwrap_or_default();
            let (invocation, status, content) = (invocation.clone(), ToolStatus::Cancelled, DROPPED.into());
            let elapsed_ms = 0;
            let result = Entry::Result {
                invocation,
                step,
                index,
                effect,
                tool,
                kind,
                status,
                elapsed_ms,
                content,
                images: Vec::new(),
                left: false,
            };
            self.add(result);
        }
        for item in std::mem::take(&mut self.open_items) {
            let event = EventBody::ItemCompleted { item, outcome: ItemOutcome::Cancelled, elapsed_ms: 0 };
            self.entries.push(Entry::Told { invocation: invocation.clone(), event });
        }
    }

    /// Forgets messages of the user whose taking in was not committed: nobody was asked about them, and they are answered
    /// by themselves.
    pub(crate) fn forget_steered(&mut self) {
        self.entries.retain(|entry| !matches!(entry, Entry::Steered { .. }));
    }

    /// Adds what the run is made of.
    pub(crate) fn recipe(&mut self, recipe: KeptRecipe) {
        self.recipes.push(recipe);
    }

    /// Adds a message for a topic.
    pub(crate) fn message(&mut self, message: TopicMessage) {
        self.messages.push(message);
    }

    /// Takes what is to be committed of the run at that place; what is open stays open.
    pub(crate) fn take(&mut self, place: impl FnOnce() -> AgentRef) -> Taken {
        let entries = std::mem::take(&mut self.entries);
        Taken {
            runs: (!entries.is_empty()).then(place).into_iter().collect(),
            entries,
            recipes: std::mem::take(&mut self.recipes),
            messages: std::mem::take(&mut self.messages),
        }
    }
}

impl Taken {
    /// Adds what comes after it.
    pub(crate) fn then(&mut self, later: Self) {
        self.runs.extend(later.runs);
        self.entries.extend(later.entries);
        self.recipes.extend(later.recipes);
        self.messages.extend(later.messages);
    }
}
