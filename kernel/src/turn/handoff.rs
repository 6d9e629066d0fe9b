//! Who talks while a turn is answered: what becomes of a handoff, and which events tell of it.

use drupe_agent::{Conversation, Happened};
use drupe_extension_api::{AgentResponse, EventBody, Preview};
use drupe_journal::QueuedTurn;
use drupe_wiring::Snapshot;

use super::{
    plan::Plan,
    route::{Route, asks_back, route},
};

/// Those who talk with the user in one turn, one after another.
pub struct Speakers {
    pub conversation: Conversation,
    /// As it was kept before.
    before: Conversation,
    /// What happened and was not told yet.
    news: Vec<EventBody>,
}

impl Speakers {
    /// As they were before the message.
    pub fn of(queued: &QueuedTurn) -> Self {
        let conversation = queued.state.conversation.clone();
        Self { before: conversation.clone(), conversation, news: Vec::new() }
    }

    /// As they are when the turn of a message begins. What depends on the time depends on that at which the message came, so
    /// that a turn that goes on after a restart finds the same.
    pub fn at_a_message(snapshot: &Snapshot, queued: &QueuedTurn) -> Self {
        let mut speakers = Self::of(queued);
        let ask = &queued.inbound.ask;
        // A message to somebody in particular is none to who has the conversation.
        match route(ask, &queued.state) {
            Ok(Route { agent: None, .. }) => {}
            Ok(Route { agent: Some((_, by)), .. }) if by.is_handoff() => {}
            _ => return speakers,
        }
        let agent = speakers.conversation.agent().and_then(|id| snapshot.agents.get(id));
        let limits = agent.and_then(|entry| entry.handoff.as_ref()).map(|handoff| handoff.limits);
        speakers.happened(Happened::Message { at_ms: queued.accepted.as_millisecond(), limits });
        if speakers.conversation.agent().is_some() && asks_back(&ask.text).is_some() {
            speakers.happened(Happened::AskedBack);
        }
        speakers
    }

    /// Takes in how whoever was asked responded; whether the message still waits for an answer, from who talks now.
    pub fn heard(&mut self, plan: &Plan, response: &AgentResponse, now_ms: i64, earlier_turns: u64) -> bool {
        if !plan.has_the_conversation() {
            return false;
        }
        let Some(happened) = Happened::of(response, now_ms, earlier_turns, plan.keeps) else { return false };
        let before = self.conversation.clone();
        self.happened(happened);
        self.conversation.owes_an_answer(&before, response)
    }

    /// What was not told yet.
    pub fn told(&mut self) -> Vec<EventBody> {
        std::mem::take(&mut self.news)
    }

    /// Who talks from here on, where that is to be kept.
    pub fn changed(&self) -> Option<Conversation> {
        (self.conversation != self.before).then(|| self.conversation.clone())
    }

    fn happened(&mut self, happened: Happened) {
        let before = std::mem::take(&mut self.conversation);
        let had = before.agent().cloned();
        self.conversation = before.after(happened);
        match (&self.conversation, had) {
            (Conversation::HandingOver { to, summary }, None) => {
                let summary = Preview::of(summary);
                self.news.push(EventBody::HandoffStarted { to: to.clone(), summary });
            }
            (Conversation::Reclaiming { from, reason, summary }, Some(_)) => {
                self.news.push(EventBody::HandoffEnded {
                    from: from.clone(),
                    reason: reason.to_string(),
                    summary: Preview::of(summary),
                })
            }
            _ => {}
        }
    }
}
