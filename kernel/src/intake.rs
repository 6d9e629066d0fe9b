//! Messages that come in: each is a row before it is acknowledged, and gets its turn in its session's order.

pub mod sessions;

use std::{borrow::Cow, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use drupe_agent::{Chain, DetachedTask, Detaches};
use drupe_bus::days;
use drupe_extension_api::{
    AgentId, Fault, Message, SessionId,
    wire::{Carried, ClientTool, Submit, Submitted},
};
use drupe_journal::{Accepted, Inbound, Origin, QueuedTurn, StoreError};
use drupe_limits::TurnPlace;
use drupe_models::NamedBy;
use drupe_surface::ends::Ends;
use drupe_wiring::bounds;
use futures_util::{FutureExt, future::BoxFuture};
use jiff::Timestamp;

use self::sessions::Sessions;
use crate::{
    extension::Roster,
    turn::{self, Turns, Within},
};

/// The longest id, and the longest address, that a client has for a message, in bytes: they stand in each row of it.
const LONGEST_ID: usize = 1024;

/// The first pause before a turn that could not be recorded is tried again, and the longest: a full disk is not freed
/// within milliseconds.
const RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Takes messages in, and has them answered.
pub struct Intake {
    pub roster: Arc<Roster>,
    pub turns: Turns,
    /// Turns that wait and run.
    pub sessions: Sessions,
    /// Who waits for the end of a turn.
    pub ends: Arc<Ends>,
}

impl Intake {
    /// Takes a message in. Once this returns it will be answered, whatever happens to this process.
    /// `chain` is what set it off through events.
    pub async fn submit(
        self: &Arc<Self>,
        origin: Origin,
        submit: Submit,
        chain: Chain,
    ) -> Result<Submitted, Fault> {
        if submit.text.trim().is_empty() {
            return Err(Fault::invalid("the message is empty"));
        }
        let address = submit.address.as_deref().unwrap_or_default();
        for (what, given) in [("external_id", submit.external_id.as_str()), ("address", address)] {
            if given.len() > LONGEST_ID {
                let message = format!("`{what}` has {} bytes; it may have {LONGEST_ID}", given.len());
                return Err(Fault::invalid(message));
            }
        }
        let answer_fault = |output| bounds::answer_fault(output, &self.roster.wired.lasting.schemas);
        if let Some(why) = submit.output.as_ref().and_then(answer_fault) {
            return Err(Fault::invalid(why));
        }
        if let Some(carried) = &submit.carried {
            check_carried(carried)?;
            self.check_client_tools(&carried.tools, submit.agent.as_ref())?;
        }
        if let Some(agent) = &submit.agent
            && let Err(fault) = self.roster.agent(&self.roster.snapshot(), agent)
            && !self.turns.store.personas(&submit.session).await?.iter().any(|own| own.name == *agent)
        {
            return Err(fault);
        }
        if let Some(model) = &submit.model {
            // The bearer of a token is no operator: it names no file and no endpoint.
            let by = match origin {
                Origin::Client { token: None } => NamedBy::Operator,
                _ => NamedBy::Extension,
            };
            let resolved = self.roster.wired.models.resolve(by, std::slice::from_ref(model));
            resolved.map_err(|e| Fault::invalid(e.to_string()))?;
        }
        let queue = submit.queue.unwrap_or(self.roster.base.config.inbox.queue);
        let ask = Submit { queue: Some(queue), ..submit };
        self.take_in(Inbound { ask, origin, chain, correlation: None }).await
    }

    /// Tools of a client must be ones that can be offered, beside those of the agent that is asked for. What the session's
    /// own choice of an agent has is looked at when the turn begins.
    fn check_client_tools(&self, tools: &[ClientTool], agent: Option<&AgentId>) -> Result<(), Fault> {
        if let Some(why) = bounds::client_tools_fault(tools, &self.roster.wired.lasting.schemas) {
            return Err(Fault::invalid(why));
        }
        let snapshot = self.roster.snapshot();
        let looping = match agent {
            Some(id) => snapshot.agents.get(id).and_then(|entry| entry.looping.as_ref()),
            None => Some(&snapshot.orchestrator),
        };
        let has =
            |tool: &&ClientTool| looping.is_some_and(|it| it.registry().get(tool.name.as_str()).is_some());
        match tools.iter().find(has) {
            Some(ClientTool { name, .. }) => Err(Fault::invalid(format!(
                "the client's tool `{name}` is named like a tool of the agent; give it another name"
            ))),
            None => Ok(()),
        }
    }

    /// Records a message and queues its turn, both or neither.
    pub async fn take_in(self: &Arc<Self>, inbound: Inbound) -> Result<Submitted, Fault> {
        let store = self.turns.store.clone();
        let inbound = self.redacted(inbound)?;
        let (origin, session) = (inbound.origin.clone(), inbound.ask.session.clone());
        let taken =
            self.taken_in(&origin, session, async move { store.accept(inbound).await.map(Some) }).await?;
        taken.ok_or_else(|| Fault::internal("a message that was accepted has no turn"))
    }

    /// Begins a run of a schedule with the turn that does it; none where it has begun already.
    pub async fn take_in_run(
        self: &Arc<Self>,
        schedule: String,
        slot: Timestamp,
        inbound: Inbound,
    ) -> Result<Option<Submitted>, Fault> {
        let store = self.turns.store.clone();
        let inbound = self.redacted(inbound)?;
        let (origin, session) = (inbound.origin.clone(), inbound.ask.session.clone());
        let begin = async move { Ok(store.begin_run(schedule, slot, Some(inbound)).await?.flatten()) };
        self.taken_in(&origin, session, begin).await
    }

    /// A message without secrets, whoever wrote it: it is kept, and a model reads it.
    fn redacted(&self, inbound: Inbound) -> Result<Inbound, Fault> {
        let written = serde_json::to_vec(&inbound.ask).map_err(Fault::internal)?;
        Ok(match self.roster.base.redactor.json(&written) {
            Cow::Borrowed(_) => inbound,
            Cow::Owned(clean) => {
                Inbound { ask: serde_json::from_slice(&clean).map_err(Fault::internal)?, ..inbound }
            }
        })
    }

    /// Queues the turn that `accept` records.
    async fn taken_in(
        self: &Arc<Self>,
        origin: &Origin,
        session: SessionId,
        accept: impl Future<Output = Result<Option<Accepted>, StoreError>> + Send + 'static,
    ) -> Result<Option<Submitted>, Fault> {
        let coming = self.sessions.check_room(origin)?;
        let intake = Arc::clone(self);
        let work = async move {
            let Some(accepted) = accept.await? else { return Ok(None) };
            intake.sessions.interrupt(&session, &accepted.superseded);
            // A duplicate, too: its first sender may have gone before it was queued.
            if let Some(queued) = accepted.queued {
                intake.push(queued);
            }
            drop(coming);
            Ok(Some(Submitted { turn: accepted.turn, duplicate: accepted.duplicate }))
        };
        self.roster.life.whole(work).await
    }

    /// Queues a turn, once. While the kernel ends it only stays in the journal, where the next kernel finds it.
    pub fn push(self: &Arc<Self>, turn: QueuedTurn) {
        if self.roster.life.ending.decided().is_none()
            && let Some(session) = self.sessions.push(turn)
        {
            self.begin(session);
        }
    }

    /// Lets turns run, those first that were queued so far.
    pub fn open(self: &Arc<Self>) {
        self.sessions.open().into_iter().for_each(|session| self.begin(session));
    }

    fn begin(self: &Arc<Self>, session: SessionId) {
        let intake = Arc::clone(self);
        self.roster.life.tasks.spawn(async move { intake.work(&session).await });
    }

    /// Works off the queue of one session.
    async fn work(self: &Arc<Self>, session: &SessionId) {
        let next = || {
            let more = self.roster.life.ending.decided().is_none();
            self.sessions.next(session, more, || self.turns.quotas.close_session(session))
        };
        while let Some((queued, within)) = next() {
            let turn = queued.turn.clone();
            let within = Within { detaches: Some(Arc::new(Detached(Arc::clone(self)))), ..within };
            // What is not finished when the kernel ends is gone on with by the next one. In a box, because a task is moved
            // whole when it is spawned.
            let answering = Box::pin(self.until_recorded(queued, within));
            self.roster.life.cancel.run_until_cancelled(answering).await;
            // Those that were not taken in are answered next, in their order.
            for given in self.sessions.ended(session).into_iter().rev() {
                match self.turns.store.queued(&given).await {
                    Ok(Some(queued)) => self.sessions.give_back(session, queued),
                    Ok(None) => {}
                    // It is in the journal, where the next kernel finds it.
                    Err(error) => {
                        tracing::error!(turn = %given, %error, "a message that was not taken in cannot be read")
                    }
                }
            }
            self.roster.life.ending.turn_ended(&turn);
        }
        if days::is_of_messages(session) {
            // The next message may come: not before nothing is left here, or it would find the agent at work and wait for a minute.
            self.roster.topics.come();
        }
    }

    /// Answers a turn. While the journal cannot record it the session waits: its messages are answered in order or not yet.
    async fn until_recorded(&self, mut queued: QueuedTurn, mut within: Within) {
        let origin = queued.inbound.origin.clone();
        let gone = || origin.extension().filter(|_| !queued.started).and_then(|id| self.roster.gone(id));
        // Beyond the configured number turns wait in the order in which they came. One that is only to end needs no room.
        let mut cancelled = queued.cancelled.clone().or_else(gone);
        if cancelled.is_none() {
            let place = TurnPlace::take(Arc::clone(&self.turns.gates), origin.share().map(Cow::into_owned));
            if let Some(place) = within.cancel.run_until_cancelled(place).await {
                within.place = Arc::new(place);
            }
        }
        if !queued.started && self.roster.life.ending.decided().is_some() {
            // Room came of the drain. The next kernel begins with it.
            return;
        }
        self.sessions.begin(&queued.inbound.ask.session);
        // It may have gone meanwhile.
        cancelled = cancelled.or_else(gone);
        queued.cancelled = cancelled;
        // While it waited another turn may have changed who talks with the user.
        match self.turns.store.queued(&queued.turn).await {
            Ok(Some(now)) => queued.state = now.state,
            Ok(None) => {}
            Err(error) => {
                tracing::error!(turn = %queued.turn, %error, "who answers is decided as it was before")
            }
        }
        let mut next = Some(queued);
        let mut wait = RETRY;
        while let Some(queued) = next {
            let turn = queued.turn.clone();
            let answered = Box::pin(turn::answer(&self.turns, queued, within.clone()));
            let error = match AssertUnwindSafe(answered).catch_unwind().await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                Err(_) => {
                    match turn::give_up(&self.turns, &turn, "the kernel panicked while it answered").await {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
            };
            tracing::error!(%turn, %error, ?wait, "the turn could not be recorded; it is tried again");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_RETRY);
            next = match self.turns.store.queued(&turn).await {
                Ok(queued) => queued,
                Err(error) => {
                    tracing::error!(%turn, %error, "the journal cannot be read");
                    return;
                }
            };
        }
    }
}

/// Has agents work that outlive the turn in which they were spawned: each is a turn of its own.
struct Detached(Arc<Intake>);

impl Detaches for Detached {
    fn detach(&self, task: DetachedTask) -> BoxFuture<'_, Result<SessionId, Fault>> {
        Box::pin(async move {
            // One that a session alone has would not be there in the session that it works in.
            self.0.roster.agent(&self.0.roster.snapshot(), &task.agent)?;
            let inbound = turn::detached_inbound(task)?;
            let session = inbound.ask.session.clone();
            self.0.take_in(inbound).await?;
            Ok(session)
        })
    }
}

