//! What the model is shown of a run: its messages, their size, and their hash.
//!
//! It can be made smaller, step by step and never within one, so that no call in it lacks its result. What it looks
//! like afterwards follows from the messages and from the [`Compaction`], and from nothing else: so a run that goes
//! on after a crash shows its model the same bytes.

use std::sync::Arc;

use drupe_extension_api::{EffectId, Message, ToolSpec};
use sha2::{Digest, Sha256};

use crate::{ids, images::Weight, journal::Compaction, prompt};

/// What an entry costs beyond its texts: roles, ids and punctuation.
const FRAME: usize = 12;

/// Where messages stand that came before the run.
pub(super) const BEFORE: u32 = 0;

/// What stands in front of the messages: system prompt and tools.
#[derive(Clone, Default)]
pub(super) struct Base {
    bytes: usize,
    hash: Sha256,
}

impl Base {
    pub(super) fn new(system: &str, tools: &[Arc<ToolSpec>]) -> Self {
        let (mut bytes, mut hash) = (0, Sha256::new());
        let mut part = |text: &str| {
            bytes += text.len();
            hash.update(text);
            hash.update([0]);
        };
        for spec in tools {
            part(spec.name.as_str());
            part(&spec.description);
            part(&spec.input_schema.to_string());
        }
        part(system);
        Self { bytes, hash }
    }

    fn begin(&self) -> (Weight, Sha256) {
        (Weight { bytes: self.bytes, images: 0 }, self.hash.clone())
    }
}

/// The messages of a run.
pub(super) struct Transcript {
    base: Base,
    weight: Weight,
    hash: Sha256,
    /// Shared with requests; changed in place where none of them lives any more.
    messages: Arc<Vec<Arc<Message>>>,
    places: Vec<Place>,
}

/// What is known of a message.
struct Place {
    /// The step that it belongs to.
    step: u32,
    kind: Kind,
}

enum Kind {
    /// Stays, whatever becomes of the rest.
    Task,
    /// The result of a tool call: where it can be read whole, and its size.
    Result(EffectId, usize),
    Other,
}

impl Transcript {
    pub(super) fn new(base: Base) -> Self {
        let (weight, hash) = base.begin();
        Self { base, weight, hash, messages: Arc::default(), places: Vec::new() }
    }

    /// Other tools are on offer from now on.
    pub(super) fn rebase(&mut self, base: Base) {
        self.base = base;
        self.measure();
    }

    pub(super) fn add(&mut self, step: u32, message: Arc<Message>) {
        self.push(Place { step, kind: Kind::Other }, message);
    }

    pub(super) fn add_task(&mut self, message: Arc<Message>) {
        self.push(Place { step: BEFORE, kind: Kind::Task }, message);
    }

    /// Adds what the model is shown of a result of `size` bytes.
    pub(super) fn add_result(&mut self, step: u32, handle: EffectId, size: usize, message: Arc<Message>) {
        self.push(Place { step, kind: Kind::Result(handle, size) }, message);
    }

    pub(super) fn messages(&self) -> Arc<Vec<Arc<Message>>> {
        Arc::clone(&self.messages)
    }

    /// What the whole request weighs.
    pub(super) fn weight(&self) -> Weight {
        self.weight
    }

    /// Hash over the whole request, in hex.
    pub(super) fn hash(&self) -> String {
        ids::hex(&self.hash.clone().finalize())
    }

    /// Makes it smaller; whether anything changed.
    pub(super) fn compact(&mut self, compaction: &Compaction) -> bool {
        match compaction {
            Compaction::Elided { before } => self.elide(*before),
            Compaction::Summarised { before, summary } => self.replace(*before, summary),
            Compaction::Forced => {
                self.add(u32::MAX, Arc::new(Message::User { content: prompt::FORCED.into() }));
                true
            }
            Compaction::Condensed { .. } => false,
        }
    }

    /// Whether results of steps before that one could be made smaller.
    pub(super) fn can_elide(&self, before: u32) -> bool {
        self.messages.iter().zip(&self.places).any(|(message, place)| stub(message, place, before).is_some())
    }

    /// All before that step, apart from the task.
    pub(super) fn older(&self, before: u32) -> Vec<&Message> {
        let all = self.messages.iter().zip(&self.places);
        all.filter(|(_, place)| place.is_older(before)).map(|(message, _)| &**message).collect()
    }

    fn elide(&mut self, before: u32) -> bool {
        let mut changed = false;
        for (message, place) in Arc::make_mut(&mut self.messages).iter_mut().zip(&self.places) {
            if let Some(stub) = stub(message, place, before) {
                *message = Arc::new(stub);
                changed = true;
            }
        }
        self.measure();
        changed
    }

    fn replace(&mut self, before: u32, summary: &str) -> bool {
        let summary = Arc::new(Message::User { content: prompt::summary(summary) });
        let mut messages = vec![summary];
        let mut places = vec![Place { step: BEFORE, kind: Kind::Other }];
        for (message, place) in self.messages.iter().zip(std::mem::take(&mut self.places)) {
            if !place.is_older(before) {
                messages.push(Arc::clone(message));
                places.push(place);
            }
        }
        let changed = messages.len() < self.messages.len() + 1;
        (self.messages, self.places) = (Arc::new(messages), places);
        self.measure();
        changed
    }

