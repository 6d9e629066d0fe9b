//! Who talks while a turn is answered: what becomes of a handoff, and which events tell of it.

use drupe_agent::{Conversation, Happened, RecordedTurn, ids};
use drupe_extension_api::{AgentResponse, EventBody, Preview, TurnId};
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
    /// Whether the message is for who has the conversation, and nobody in particular.
    is_theirs: bool,
    /// What happened and was not told yet.
    news: Vec<EventBody>,
}

impl Speakers {
    /// As they are when the turn of a message begins. What depends on the time depends on that at which the message came, so
    /// that a turn that goes on after a restart finds the same.
    pub fn at_a_message(snapshot: &Snapshot, queued: &QueuedTurn) -> Self {
        let mut speakers = Self::of(queued);
        if !speakers.is_theirs {
            return speakers;
        }
        let agent = speakers.conversation.agent().and_then(|id| snapshot.agents.get(id));
        let limits = agent.and_then(|entry| entry.handoff.as_ref()).map(|handoff| handoff.limits);
        speakers.happened(Happened::Message { at_ms: queued.accepted.as_millisecond(), limits });
        if speakers.conversation.agent().is_some() && asks_back(&queued.inbound.ask.text).is_some() {
            speakers.happened(Happened::AskedBack);
        }
        speakers
    }

    /// As they were left by a turn that is not gone on with, as far as its roots have recorded how they ended. It was told then.
    pub fn left(queued: &QueuedTurn, recorded: &RecordedTurn, now_ms: i64) -> Self {
        let mut speakers = Self::of(queued);
        let roots = (0..).map(|nth| match nth {
            0 => ids::root_invocation(&queued.turn),
            nth => ids::further_root(&queued.turn, nth),
        });
        for response in roots.map_while(|root| recorded.run(&root)?.response.as_ref()) {
            if speakers.is_theirs {
                speakers.happened(Happened::of(response, now_ms, &queued.turn, None));
            }
        }
        speakers.news.clear();
        speakers
    }

    fn of(queued: &QueuedTurn) -> Self {
        let conversation = queued.state.conversation.clone();
        let is_theirs = match route(&queued.inbound.ask, &queued.state) {
            Ok(Route { agent: None, .. }) => true,
            Ok(Route { agent: Some((_, by)), .. }) => by.is_handoff(),
            Err(_) => false,
        };
        Self { before: conversation.clone(), conversation, is_theirs, news: Vec::new() }
    }

    /// Takes in how whoever was asked responded; whether the message still waits for an answer, from who talks now.
    pub fn heard(&mut self, plan: &Plan, response: &AgentResponse, now_ms: i64, turn: &TurnId) -> bool {
        if !self.is_theirs {
            return false;
        }
        let before = self.conversation.clone();
        self.happened(Happened::of(response, now_ms, turn, plan.keeps));
        self.conversation.owes_an_answer(&before, response)
    }

    /// Takes in that whoever has the conversation cannot be asked; whether somebody else can.
    pub fn cannot(&mut self, why: &AgentResponse) -> bool {
        if !self.is_theirs || self.conversation.agent().is_none() {
            return false;
        }
        self.happened(Happened::Failed { error: why.content.clone() });
        true
    }

    /// What was not told yet.
    pub fn told(&mut self) -> Vec<EventBody> {
        std::mem::take(&mut self.news)
    }

    /// Who had the conversation before and who has it from here on, where that is to be kept.
    pub fn changed(self) -> Option<(Conversation, Conversation)> {
        (self.conversation != self.before).then_some((self.before, self.conversation))
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