/// Queues turns that the ends of others set off.
pub async fn take_up_reports(intake: Arc<Intake>) {
    while let Some(reports) =
        intake.roster.life.closing.run_until_cancelled(intake.turns.reports.next()).await
    {
        reports.into_iter().for_each(|turn| intake.push(turn));
    }
}

/// Ends turns that wait for room when what set them off does not work any more, whatever was changed.
pub async fn give_up_those_of_gone(intake: Arc<Intake>) {
    let mut changes = intake.roster.wired.changes();
    let watching = async {
        while changes.changed().await.is_ok() {
            intake.sessions.give_up(|extension| intake.roster.gone(extension).is_some());
        }
    };
    intake.roster.life.closing.run_until_cancelled(watching).await;
}

/// What a client brings along must be a conversation, and parameters that mean the same to every provider.
fn check_carried(carried: &Carried) -> Result<(), Fault> {
    let said = |message: &Message| match message {
        Message::User { .. } => true,
        Message::Assistant { tool_calls, provider_items, .. } => {
            tool_calls.is_empty() && provider_items.is_none()
        }
        Message::Tool { .. } => false,
    };
    if let Some(at) = carried.history.iter().flatten().position(|message| !said(message)) {
        return Err(Fault::invalid(format!(
            "message {at} of the history is no text of a user or of the assistant"
        )));
    }
    match carried.parameters.extra.is_empty() {
        true => Ok(()),
        false => Err(Fault::invalid(
            "parameters that a provider is given as they are stand in an agent's manifest alone",
        )),
    }
}
