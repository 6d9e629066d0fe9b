//! The daemon, asked for whoever bears a token. What its bearer may do is decided there.

use std::sync::Arc;

use drupe_extension_api::{
    AgentId, Event, Fault, SessionId, TurnId,
    control::{
        AgentStatus, Approval, ApprovalAnswer, EventsSubscribe, ItemArgument, ItemText, Power, SessionDetail,
        SessionSelect, SessionShow, SessionStatus, TurnArgument, TurnResult, Whoami, method,
    },
    sdk::{Host, Items},
    wire::{Submit, Submitted},
};
use serde::{Serialize, de::DeserializeOwned};

#[derive(Clone)]
pub struct BearersDaemon {
    pub host: Host,
    token: Arc<str>,
    who: Arc<Whoami>,
}

impl BearersDaemon {
    pub fn new(host: Host, token: &str, who: Whoami) -> Self {
        Self { host, token: token.into(), who: Arc::new(who) }
    }

    async fn ask<R: DeserializeOwned>(
        &self,
        method: &str,
        params: impl Serialize + Send,
    ) -> Result<R, Fault> {
        self.host.control_for(Some(&self.token), method, params).await
    }

    pub fn may(&self, powers: &[Power]) -> bool {
        powers.iter().all(|power| self.who.may.contains(power))
    }

    /// The name below which sessions of this bearer's editors are made.
    pub fn above(&self) -> &str {
        self.who.sessions.as_deref().unwrap_or("acp")
    }

    pub fn workspace(&self) -> String {
        self.host.workspace().display().to_string()
    }

    pub async fn agents(&self) -> Result<Vec<AgentStatus>, Fault> {
        self.ask(method::AGENTS_LIST, ()).await
    }

    pub async fn sessions(&self) -> Result<Vec<SessionStatus>, Fault> {
        self.ask(method::SESSIONS_LIST, ()).await
    }

    /// A session without its turns.
    pub async fn session(&self, id: &SessionId) -> Result<SessionDetail, Fault> {
        let ask = SessionShow { id: id.to_string(), after: Some(SessionShow::BEHIND_ALL), brief: true };
        self.ask(method::SESSIONS_SHOW, ask).await
    }

    /// Who answers in a session; none gives it back to the orchestrator.
    pub async fn select(&self, session: &SessionId, agent: Option<AgentId>) -> Result<(), Fault> {
        self.ask(method::SESSION_SELECT, SessionSelect { session: session.clone(), agent }).await
    }

    pub async fn events(&self, session: &SessionId, after: u64, follow: bool) -> Result<Items<Event>, Fault> {
        let ask = EventsSubscribe { session: session.clone(), after, follow };
        self.host.open_for(Some(&self.token), method::EVENTS_SUBSCRIBE, ask).await
    }

    pub async fn item(&self, session: &SessionId, id: String) -> Result<ItemText, Fault> {
        self.ask(method::ITEMS_SHOW, ItemArgument { session: session.clone(), id }).await
    }

    pub async fn submit(&self, message: Submit) -> Result<Submitted, Fault> {
        self.ask(method::TURN_SUBMIT, message).await
    }

    /// How a turn stands.
    pub async fn turn(&self, turn: TurnId) -> Result<TurnResult, Fault> {
        self.ask(method::TURN_WAIT, TurnArgument { now: true, ..TurnArgument::brief(turn) }).await
    }

    pub async fn stop(&self, turn: TurnId) -> Result<(), Fault> {
        self.ask(method::TURN_STOP, TurnArgument::brief(turn)).await
    }

    pub async fn approvals(&self) -> Result<Vec<Approval>, Fault> {
        self.ask(method::APPROVALS_LIST, ()).await
    }

    pub async fn answer(&self, answer: ApprovalAnswer) -> Result<Approval, Fault> {
        self.ask(method::APPROVALS_ANSWER, answer).await
    }
}
