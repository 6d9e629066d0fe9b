//! Agents that outlive the turn in which they were spawned: each is a turn of its own, in a session below that of the turn,
//! and its report is a message to that session.

use std::sync::{Mutex, PoisonError};

use drupe_agent::{Chain, DetachedTask};
use drupe_extension_api::{
    AgentResponse, Fault, Preview, ResponseStatus, SessionId, TurnId,
    wire::{Carried, QueueMode, Submit},
};
use drupe_host::cut;
use drupe_journal::{Inbound, Origin, QueuedTurn, SessionState, Store, StoreError};
use tokio::sync::Notify;

use super::route;

/// The most bytes of a report that the message holds; the agent's own session has it whole.
const REPORT: usize = 16 * 1024;

/// The digits of a call's id that its session is named by.
const DIGITS: usize = 10;

/// Turns that the ends of others set off, and that nobody has queued yet.
#[derive(Default)]
pub struct Reports {
    waiting: Mutex<Vec<QueuedTurn>>,
    come: Notify,
}

impl Reports {
    pub fn add(&self, turn: QueuedTurn) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(turn);
        self.come.notify_one();
    }

    /// Those that wait, once there are some. For one caller.
    pub async fn next(&self) -> Vec<QueuedTurn> {
        loop {
            let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            if !waiting.is_empty() {
                return waiting;
            }
            self.come.notified().await;
        }
    }
}

/// The message that has an agent work in a session of its own.
pub fn inbound(task: DetachedTask) -> Result<Inbound, Fault> {
    let DetachedTask { effect, agent, task, session, turn, chain, correlation, strangers } = task;
    let digits = effect.as_str().trim_start_matches("e-");
    let below = format!("{session}:a-{}", &digits[..digits.len().min(DIGITS)]);
    let session = SessionId::new(below).map_err(|_| {
        Fault::invalid(format!("the id of the session `{session}` is so long that none fits below it"))
    })?;
    let carried = strangers.is_some().then(|| Carried { untrusted: true, ..Carried::default() });
    let ask = Submit {
        agent: Some(agent),
        queue: Some(QueueMode::Followup),
        carried,
        ..Submit::new(session, effect.to_string(), task)
    };
    Ok(Inbound { ask, origin: Origin::Spawned { by: turn }, chain, correlation: Some(correlation) })
}

/// The message by which a session hears of the end of an agent that one of its turns spawned; none where that turn is gone.
pub async fn report(
    store: &Store,
    queued: &QueuedTurn,
    by: &TurnId,
    response: &AgentResponse,
) -> Result<Option<Inbound>, StoreError> {
    let Some(asked) = store.asked(by).await? else { return Ok(None) };
    let own = &queued.inbound;
    let session = &own.ask.session;
    let agent = own.ask.agent.as_ref().map(ToString::to_string).unwrap_or_default();
    let status = match response.status {
        ResponseStatus::Success => "has done",
        ResponseStatus::Error => "failed at",
        ResponseStatus::Refused => "refused",
    };
    let said = match response.status {
        ResponseStatus::Success => &response.content,
        _ => response.error.as_ref().unwrap_or(&response.content),
    };
    let text = format!(
        "(This is no message of the user: the agent `{agent}`, which you had spawned beside the conversation, {status} its \
         task. Its session is `{session}`.)\nThe task: {}\nThe report:\n{}",
        Preview::of(&own.ask.text).text,
        cut(said.clone(), REPORT)
    );
    let untrusted = store.standing(session).await?.tainted_by.is_some();
    let carried = untrusted.then(|| Carried { untrusted, ..Carried::default() });
    // Whom the turn's message named hears of what came of it; else whoever talks with the user by now.
    let named = route(&asked.ask, &SessionState::default()).ok().and_then(|route| route.agent);
    let ask = Submit {
        channel: asked.ask.channel.clone(),
        address: asked.ask.address.clone(),
        agent: named.map(|(agent, _)| agent),
        queue: Some(QueueMode::Followup),
        carried,
        ..Submit::new(asked.ask.session.clone(), queued.turn.to_string(), text)
    };
    // Whoever spawned it may answer: that is no circle. But its links count, so that one which goes on by itself ends.
    let chain = Chain { hops: own.chain.hops.saturating_add(1), ancestors: asked.chain.ancestors };
    let correlation = queued.correlation.clone().or_else(|| own.correlation.clone());
    Ok(Some(Inbound { ask, origin: Origin::Report { of: queued.turn.clone() }, chain, correlation }))
}
