//! One turn: from the accepted message to the recorded answer.

use std::sync::{Arc, OnceLock};

use drupe_agent::{
    Batch, Behalf, CHANGED, Conditional, Detaches, Hooks, Journal, RecordedTurn, SpawnedAgents, Steering,
    Stopwatch, Taint, TurnScope, ids,
    run::{self, TurnOutcome, TurnRoot, Used},
};
use drupe_extension_api::{
    AgentResponse, CorrelationId, DefinitionLimits, EventBody, FailureClass, Preview, Spend, TurnId,
    control::{ExitRecord, SessionSnapshot},
    wire::HookPoint,
};
use drupe_journal::{
    Counted, Origin, Outbound, QueuedTurn, Store, StoreError, SummedUp, TurnDone, TurnStart,
};
use drupe_wiring::{Snapshot, personas};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{extension::Roster, outbox::Outbox, settings};
use drupe_agent::Ratios;
use drupe_limits::{GatePermit, Gates, Quotas, TurnPlace};
use drupe_policy::CallPolicy;

mod detached;
mod earlier;
mod handoff;
mod plan;
mod preparation;
mod resumed;
mod route;

pub use detached::{Reports, inbound as detached_inbound};
pub use earlier::{Audience, Earlier, ToldBefore};
use handoff::Speakers;
use plan::Plan;
use preparation::{gathers, prepare};
use route::ChosenBy;
pub use route::{Route, route, wants_its_own};

/// Crashes during a turn after which it is taken to be what crashes kernels.
const MOST_CRASHES: usize = 3;

/// The same where each of them was an extension's: as many as the supervisor tells of.
const MOST_EXPLAINED: usize = 10;

/// What turns are answered with.
pub struct Turns {
    pub store: Store,
    pub roster: Arc<Roster>,
    pub outbox: Arc<Outbox>,
    /// What days, sessions and agents may spend, and have spent.
    pub quotas: Arc<Quotas>,
    /// How much may run at once.
    pub gates: Arc<Gates>,
    /// Bytes of a token, by model.
    pub ratios: Arc<Ratios>,
    /// Decides about tool calls.
    pub policy: Arc<CallPolicy>,
    /// What the ends of turns set off.
    pub reports: Reports,
}

/// What a turn runs with that its session has.
#[derive(Clone)]
pub struct Within {
    /// Cancelled when it is to end.
    pub cancel: CancellationToken,
    /// The session's gate.
    pub gate: Arc<Semaphore>,
    /// Messages that it may take in.
    pub steering: Arc<Steering>,
    /// How its time goes.
    pub time: Arc<OnceLock<Stopwatch>>,
    /// Its place among the turns that go on at the same time.
    pub place: Arc<TurnPlace>,
    /// The agents that its runs have working beside them.
    pub spawned: Arc<SpawnedAgents>,
    /// Begins those that outlive it.
    pub detaches: Option<Arc<dyn Detaches>>,
}

