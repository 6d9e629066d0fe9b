//! What a channel is shown of an answer while it is made, whatever pace the channel has. Pure.
//!
//! What a slow channel has not taken yet waits here as one piece, so that nothing of it is missing. Where nobody knows whether
//! the channel has a piece, or some of a message was never heard, what it shows of that message is void.

use std::collections::VecDeque;

use drupe_bus::Watched;
use drupe_extension_api::{EventBody, ItemKind, ItemOutcome, TurnId, wire::StreamPart};

/// A part, and the id of the message that it is of; none for what is of no message.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    pub message: Option<String>,
    pub part: StreamPart,
}

/// What one channel is shown of one turn.
#[derive(Debug)]
pub struct Showing {
    turn: TurnId,
    /// What the channel is to be given, in order.
    waits: VecDeque<Shown>,
    /// The message that is being made.
    open: Option<String>,
    /// The message of which the channel has something, and what that is.
    given: (Option<String>, String),
    /// Whether nobody knows how much of that it shows.
    doubted: bool,
    /// Whether something happened since the channel did not take a part.
    may_try: bool,
    /// Whether something of the message that is being made was not heard.
    blind: bool,
}

impl Showing {
    /// Nothing of a turn yet.
    pub fn of(turn: TurnId) -> Self {
        Self {
            turn,
            waits: VecDeque::new(),
            open: None,
            given: (None, String::new()),
            doubted: false,
            may_try: true,
            blind: false,
        }
    }

    /// Takes in what happened in the session, whatever turn it is of.
    pub fn hear(&mut self, watched: &Watched) {
        let Watched::Event(event) = watched else {
            self.void();
            self.blind = true;
            return;
        };
        if event.turn.as_ref() != Some(&self.turn) {
            return;
        }
        let root = event.agent.as_ref().is_none_or(|agent| agent.depth == 0);
        match &event.body {
            EventBody::ItemStarted { item } if item.kind != ItemKind::AgentMessage => {
                if let Some(text) = item.name.clone() {
                    // The last one is what is done now.
                    self.waits.retain(|shown| !matches!(shown.part, StreamPart::Status { .. }));
                    self.add(Shown { message: None, part: StreamPart::Status { text } });
                }
            }
            EventBody::ItemStarted { .. } if root => self.blind = false,
            EventBody::ItemUpdated { id, item: ItemKind::AgentMessage, delta } if root && !self.blind => {
                self.delta(id, delta);
            }
            EventBody::StreamReset { .. } if root => {
                self.void();
                self.blind = false;
            }
            EventBody::ItemCompleted { item, outcome, .. } if root && item.kind == ItemKind::AgentMessage => {
                if *outcome != ItemOutcome::Ok {
                    self.void();
                }
                // What follows is another message.
                self.open = None;
            }
            _ => {}
        }
    }

    /// What the channel is given next. It has it, or not, when [`went`](Self::went) is called.
    pub fn next(&mut self) -> Option<Shown> {
        if self.doubted {
            let message = self.given.0.clone();
            return self.may_try.then_some(Shown { message, part: StreamPart::Reset });
        }
        let next = self.waits.pop_front()?;
        match &next.part {
            StreamPart::Delta { text } => {
                if self.given.0 != next.message {
                    self.given = (next.message.clone(), String::new());
                }
                self.given.1.push_str(text);
            }
            StreamPart::Reset => self.given.1.clear(),
            StreamPart::Begin | StreamPart::Status { .. } | StreamPart::End => {}
        }
        Some(next)
    }

    /// Whether the channel took what it was given last.
    pub fn went(&mut self, what: &StreamPart, taken: bool) {
        match (what, taken) {
            (StreamPart::Reset, true) if self.doubted => {
                self.doubted = false;
                let (message, text) = std::mem::take(&mut self.given);
                if !text.is_empty() {
                    self.waits.push_front(Shown { message, part: StreamPart::Delta { text } });
                }
            }
            (StreamPart::Delta { .. } | StreamPart::Reset, false) => {
                (self.doubted, self.may_try) = (true, false);
            }
            _ => {}
        }
    }

    fn delta(&mut self, id: &str, text: &str) {
        self.open = Some(id.to_owned());
        self.may_try = true;
        match self.waits.back_mut() {
            Some(Shown { message, part: StreamPart::Delta { text: waits } })
                if message.as_deref() == Some(id) =>
            {
                waits.push_str(text);
            }
            _ => self.add(Shown {
                message: Some(id.to_owned()),
                part: StreamPart::Delta { text: text.to_owned() },
            }),
        }
    }

    /// The message that is being made begins anew, or comes to nothing.
    fn void(&mut self) {
        let Some(open) = self.open.take() else { return };
        let message = Some(open);
        self.waits.retain(|shown| shown.message != message);
        if self.given.0 != message || self.given.1.is_empty() {
            return;
        }
        match self.doubted {
            true => self.given.1.clear(),
            false => self.add(Shown { message, part: StreamPart::Reset }),
        }
    }

    fn add(&mut self, shown: Shown) {
        self.may_try = true;
        self.waits.push_back(shown);
    }
}

#[cfg(test)]
mod tests;
