//! The methods: one table for the control socket and for extensions that hold the right.

use std::sync::Arc;

use drupe_agent::{Chain, one_line};
use drupe_config::{Manifest, Right};
use drupe_extension_api::{
    AgentId, ExtensionId, Fault, FaultCode, SessionId, TurnId,
    control::{
        Approval, ApprovalAnswer, ConfigValue, DaemonState, ExtensionDetail, ExtensionStatus, Named,
        Numbered, PathArgument, Restart, Scaffold, SessionSelect, SessionShow, Status, TurnArgument,
        TurnResult, method,
    },
    wire::{Submit, Submitted},
};
use drupe_gate::survey::{model_names, nothing_waits};
use drupe_journal::{Origin, QueuedTurn, StoreError, disk};
use drupe_link::Up;
use drupe_wiring::NOTICE;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};

use super::insight;
use crate::{
    channels,
    draft::Draft,
    ending::Why,
    extension::{Record, change, handles::Holder, lifecycle},
    kernel::{Kernel, store_fault},
    sessions::Stopped,
    turn,
};

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub enum Caller<'a> {
    /// Somebody with the home's token.
    Operator,
    /// An extension with the right `control`.
    Extension(Asking<'a>),
}

/// An extension that asks for something.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// Which one.
    pub manifest: &'a Manifest,
    /// Its instance.
    pub holder: &'a Holder,
    /// The token of the call on whose behalf it asks; empty where it asks by itself.
    pub token: &'a str,
}

impl Caller<'_> {
    /// The extension that asks.
    fn extension(&self) -> Option<&ExtensionId> {
        match self {
            Self::Operator => None,
            Self::Extension(asking) => Some(&asking.manifest.id),
        }
    }
}

// What is large and rare is in a box: each request is a task, which is as large as the largest of its branches.

/// Answers one request, but for `hello` and `events.subscribe`, which belong to a connection.
pub async fn call(
    kernel: &Arc<Kernel>,
    caller: Caller<'_>,
    name: &str,
    params: &RawValue,
) -> Result<Box<RawValue>, Fault> {
    match name {
        method::STATUS => give(status(kernel).await?),
        method::STOP => {
            operator_only(caller, name)?;
            kernel.tell_supervisor(&Up::StopAgreed);
            kernel.ending.request(Why::Stop, None);
            give(())
        }
        method::RESTART => {
            operator_only(caller, name)?;
            let Restart { reason } = take_or_default(params)?;
            let reason = reason.unwrap_or_else(|| "the operator asked for it".into());
            give(Box::pin(kernel.request_restart(reason, None, false)).await?)
        }
        method::EXTENSIONS_LIST => give(kernel.extensions.read(Record::status)),
        method::EXTENSIONS_SHOW => give(show(kernel, take::<Named>(params)?.id).await?),
        method::EXTENSIONS_CHECK => {
            let PathArgument { path } = take(params)?;
            give(Box::pin(Draft::new(kernel, path, caller.extension()).check(kernel)).await?)
        }
        method::EXTENSIONS_ADD => {
            let PathArgument { path } = take(params)?;
            give(Box::pin(Draft::new(kernel, path, caller.extension()).add(kernel)).await?)
        }
        method::EXTENSIONS_SCAFFOLD => {
            let Scaffold { id, path } = take(params)?;
            give(Box::pin(Draft::new(kernel, path, caller.extension()).begin(kernel, id)).await?)
        }
        method::EXTENSIONS_ENABLE | method::EXTENSIONS_DISABLE | method::EXTENSIONS_RELEASE => {
            operator_only(caller, name)?;
            give(Box::pin(decide(kernel, name, take::<Named>(params)?.id)).await?)
        }
        method::APPROVALS_LIST => {
            // Whoever asks what waits may have put it there this moment, or where nothing is watched.
            if let Caller::Operator = caller {
                change::rescan(kernel).await?;
            }
            give(kernel.store.activations().await.map_err(store_fault)?)
        }
        method::APPROVALS_ANSWER => {
            operator_only(caller, name)?;
            give(Box::pin(answer(kernel, take(params)?)).await?)
        }
        method::AGENTS_LIST => give(agents(kernel)),
        method::AGENTS_SHOW => {
            let id = AgentId::new(take::<Named>(params)?.id)?;
            kernel.offered(&id)?;
            give(kernel.snapshot().detail(&id)?)
        }
        method::SESSIONS_LIST => give(kernel.store.sessions().await.map_err(store_fault)?),
        method::SESSIONS_SHOW => {
            let SessionShow { id, after, brief } = take(params)?;
            let id = SessionId::new(id)?;
            let session = kernel.store.session(&id, after.unwrap_or(0), brief).await.map_err(store_fault)?;
            give(session.ok_or_else(|| no_session(&id))?)
        }
        method::TURN_SUBMIT => {
            let submit: Submit = take(params)?;
            match caller {
                Caller::Operator
                    if !submit.channel.is_empty()
                        && !channels::carries(&kernel.snapshot(), &submit.channel) =>
                {
                    Err(Fault::not_found(format!("there is no channel `{}`", submit.channel)))
                }
                Caller::Operator => give(kernel.submit(Origin::OPERATOR, submit, Chain::default()).await?),
                Caller::Extension(asking) => give(submit_for(kernel, asking, submit).await?),
            }
        }
        method::SESSION_SELECT => {
            let SessionSelect { session, agent } = take(params)?;
            if let Some(agent) = &agent {
                kernel.offered(agent)?;
                kernel.snapshot().agent(agent)?;
            }
            if !kernel.store.select_agent(&session, agent).await.map_err(store_fault)? {
                return Err(no_session(&session));
            }
            give(())
        }
        method::SESSIONS_STOP => {
            let id = SessionId::new(take::<Named>(params)?.id)?;
            give(Box::pin(stop_session(kernel, &id)).await?)
        }
        method::TURN_WAIT => give(found(kernel, wait(kernel, take(params)?).await).await?),
        method::TURN_STOP => {
            let turn = take::<TurnArgument>(params)?.turn;
            match found(kernel, Box::pin(stop_turn(kernel, &turn)).await).await? {
                None => give(()),
                Some(by) => Err(Fault::invalid(format!("turn `{turn}` is a part of turn `{by}` by now"))
                    .help(format!("stop `{by}`"))),
            }
        }
        method::CONFIG_SHOW => give(config(kernel)),
        method::TRACE_SHOW => {
            give(found(kernel, Box::pin(insight::trace(kernel, take(params)?)).await).await?)
        }
        method::USAGE_SHOW => give(kernel.store.usage(take_or_default(params)?).await.map_err(store_fault)?),
        method::WHY => {
            give(found(kernel, Box::pin(insight::why(kernel, &take::<Named>(params)?.id)).await).await?)
        }
        method::ITEMS_SHOW => give(found(kernel, insight::item(kernel, take(params)?).await).await?),
        method::BUS_DEAD => give(kernel.store.dead_messages().await.map_err(store_fault)?),
        method::BUS_RETRY | method::BUS_DROP => {
            operator_only(caller, name)?;
            give(insight::dead(kernel, name == method::BUS_RETRY, take::<Numbered>(params)?.id).await?)
        }
        _ => Err(Fault::unsupported(name)
            .help("the daemon may be older than the client: `drupe restart` after an upgrade")),
    }
}