/// Answers a message, or goes on answering it where an earlier kernel was interrupted.
pub async fn answer(turns: &Turns, queued: QueuedTurn, within: Within) -> Result<(), StoreError> {
    if queued.cancelled.is_some() || within.cancel.is_cancelled() {
        let response = stopped(queued.cancelled.as_deref());
        return end(turns, queued, response).await;
    }
    let snapshot = turns.roster.today().await;
    let inbound = &queued.inbound;
    let own = turns.store.personas(&inbound.ask.session).await?;
    let snapshot = match own.is_empty() {
        true => snapshot,
        false => match personas::with(&snapshot, &own, &turns.roster.base.config) {
            Ok(with) => Arc::new(with),
            Err(why) => {
                return end(turns, queued, AgentResponse::error(FailureClass::Config, why.to_string())).await;
            }
        },
    };
    let correlation = correlation(&queued)?;
    let recorded = recorded(turns, &queued).await?;
    open_session(turns, &queued).await?;
    let mut speakers = Speakers::at_a_message(&snapshot, &queued);
    let plan = planned(turns, &snapshot, &queued, &mut speakers, false).await?;
    let root = ids::root_invocation(&queued.turn);
    let before = resumed::before(turns, &snapshot, &queued).await?;
    let mut start = TurnStart {
        turn: queued.turn.clone(),
        session: inbound.ask.session.clone(),
        root: root.clone(),
        correlation: correlation.clone(),
        events: Vec::new(),
    };
    if !queued.started {
        start.events.push((None, EventBody::TurnStarted { input: Preview::of(&inbound.ask.text) }));
        if let Ok(Plan { chosen_by: Some(by), .. }) = &plan {
            start.events.push((None, EventBody::SubagentSelected { by: by.name().to_owned() }));
        }
    }
    start.events.extend(before.told().map(|event| (None, event)));
    let mut plan = match plan {
        Ok(plan) => plan,
        Err(response) => {
            start.events.extend(speakers.told().into_iter().map(|event| (None, event)));
            return without_a_run(turns, queued, Some(start), recorded, response, speakers).await;
        }
    };
    let mut held = place(turns, &plan, &within.cancel).await;
    let journal: Arc<dyn Journal>;
    let mut fresh = None;
    if queued.started || code_comes_first(&snapshot, &plan) {
        let starts = turns.store.start_turn(start).await?;
        if kills(&turns.roster.base.start.exits, starts) {
            let response = hopeless(&turns.roster.base.start.exits, starts);
            let speakers = Speakers::left(&queued, &recorded, turns.roster.base.clock.now_ms());
            return without_a_run(turns, queued, None, recorded, response, speakers).await;
        }
        journal = Arc::new(turns.store.clone());
    } else {
        // Its beginning is one transaction with the first thing that it does.
        let beginning = turns.store.beginning(start);
        journal = Arc::clone(&beginning) as Arc<dyn Journal>;
        fresh = Some(beginning);
    }
    let (policy, tainted_by) = turns.policy.of_turn(inbound, Arc::clone(&snapshot.approvals)).await?;
    let span = tracing::info_span!("turn", session = %inbound.ask.session, turn = %queued.turn, correlation = %correlation);
    let _showing = turns.outbox.stream(&snapshot, &queued);
    let scope = Arc::new(TurnScope {
        gate: within.gate,
        hooks: Arc::clone(&snapshot.hooks) as Arc<dyn drupe_agent::Hooks>,
        steering: within.steering,
        time: within.time,
        place: within.place,
        spawned: within.spawned,
        behind: Arc::clone(&turns.roster.life.behind),
        life: turns.roster.life.cancel.clone(),
        detaches: within.detaches,
        policy,
        taint: Taint::new(tainted_by),
        ..scope(turns, &queued, correlation, journal, recorded)
    });
    scope.remark(before.changes.iter().map(|change| format!("{CHANGED}: {change}")));
    let orchestrator = snapshot.orchestrator.definition();
    let (agent, limits) = (plan.agent.id().clone(), &plan.limits);
    // A persona is what the orchestrator is to its session, with other words: it answers on behalf of that.
    let is_persona = own.iter().any(|persona| persona.name == agent);
    let mut root = match plan.chosen_by {
        by if is_persona || by == Some(ChosenBy::Handoff) => {
            let asked = inbound.ask.time_budget_ms.unwrap_or(u64::MAX);
            let whole = DefinitionLimits {
                time_budget_ms: orchestrator.limits.time_budget_ms.min(asked),
                ..orchestrator.limits.clone()
            };
            let behalf = Behalf { agent: &orchestrator.id, limits: &whole };
            TurnRoot::on_behalf(Arc::clone(&scope), agent, limits, behalf, &within.cancel)
        }
        _ => TurnRoot::new(Arc::clone(&scope), agent, limits, &within.cancel),
    };
    let (mut prepared, mut older) = (false, None);
    let response = loop {
        if plan.is_the_orchestrators() && !std::mem::replace(&mut prepared, true) {
            prepare(turns, &snapshot, &queued, &root, &mut plan).await?;
        }
        older = older.or(plan.older.take());
        plan.task.notes.extend(before.reminder(plan.agent.id()));
        let running = root.respond(&plan.agent, std::mem::take(&mut plan.task), speakers.told());
        let (answered, response) = tracing::Instrument::instrument(running, span.clone()).await;
        root = answered;
        if !speakers.heard(&plan, &response, turns.roster.base.clock.now_ms(), &queued.turn) {
            break response;
        }
        // Nobody else is asked once the turn is to end.
        if within.cancel.is_cancelled() {
            break AgentResponse::error(FailureClass::Cancelled, "it was stopped before anybody answered");
        }
        plan = match planned(turns, &snapshot, &queued, &mut speakers, true).await? {
            Ok(next) => next,
            Err(response) => break response,
        };
        drop(held.take());
        held = place(turns, &plan, &within.cancel).await;
        let behalf = plan.keeps.map(|_| &orchestrator.id);
        root = root.then(plan.agent.id().clone(), &plan.limits, behalf);
    };
    drop(held);
    let mut outcome = root.finish(response).await;
    let agreed = turns.policy.agreed(&queued.inbound.ask.session);
    let kept = Kept {
        start: fresh.and_then(|beginning| beginning.rest()),
        snapshot: before.after(&snapshot, &mut outcome, agreed),
        summary: outcome.summary.as_ref().and_then(|summary| Some(older.as_ref()?.summed_up(summary))),
    };
    finish(turns, queued, kept, outcome, speakers).await
}

