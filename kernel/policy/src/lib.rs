//! The policy of the kernel: which tool calls may run, which a person is asked about, and how the answer comes to the call.
//!
//! It is one for the whole daemon, and every call of every run passes it ([`Policy`]). What is decided is a pure function of
//! the rules, the call and what holds in its session (`rules.rs`). A question is a row of the journal before anybody hears of
//! it; an answer is a change of that row. So it does not matter who answers over which way, nor whether the process that
//! asked is still there.
//!
//! It must not start anything, must not wait while it decides, and must not let a call run without an answer that is in
//! the journal.

mod rules;
mod scope;
mod texts;

use std::{
    collections::{BTreeMap, HashMap},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use drupe_agent::{Answer, Clock, Decision, JournalFault, MAX_HOPS, Need, Policy, PolicyCall, Question};
use drupe_config::{AgentApprovals, ApprovalsConfig, RuleVerdict};
use drupe_extension_api::{
    AgentId, SessionId, ToolName,
    control::{Approval, ApprovalState, StandingGrant},
};
use drupe_journal::{Inbound, Origin, Says, SessionStanding, Settled, Store, StoreError};
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use self::rules::{CallFacts, Ruling, ruling};

/// How long a question waits before it counts as denied: long enough to come back to the desk, short enough that nobody
/// agrees to what was wanted yesterday.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// What agents' manifests add, by agent.
pub type OwnApprovals = Arc<BTreeMap<AgentId, AgentApprovals>>;

/// What is the same for all calls: the rules, the questions, and what was allowed in the sessions that work.
pub struct CallPolicy {
    config: ApprovalsConfig,
    store: Store,
    clock: Arc<dyn Clock>,
    /// Some question was answered; whoever waits looks whether it is theirs.
    answered: Notify,
    /// Some question waits that did not before.
    asked: Notify,
    /// What was allowed in each session that has a turn, with how many turns it has.
    working: Mutex<HashMap<SessionId, (usize, Vec<StandingGrant>)>>,
    /// Held while the journal and `working` may differ.
    changing: tokio::sync::Mutex<()>,
}

impl CallPolicy {
    /// A policy that keeps its questions there.
    pub fn new(config: ApprovalsConfig, store: Store, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            config,
            store,
            clock,
            answered: Notify::new(),
            asked: Notify::new(),
            working: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        })
    }

    /// The policy of one turn, and by what text of strangers came into its session before.
    pub async fn of_turn(
        self: &Arc<Self>,
        inbound: &Inbound,
        own: OwnApprovals,
    ) -> Result<(Arc<dyn Policy>, Option<String>), StoreError> {
        let session = &inbound.ask.session;
        let led_by = match inbound.origin {
            Origin::Spawned { .. } => inbound.chain.ancestors.clone(),
            _ => Vec::new(),
        };
        let (origin, asks) = self.set_off_by(inbound).await?;
        let turn = TurnPolicy { all: Arc::clone(self), session: session.clone(), origin, asks, led_by, own };
        self.working().entry(session.clone()).or_default().0 += 1;
        let _changing = self.changing.lock().await;
        let SessionStanding { tainted_by, grants } = self.store.standing(session).await?;
        if let Some((_, known)) = self.working().get_mut(session) {
            *known = grants;
        }
        Ok((Arc::new(turn), tainted_by))
    }

    /// What set a turn off at the beginning, and whether somebody is there who could be asked: for one that an agent set off
    /// by itself, that of the turn in which it did so. Where that turn is gone, nobody is asked.
    async fn set_off_by(&self, inbound: &Inbound) -> Result<(String, bool), StoreError> {
        let mut asked = inbound.clone();
        // A chain ends after so many links.
        for _ in 0..=2 * MAX_HOPS {
            let (Origin::Spawned { by: before } | Origin::Report { of: before }) = &asked.origin else {
                return Ok((asked.origin.to_string(), asked.somebody_waits()));
            };
            match self.store.asked(before).await? {
                Some(earlier) => asked = earlier,
                None => break,
            }
        }
        Ok((asked.origin.to_string(), false))
    }

    /// Every question, those that wait first.
    pub async fn questions(&self) -> Result<Vec<Approval>, StoreError> {
        self.store.questions().await
    }

    /// Returns when a question waits that did not the last time, or one was answered. For one caller.
    pub async fn until_asked(&self) {
        self.asked.notified().await;
    }

    /// A person's answer to a question, and who it is; none where no question has that id, or begins so. It comes to the
    /// call at once, whatever else its session waits for. Where `shown` is given it is the hash of what the person has read,
    /// and an answer about anything else is refused.
    pub async fn answer_question(
        &self,
        id: &str,
        says: Says,
        shown: Option<String>,
        by: &str,
    ) -> Result<Option<Approval>, StoreError> {
        let changing = self.changing.lock().await;
        let settled = self.store.answer_question(id, says, shown, by.to_owned()).await?;
        if let Some(grant) = settled.as_ref().and_then(|settled| settled.grant.clone())
            && let Some((_, known)) = self.working().get_mut(&grant.session)
        {
            known.retain(|other| !(other.agent == grant.agent && other.about == grant.about));
            known.push(grant);
        }
        drop(changing);
        self.answered.notify_waiters();
        self.asked.notify_one();
        Ok(settled.map(|Settled { approval, .. }| approval))
    }

    /// What is allowed for the rest of a session, while a turn of it is at work.
    pub fn agreed(&self, session: &SessionId) -> Vec<StandingGrant> {
        self.working().get(session).map(|(_, grants)| grants.clone()).unwrap_or_default()
    }

    /// What was allowed for the rest of sessions, the newest first.
    pub async fn grants(&self) -> Result<Vec<StandingGrant>, StoreError> {
        self.store.grants().await
    }

    /// Takes back what was allowed for the rest of a session; none where there is none of that id. Calls that run go on.
    pub async fn revoke_grant(&self, id: &str, by: &str) -> Result<Option<StandingGrant>, StoreError> {
        let _changing = self.changing.lock().await;
        let revoked = self.store.revoke_grant(id, by.to_owned()).await?;
        if let Some(grant) = &revoked
            && let Some((_, known)) = self.working().get_mut(&grant.session)
        {
            known.retain(|other| other.id != grant.id);
        }
        Ok(revoked)
    }

    fn working(&self) -> MutexGuard<'_, HashMap<SessionId, (usize, Vec<StandingGrant>)>> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait(&self, question: &Question) -> Result<Answer, StoreError> {
        self.asked.notify_one();
        loop {
            let mut answered = pin!(self.answered.notified());
            // Before the look, so that an answer after it is heard.
            answered.as_mut().enable();
            match self.store.question(&question.effect, &question.digest).await? {
                Some(answer) if answer.state == ApprovalState::Pending => {}
                Some(answer) => return Ok(answer),
                None => return Ok(Answer { state: ApprovalState::Withdrawn, by: None, given: None }),
            }
            let left = u64::try_from(question.expires_ms.saturating_sub(self.clock.now_ms())).unwrap_or(0);
            tokio::select! {
                biased;
                () = answered => {}
                () = tokio::time::sleep(Duration::from_millis(left)) => {
                    self.store.expire_question(&question.effect).await?;
                    self.asked.notify_one();
                }
            }
        }
    }
}