fn no_session(id: &SessionId) -> Fault {
    Fault::not_found(format!("there is no session `{id}`")).help("`drupe session list` shows them")
}

/// For who asks for what is not there, and may have gone.
async fn found<T>(kernel: &Kernel, asked: Result<T, Fault>) -> Result<T, Fault> {
    match asked {
        Err(fault) if fault.code == FaultCode::NotFound => {
            let gone = kernel.store.gone().await.map_err(store_fault)?;
            let message = gone.map_or(fault.message.clone(), |gone| gone.may_hold(&fault.message));
            Err(Fault { message, ..fault })
        }
        other => other,
    }
}

/// Takes a message in on behalf of an extension: through its own channel, in a conversation of its own.
pub async fn submit_for(
    kernel: &Arc<Kernel>,
    asking: Asking<'_>,
    submit: Submit,
) -> Result<Submitted, Fault> {
    let Asking { manifest, holder, token } = asking;
    let id = &manifest.id;
    if !manifest.rights.contains(&Right::Submit) {
        let message = format!("extension `{id}` may not hand messages in");
        return Err(Fault::denied(message).help("its manifest needs `rights: [submit]`"));
    }
    if !submit.session.as_str().strip_prefix(id.as_str()).is_some_and(|rest| rest.starts_with(':')) {
        let message = format!("extension `{id}` may not speak in session `{}`", submit.session);
        return Err(Fault::denied(message).help(format!("its own sessions begin with `{id}:`")));
    }
    let chain = match token.is_empty() {
        // Its other calls are not what set it off: a channel hears of people while its tool works for one of them.
        true => {
            let cut = |cut: drupe_bus::Cut| Fault::denied(cut.to_string());
            drupe_bus::count_link(&kernel.handles.chains(holder)).map_err(cut)?
        }
        false => {
            let run = kernel.tokens.redeem(id, token)?;
            run.scope.chain.after(&run.path)
        }
    };
    // The answer of one that carries no messages is read from the session.
    let carries = channels::carries(&kernel.snapshot(), id.as_str());
    let channel = if carries { id.to_string() } else { String::new() };
    kernel.submit(Origin::Extension(id.clone()), Submit { channel, ..submit }, chain).await
}