/// Who answers, with what. Whoever has the conversation and cannot be asked gives it back. `again`: somebody has had the
/// message before.
async fn planned(
    turns: &Turns,
    snapshot: &Snapshot,
    queued: &QueuedTurn,
    speakers: &mut Speakers,
    again: bool,
) -> Result<Result<Plan, AgentResponse>, StoreError> {
    loop {
        match plan::plan(turns, snapshot, queued, &speakers.conversation, again).await? {
            Err(why) if speakers.cannot(&why) => {}
            planned => return Ok(planned),
        }
    }
}

/// A place among the runs of the agent, as for sub-agents. The orchestrator is the turn itself, which has a gate of its own.
async fn place(turns: &Turns, plan: &Plan, cancel: &CancellationToken) -> Option<GatePermit> {
    if plan.is_the_orchestrators() {
        return None;
    }
    cancel.run_until_cancelled(turns.gates.agent(plan.agent.id())).await
}

/// What links everything that a message sets off.
fn correlation(queued: &QueuedTurn) -> Result<CorrelationId, StoreError> {
    match &queued.correlation {
        Some(correlation) => Ok(correlation.clone()),
        None => CorrelationId::new(uuid::Uuid::now_v7().simple().to_string())
            .map_err(|error| StoreError::Record(error.to_string())),
    }
}

/// What the runs of a turn share, whether it goes on or only ends.
fn scope(
    turns: &Turns,
    queued: &QueuedTurn,
    correlation: CorrelationId,
    journal: Arc<dyn Journal>,
    recorded: RecordedTurn,
) -> TurnScope {
    let inbound = &queued.inbound;
    TurnScope {
        correlation,
        base_folder: turns.roster.base.home.workspace().clone(),
        observer: Arc::clone(&turns.roster.bus) as Arc<dyn drupe_agent::Observer>,
        clock: Arc::clone(&turns.roster.base.clock),
        tool_response_max_bytes: turns.roster.base.config.tool_response_max_bytes,
        records: recorded.into(),
        chain: inbound.chain.clone(),
        quotas: Arc::clone(&turns.quotas),
        gates: Arc::clone(&turns.gates),
        topics: Arc::clone(&turns.roster.bus) as Arc<dyn drupe_agent::Topics>,
        ratios: Arc::clone(&turns.ratios),
        ..TurnScope::new(inbound.ask.session.clone(), queued.turn.clone(), inbound.ask.text.clone(), journal)
    }
}

