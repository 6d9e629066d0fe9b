//! A recorded message with another model, as a turn of a session of its own: it is recorded, charged and can be looked at like
//! any other, and does nothing.

use std::sync::Arc;

use drupe_agent::{
    Batch, Journal, Model, TurnScope, ids,
    run::{TurnOutcome, Used},
};
use drupe_extension_api::{
    AgentResponse, CorrelationId, Definition, EventBody, FailureClass, Fault, Preview, SessionId, Spend,
    wire::{QueueMode, Submit},
};
use drupe_journal::{Inbound, Origin, QueuedTurn, StoreError, TurnDone, TurnRows, TurnStart};
use drupe_models::NamedBy;
use drupe_replay::{AnsweredFromRecords, Compared, Incomparable, Recording, Resolve};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{kernel::Kernel, turn};

/// What is noted of a comparison from its beginning on. The next kernel ends one that was cut off, and asks nobody: it would
/// answer the message as any other, with tools that do something.
const NOT_GONE_ON_WITH: &str = "a comparison of models does not go on after a restart";

/// How the name of its session begins; an id of 32 hexadecimal digits follows.
const SESSION: &str = "replay-";

/// Whether a session is one of a comparison: its turn was told of another session's.
pub fn is_its_session(session: &SessionId) -> bool {
    let id = session.as_str().strip_prefix(SESSION);
    id.is_some_and(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Runs it to its end. Gives its rows and how many calls had no result in the recording, or why nothing was asked.
pub async fn run(
    kernel: &Arc<Kernel>,
    recording: Recording,
    model: &str,
    cancel: CancellationToken,
) -> Result<Result<(TurnRows, u32), Incomparable>, Fault> {
    let (store, turns) = (&kernel.store, &kernel.intake.turns);
    let queued = accepted(kernel, &recording, model).await?;
    let (session, turn) = (queued.inbound.ask.session.clone(), queued.turn.clone());
    store.cancel_turn(&turn, NOT_GONE_ON_WITH.into()).await?;
    turn::open_session(turns, &queued).await?;
    let correlation = CorrelationId::new(Uuid::now_v7().simple().to_string())?;
    store
        .start_turn(TurnStart {
            turn: turn.clone(),
            session: session.clone(),
            root: ids::root_invocation(&turn),
            correlation: correlation.clone(),
            events: vec![(None, EventBody::TurnStarted { input: Preview::of(&recording.message) })],
        })
        .await?;
    let journal = Arc::new(store.clone()) as Arc<dyn Journal>;
    let scope = TurnScope {
        correlation,
        policy: Arc::new(AnsweredFromRecords),
        clock: Arc::clone(&kernel.base.clock),
        tool_response_max_bytes: recording.tool_response_max_bytes,
        quotas: Arc::clone(&turns.quotas),
        gates: Arc::clone(&turns.gates),
        ratios: Arc::clone(&turns.ratios),
        ..TurnScope::new(session.clone(), turn.clone(), recording.message.clone(), journal)
    };
    let resolve = resolve(kernel);
    let compared = drupe_replay::compare_with(Arc::new(scope), &recording, (model, resolve), &cancel).await;
    let (outcome, unknown) = match compared {
        Ok(Compared { outcome, unknown_calls }) => (outcome, Ok(unknown_calls)),
        Err(why) => {
            let response = AgentResponse::error(FailureClass::Config, why.to_string());
            let last = Batch::empty(session, turn.clone());
            let outcome = TurnOutcome {
                summary: None,
                response,
                spend: Spend::default(),
                diagnostics: Vec::new(),
                used: Used::default(),
                last,
            };
            (outcome, Err(why))
        }
    };
    finish(kernel, outcome).await?;
    let unknown = match unknown {
        Ok(unknown) => unknown,
        Err(why) => return Ok(Err(why)),
    };
    let rows = store.turn_rows(&turn).await?;
    rows.map(|rows| Ok((rows, unknown))).ok_or_else(|| Fault::not_found(format!("there is no turn `{turn}`")))
}

/// The message in a session of its own.
async fn accepted(kernel: &Kernel, recording: &Recording, model: &str) -> Result<QueuedTurn, Fault> {
    let id = Uuid::new_v4();
    let session = SessionId::new(format!("{SESSION}{}", id.simple()))?;
    let ask = Submit {
        model: Some(model.to_owned()),
        queue: Some(QueueMode::Followup),
        ..Submit::new(session, id.to_string(), recording.message.clone())
    };
    let accepted = kernel.store.accept(Inbound::new(ask, Origin::OPERATOR)).await?;
    accepted.queued.ok_or_else(|| Fault::internal("a message that is new has its answer already"))
}

/// Any agent can be asked with the model of the comparison that its parameters and limits let.
fn resolve(kernel: &Arc<Kernel>) -> Resolve {
    let kernel = Arc::clone(kernel);
    Arc::new(move |definition: &Definition| -> Result<Arc<dyn Model>, Incomparable> {
        let Definition { id, models, parameters, limits, .. } = definition;
        let found = kernel.roster.wired.models.resolve_for(NamedBy::Operator, models, parameters, limits);
        let found =
            found.map_err(|error| Incomparable::Model { agent: id.clone(), reason: error.to_string() })?;
        Ok(found.model)
    })
}

async fn finish(kernel: &Kernel, outcome: TurnOutcome) -> Result<(), StoreError> {
    let TurnOutcome { response, spend, diagnostics, last, used: _, summary: _ } = outcome;
    let (status, error, class) = (response.status, response.error.clone(), response.class);
    let completed = EventBody::TurnCompleted { status, error, class, spend };
    let done = TurnDone {
        snapshot: None,
        summary: None,
        response,
        spend,
        diagnostics,
        outbox: None,
        copies: Vec::new(),
        last,
        events: vec![(None, completed)],
        conversation: None,
        start: None,
        ratios: kernel.intake.turns.ratios.changed(),
    };
    kernel.store.finish_turn(done).await.map(drop)
}