fn take<T: DeserializeOwned>(params: &RawValue) -> Result<T, Fault> {
    serde_json::from_str(params.get())
        .map_err(|error| Fault::invalid(format!("the parameters cannot be read: {error}")))
}

fn take_or_default<T: DeserializeOwned + Default>(params: &RawValue) -> Result<T, Fault> {
    if params.get() == RawValue::NULL.get() { Ok(T::default()) } else { take(params) }
}

fn give(value: impl Serialize) -> Result<Box<RawValue>, Fault> {
    to_raw_value(&value).map_err(Fault::internal)
}

fn operator_only(caller: Caller<'_>, name: &str) -> Result<(), Fault> {
    match caller {
        Caller::Operator => Ok(()),
        Caller::Extension(asking) => {
            Err(Fault::denied(format!("extension `{}` may not use `{name}`", asking.manifest.id)))
        }
    }
}

/// An extension in full, with what happened to it in earlier kernels.
pub(super) async fn show(kernel: &Kernel, id: String) -> Result<ExtensionDetail, Fault> {
    let mut detail = kernel.extensions.detail(&id)?;
    let mut earlier = kernel.store.extension_history(&id).await.map_err(store_fault)?;
    // What this kernel saw is not all written down yet.
    let began = detail.history.first().map(|change| change.time);
    earlier.retain(|change| began.is_none_or(|began| change.time < began));
    earlier.append(&mut detail.history);
    detail.history = earlier;
    Ok(detail)
}

/// The operator turns an extension on or off, or gives it another chance.
async fn decide(kernel: &Arc<Kernel>, name: &str, id: String) -> Result<ExtensionStatus, Fault> {
    kernel.extensions.status(&id)?;
    match name {
        method::EXTENSIONS_RELEASE => change::release(kernel, &id).await?,
        _ => {
            let on = name == method::EXTENSIONS_ENABLE;
            kernel.store.set_enabled(id.clone(), Some(on)).await.map_err(store_fault)?;
            change::rescan(kernel).await?;
        }
    }
    lifecycle::until_settled(kernel, &id).await?;
    kernel.extensions.status(&id)
}

/// The operator agrees, or does not, to what an extension brings.
async fn answer(kernel: &Arc<Kernel>, answer: ApprovalAnswer) -> Result<Approval, Fault> {
    let ApprovalAnswer { id, allow } = answer;
    let give =
        || async { kernel.store.answer_activation(&id, allow, "operator".into()).await.map_err(store_fault) };
    let mut answered = give().await?;
    if answered.is_none() {
        // It may have come this moment, or where nothing is watched.
        change::rescan(kernel).await?;
        answered = give().await?;
    }
    let approval = answered.ok_or_else(|| nothing_waits(&id, kernel.extensions.status(&id).ok()))?;
    change::rescan(kernel).await?;
    lifecycle::until_settled(kernel, &approval.extension).await?;
    Ok(approval)
}

/// What the kernel is doing.
pub async fn status(kernel: &Arc<Kernel>) -> Result<Status, Fault> {
    let counts = kernel.store.counts().await.map_err(store_fault)?;
    let start = &kernel.start;
    let snapshot = kernel.snapshot();
    let mut notices = start.notices.clone();
    let refused = kernel.refused();
    notices.extend(refused.iter().map(|why| format!("the configuration on the disk is not in force: {why}")));
    notices.extend(snapshot.notices.iter().cloned());
    notices.extend(kernel.extensions.passed_over());
    notices.extend(kernel.config.unknown_extensions(&kernel.extensions.read(|r| r.found.name.clone())));
    let working = |r: &Record| r.manifest.clone().filter(|_| !r.state.is_out());
    let manifests = kernel.extensions.read(working).into_iter().flatten();
    let mut models = kernel.config.model_names();
    models.extend(manifests.filter_map(|manifest| model_names(&manifest, &kernel.config)));
    notices.extend(kernel.models.notices(&models, kernel.clock.now_ms()));
    notices.extend(disk::remark(kernel.home.root()));
    notices.extend(kernel.store.gone().await.ok().flatten().map(|gone| gone.to_string()));
    // Whoever made them, in whosever words.
    let notices = notices.iter().map(|notice| one_line(notice, NOTICE)).collect();
    let state = if kernel.ending.decided().is_some() { DaemonState::Draining } else { DaemonState::Ready };
    Ok(Status {
        version: env!("CARGO_PKG_VERSION").into(),
        state,
        supervisor_pid: start.supervisor_pid,
        kernel_pid: Some(std::process::id()),
        generation: start.generation,
        uptime_ms: u64::try_from(kernel.clock.now_ms() - start.began_ms).unwrap_or(0),
        restarts: start.restarts,
        safe_mode: start.safe_mode,
        model: Some(snapshot.orchestrator.model().profile().name.clone()),
        sessions: counts.sessions,
        running_turns: kernel.sessions.running() as u64,
        queued_turns: counts.queued_turns,
        budgets: kernel.quotas.standing(kernel.clock.now_ms()).into_iter().map(|b| b.used).collect(),
        extensions: kernel.extensions.read(Record::status),
        exits: start.exits.clone(),
        notices,
        config_refused: refused.map(|why| one_line(&why, NOTICE)),
    })
}