/// Whether code of an extension runs before the loop records anything. Should it end the turns, the turn must be seen to
/// have begun, or it would be begun again for ever.
fn code_comes_first(snapshot: &Snapshot, plan: &Plan) -> bool {
    let hooked = |point| snapshot.hooks.wants(point);
    let is_code = snapshot.agents.get(plan.agent.id()).is_some_and(|entry| entry.looping.is_none());
    is_code || gathers(snapshot, plan) || hooked(HookPoint::TurnStart) || hooked(HookPoint::BeforeModel)
}

/// What the session has used so far counts against its limits, and against those of the tokens whose session it is.
pub async fn open_session(turns: &Turns, queued: &QueuedTurn) -> Result<(), StoreError> {
    let (session, now_ms) = (&queued.inbound.ask.session, turns.roster.base.clock.now_ms());
    let new = queued.earlier_turns == 0 && !queued.started;
    let used = if new { Counted::default() } else { turns.store.used_by_session(session).await? };
    turns.quotas.open_session(session, settings::counted(used));
    for purse in turns.quotas.unknown_purses(session, now_ms) {
        let used = turns.store.used_below(purse.sessions().to_owned(), now_ms).await?;
        turns.quotas.open_purse(purse, settings::counted(used));
    }
    Ok(())
}

/// Ends a turn that cannot be answered, with an error.
pub async fn give_up(turns: &Turns, turn: &TurnId, reason: &str) -> Result<(), StoreError> {
    let Some(queued) = turns.store.queued(turn).await? else { return Ok(()) };
    end(turns, queued, AgentResponse::error(FailureClass::Internal, reason)).await
}

/// What earlier processes recorded of a turn, read once; what they left open is closed.
async fn recorded(turns: &Turns, queued: &QueuedTurn) -> Result<RecordedTurn, StoreError> {
    match queued.started {
        true => Ok(turns.store.resume(&queued.turn).await?.recorded),
        false => Ok(RecordedTurn::default()),
    }
}

/// Ends a turn that is not begun, or not gone on with.
pub async fn end(turns: &Turns, queued: QueuedTurn, response: AgentResponse) -> Result<(), StoreError> {
    let recorded = recorded(turns, &queued).await?;
    let speakers = Speakers::left(&queued, &recorded, turns.roster.base.clock.now_ms());
    without_a_run(turns, queued, None, recorded, response, speakers).await
}

/// The one way in which a turn ends without a run: what an earlier process began of it ends as well, and a model call that
/// was cut off counts as used. `start` is recorded with the end of a turn that had not begun.
async fn without_a_run(
    turns: &Turns,
    queued: QueuedTurn,
    start: Option<TurnStart>,
    recorded: RecordedTurn,
    response: AgentResponse,
    speakers: Speakers,
) -> Result<(), StoreError> {
    let (session, turn) = (queued.inbound.ask.session.clone(), queued.turn.clone());
    let nothing = |response| {
        let last = Batch::empty(session, turn);
        TurnOutcome {
            response,
            spend: Spend::default(),
            diagnostics: Vec::new(),
            used: Used::default(),
            summary: None,
            last,
        }
    };
    if !queued.started {
        let kept = Kept { start, ..Kept::default() };
        return finish(turns, queued, kept, nothing(response), speakers).await;
    }
    open_session(turns, &queued).await?;
    let journal = Arc::new(turns.store.clone());
    let scope = scope(turns, &queued, correlation(&queued)?, journal, recorded);
    let abandoned = run::abandon_turn(Arc::new(scope), response.clone());
    let outcome = abandoned.unwrap_or_else(|| nothing(response));
    finish(turns, queued, Kept::default(), outcome, speakers).await
}