    fn push(&mut self, place: Place, message: Arc<Message>) {
        weigh(&message, &mut self.weight, &mut self.hash);
        Arc::make_mut(&mut self.messages).push(message);
        self.places.push(place);
    }

    /// Size and hash from the beginning.
    fn measure(&mut self) {
        let (mut weight, mut hash) = self.base.begin();
        for message in self.messages.iter() {
            weigh(message, &mut weight, &mut hash);
        }
        (self.weight, self.hash) = (weight, hash);
    }
}

impl Place {
    fn is_older(&self, before: u32) -> bool {
        self.step < before && !matches!(self.kind, Kind::Task)
    }
}

fn weigh(message: &Message, weight: &mut Weight, hash: &mut Sha256) {
    let mut part = |text: &str| {
        weight.bytes += text.len();
        hash.update(text);
        hash.update([0]);
    };
    match message {
        Message::User { content } | Message::Tool { content, .. } => part(content),
        Message::Assistant { content, tool_calls, provider_items, .. } => {
            part(content);
            for call in tool_calls {
                part(&call.name);
                part(&call.arguments);
            }
            if let Some(items) = provider_items {
                part(&items.items.to_string());
            }
        }
    }
    weight.bytes += FRAME;
    weight.add_images(message);
    message.images().iter().for_each(|image| hash.update(&image.hash));
}

/// What stands in place of an old result, where that is smaller or the result has pictures.
fn stub(message: &Message, place: &Place, before: u32) -> Option<Message> {
    let (Message::Tool { call_id, name, status, content, images }, Kind::Result(handle, size)) =
        (message, &place.kind)
    else {
        return None;
    };
    let stub = prompt::elided(name, *size, handle);
    // Pruned records have it in place of the result already, with what is said of its pictures.
    let smaller = stub.len() < content.len() && !content.starts_with(&stub);
    (place.step < before && (smaller || !images.is_empty())).then(|| Message::Tool {
        call_id: call_id.clone(),
        name: name.clone(),
        status: *status,
        content: if smaller { stub } else { content.clone() } + &prompt::elided_images(images.len()),
        images: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use drupe_extension_api::{ToolCallRequest, ToolStatus};

    use super::*;

    /// A history, a task, and three steps with one long result each.
    fn transcript() -> Transcript {
        let user = |text: &str| Arc::new(Message::User { content: text.into() });
        let mut all = Transcript::new(Base::new("system", &[]));
        all.add(BEFORE, user("earlier"));
        all.add_task(user("the task"));
        for step in 1..=3 {
            let call = ToolCallRequest { call_id: "c".into(), name: "a".into(), arguments: "{}".into() };
            all.add(
                step,
                Arc::new(Message::Assistant {
                    content: format!("step {step}"),
                    reasoning: None,
                    tool_calls: vec![call],
                    provider_items: None,
                }),
            );
            let (handle, content) = (EffectId::new(format!("e-{step}")).expect("valid"), "x".repeat(1_000));
            let (call_id, name, images) = ("c".into(), "a".into(), Vec::new());
            let result = Message::Tool { call_id, name, status: ToolStatus::Ok, content, images };
            all.add_result(step, handle, 5_000, Arc::new(result));
        }
        all
    }

    fn texts(transcript: &Transcript) -> Vec<String> {
        let text = |message: &Arc<Message>| match &**message {
            Message::User { content } | Message::Assistant { content, .. } => content.clone(),
            Message::Tool { content, .. } if content.starts_with('x') => "whole".into(),
            Message::Tool { content, .. } => content.clone(),
        };
        transcript.messages().iter().map(text).collect()
    }

    #[test]
    fn old_results_give_way_to_their_size_and_handle() {
        let mut all = transcript();
        let before = all.weight().bytes;
        assert!(all.can_elide(3) && all.compact(&Compaction::Elided { before: 3 }));
        let seen = texts(&all);
        assert!(seen[3].contains("5000 bytes") && seen[3].contains("\"e-1\""), "{seen:?}");
        assert_eq!((seen[5].contains("\"e-2\""), seen[7].as_str()), (true, "whole"));
        assert!(all.weight().bytes < before - 1_500);
        assert!(!all.can_elide(3), "once is enough");
    }

    #[test]
    fn a_summary_stands_for_all_but_the_task_and_the_latest_steps() {
        let mut all = transcript();
        assert_eq!(all.older(3).len(), 5);
        assert!(all.compact(&Compaction::Summarised { before: 3, summary: "</summary> so far".into() }));
        let seen = texts(&all);
        assert_eq!(seen.len(), 4, "{seen:?}");
        assert!(seen[0].contains("</ summary> so far"), "{seen:?}");
        assert_eq!(seen[1..], ["the task", "step 3", "whole"]);
        assert_eq!(all.older(3).len(), 1, "the next summary sums this one up");
    }

    #[test]
    fn size_and_hash_are_those_of_the_same_messages_added_anew() {
        let mut all = transcript();
        all.compact(&Compaction::Elided { before: 2 });
        let mut again = Transcript::new(Base::new("system", &[]));
        for message in all.messages().iter() {
            again.add(1, Arc::clone(message));
        }
        assert_eq!((all.weight().bytes, all.hash()), (again.weight().bytes, again.hash()));
        all.rebase(Base::new("other", &[]));
        assert_ne!(all.hash(), again.hash());
    }
}