/// The policy of one turn.
struct TurnPolicy {
    all: Arc<CallPolicy>,
    session: SessionId,
    origin: String,
    /// Whether somebody can be asked.
    asks: bool,
    /// The agents that led to a turn which one of them set off to outlive its own.
    led_by: Vec<AgentId>,
    own: OwnApprovals,
}

impl TurnPolicy {
    /// What was allowed in the session and covers a call. What was allowed before strangers' text was in view does not cover
    /// a call that is asked about for it.
    fn granted(&self, agent: &AgentId, about: &str, for_taint: bool) -> Option<String> {
        let working = self.all.working();
        let (_, grants) = working.get(&self.session)?;
        let covers = |grant: &&StandingGrant| {
            grant.agent == *agent && grant.about == about && (grant.for_taint || !for_taint)
        };
        grants.iter().find(covers).map(|grant| format!("{}, which {} allowed", grant.id, grant.by))
    }
}

impl Policy for TurnPolicy {
    fn decide(&self, call: PolicyCall<'_>) -> Decision {
        let PolicyCall { run, spec, params, .. } = call;
        let path = [&self.led_by[..], &run.behalf, &run.path].concat();
        let facts = CallFacts {
            spec,
            params,
            path: &path,
            origin: &self.origin,
            tainted_by: run.scope.taint.source(),
        };
        let ruling = ruling(&self.all.config, |agent| self.own.get(agent), facts);
        // Most calls are not asked about, and cost nothing more.
        let is_asked = ruling.verdict == RuleVerdict::Ask;
        // What is filled in is for one call.
        let may_last = is_asked && !spec.annotations.needs_input;
        let about = may_last.then(|| scope::key(spec, params)).flatten();
        let granted = about.as_deref().and_then(|about| self.granted(&run.agent, about, ruling.for_taint));
        decided(ruling, &spec.name, about, granted, self.asks)
    }

    fn answer<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Result<Answer, JournalFault>> {
        Box::pin(async { Ok(self.all.wait(question).await?) })
    }
}

/// What becomes of a call by what holds of it, by what was allowed in its session, and by whether somebody can be asked.
fn decided(
    Ruling { verdict, by, for_taint, by_rule }: Ruling,
    name: &ToolName,
    about: Option<String>,
    granted: Option<String>,
    asks: bool,
) -> Decision {
    match verdict {
        RuleVerdict::Allow => Decision::Allow { by: by_rule.then_some(by) },
        RuleVerdict::Deny => Decision::Deny { reason: format!("not run: `{name}` is refused: {by}") },
        RuleVerdict::Ask if granted.is_some() => Decision::Allow { by: granted },
        RuleVerdict::Ask if !asks => {
            Decision::Deny { reason: format!("not run: {by}, and nobody is there to be asked") }
        }
        RuleVerdict::Ask => {
            let patience_ms = u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX);
            Decision::Ask(Need { why: by, patience_ms, about, for_taint })
        }
    }
}

impl Drop for TurnPolicy {
    fn drop(&mut self) {
        let mut working = self.all.working();
        if let Some((turns, _)) = working.get_mut(&self.session) {
            *turns -= 1;
            if *turns == 0 {
                working.remove(&self.session);
            }
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
#[path = "trees_tests.rs"]
mod trees;