fn agents(kernel: &Kernel) -> Vec<drupe_extension_api::control::AgentStatus> {
    let snapshot = kernel.snapshot();
    snapshot.agents.iter().filter(|(id, _)| kernel.offered(id).is_ok()).map(|(id, a)| a.status(id)).collect()
}

pub(super) fn config(kernel: &Kernel) -> Vec<ConfigValue> {
    let values = kernel.config.effective().into_iter();
    values.map(|v| ConfigValue { key: v.key, value: v.value, origin: v.origin.to_string() }).collect()
}

/// Waits until a turn has ended; reads all of it once, at the end.
async fn wait(kernel: &Arc<Kernel>, ask: TurnArgument) -> Result<TurnResult, Fault> {
    let TurnArgument { turn, brief } = &ask;
    // Before it is looked at, so that an end in between is seen by one of the two.
    let waiting = kernel.ends.of(turn);
    if kernel.store.queued(turn).await.map_err(store_fault)?.is_some() {
        tokio::select! {
            () = waiting.ended() => {}
            () = kernel.closing.cancelled() => return Err(Fault::new(FaultCode::Unavailable, "the kernel is ending")),
        }
    }
    let result = kernel.store.turn_result(turn, *brief).await.map_err(store_fault)?;
    result.ok_or_else(|| Fault::not_found(format!("there is no turn `{turn}`")))
}

/// Stops all that runs or waits in a session; gives how many turns that were.
async fn stop_session(kernel: &Arc<Kernel>, session: &SessionId) -> Result<usize, Fault> {
    let mut turns = kernel.sessions.of(session);
    // What was accepted while the kernel drains waits for the next one, and is known to the journal alone.
    let open = kernel.store.unfinished().await.map_err(store_fault)?.into_iter();
    let open = open.filter(|queued| queued.inbound.ask.session == *session).map(|queued| queued.turn);
    let unknown: Vec<TurnId> = open.filter(|turn| !turns.contains(turn)).collect();
    turns.extend(unknown);
    // The running turn last, so that none of the others begins; what it has taken in ends with it.
    let mut failed = None;
    for turn in turns.iter().rev() {
        // What cannot be recorded of one keeps none of the others going.
        failed = stop_turn(kernel, turn).await.err().or(failed);
    }
    failed.map_or(Ok(turns.len()), Err)
}

/// Stops a turn: one that runs is cancelled, one that waits gets its end here. Gives the turn that it is a part of by now,
/// where it cannot be stopped by itself.
async fn stop_turn(kernel: &Arc<Kernel>, turn: &TurnId) -> Result<Option<TurnId>, Fault> {
    let (stopping, turn) = (Arc::clone(kernel), turn.clone());
    kernel
        .whole(async move {
            let kernel = stopping;
            // Recorded first: who is told that it stops may rely on it, whatever becomes of this process.
            let recorded = match kernel.store.cancel_turn(&turn, "it was stopped".into()).await {
                Ok(true) => Ok(None),
                Ok(false) => return Ok(None),
                Err(StoreError::UnknownTurn(_)) => {
                    return Err(Fault::not_found(format!("there is no turn `{turn}`")));
                }
                // It ends all the same: a full disk must not keep a turn going that costs.
                Err(error) if kernel.sessions.has(&turn) => {
                    let fault = store_fault(error);
                    let message = format!(
                        "turn `{turn}` is being stopped, which is not recorded: it goes on if the kernel restarts before there is room ({})",
                        fault.message
                    );
                    Err(Fault { message, ..fault })
                }
                Err(error) => return Err(store_fault(error)),
            };
            let queued = match kernel.sessions.stop(&turn) {
                // One that is not known here waits for the next kernel, which reads that it is to end.
                Stopped::Running | Stopped::Neither => return recorded,
                Stopped::TakenIn(by) => return Ok(Some(by)),
                Stopped::Withdrawn => kernel.store.queued(&turn).await.map_err(store_fault)?,
                Stopped::Waiting(queued) => Some(*queued),
            };
            let Some(queued) = queued else { return recorded };
            let again = QueuedTurn { cancelled: Some("stopped".into()), ..queued.clone() };
            if let Err(error) = turn::end(&kernel, queued, turn::stopped(None)).await {
                tracing::warn!(%turn, %error, "the end of a stopped turn is recorded later");
                kernel.sessions.push(&kernel, again);
            }
            recorded
        })
        .await
}