/// What is kept with the end of a turn.
#[derive(Default)]
struct Kept {
    /// Its beginning, where that is not kept yet.
    start: Option<TurnStart>,
    /// What its session has made use of.
    snapshot: Option<SessionSnapshot>,
    /// What came of summing up older turns.
    summary: Option<SummedUp>,
}

/// Records the answer and what goes out, in one transaction, and has it delivered.
async fn finish(
    turns: &Turns,
    queued: QueuedTurn,
    Kept { start, snapshot, summary }: Kept,
    outcome: TurnOutcome,
    mut speakers: Speakers,
) -> Result<(), StoreError> {
    let TurnOutcome { response, spend, diagnostics, last, used: _, summary: _ } = outcome;
    let report = match &queued.inbound.origin {
        Origin::Spawned { by } => detached::report(&turns.store, &queued, by, &response).await?,
        _ => None,
    };
    let inbound = queued.inbound;
    let (status, error, class) = (response.status, response.error.clone(), response.class);
    let completed = EventBody::TurnCompleted { status, error, class, spend };
    // Whether the channel is there at this moment does not matter: the row waits for it.
    let outbox = (!inbound.ask.channel.is_empty()).then(|| Outbound {
        channel: inbound.ask.channel.clone(),
        address: inbound.ask.address.clone(),
        text: response.content.clone(),
    });
    // A look that found nothing is no answer that anybody waits for.
    let nothing = spend.turns == 0 && response.content == Conditional::NOTHING;
    let copies = match nothing {
        true => Vec::new(),
        false => turns.outbox.copies(&inbound.ask.session, &response.content),
    };
    let done = TurnDone {
        response,
        spend,
        diagnostics,
        outbox,
        copies,
        last,
        events: speakers.told().into_iter().chain([completed]).map(|event| (None, event)).collect(),
        conversation: speakers.changed(),
        snapshot,
        summary,
        start,
        ratios: turns.ratios.changed(),
    };
    let delivery = match report {
        Some(report) => {
            let (delivery, accepted) = turns.store.finish_turn_with(done, report).await?;
            accepted.queued.into_iter().for_each(|queued| turns.reports.add(queued));
            delivery
        }
        None => turns.store.finish_turn(done).await?,
    };
    if delivery.is_some() {
        turns.outbox.wake();
    }
    Ok(())
}

/// Whether kernels crashed so often while this turn was at work that it is taken to be what crashes them. A crash that is
/// certainly an extension's is none of the turn's doing: that extension is quarantined before long. Should it crash again
/// and again all the same, the turn may be what makes it.
fn kills(exits: &[ExitRecord], starts: u32) -> bool {
    let earlier = usize::try_from(starts).unwrap_or(usize::MAX).saturating_sub(1);
    let crashes = || exits.iter().take(earlier).filter(|exit| exit.crash);
    let unexplained = |exit: &ExitRecord| exit.crash && exit.blamed.len() != 1;
    let last = exits.first();
    (last.is_some_and(unexplained) && crashes().filter(|exit| unexplained(exit)).count() >= MOST_CRASHES)
        || (last.is_some_and(|exit| exit.crash) && crashes().count() >= MOST_EXPLAINED)
}

/// What a turn reports that is taken to be what crashes kernels.
fn hopeless(exits: &[ExitRecord], starts: u32) -> AgentResponse {
    let (class, by) = match exits.first().map(|exit| exit.blamed.as_slice()) {
        Some([one]) => (FailureClass::Tool, format!("extension `{}` crashed the daemon", one.extension)),
        _ => (FailureClass::Internal, "the daemon crashed".to_owned()),
    };
    let message = format!(
        "it was begun {starts} times, and {by} each time, so it is not tried again; `drupe status` shows the crashes, and \
         the same message sent anew is tried anew"
    );
    AgentResponse::error(class, message)
}

/// What a turn reports that was stopped before it went on.
pub fn stopped(why: Option<&str>) -> AgentResponse {
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    AgentResponse::error(FailureClass::Cancelled, format!("stopped before it began{why}"))
}

#[cfg(test)]
mod tests;
