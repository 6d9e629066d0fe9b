//! Turns, as those who ask for them reach them: handed in, waited for, stopped.

use std::sync::Arc;

use drupe_agent::Chain;
use drupe_attachments::WorkspaceInbox;
use drupe_extension_api::{
    AgentId, ExtensionId, Fault, FaultCode, SessionId, TurnId,
    control::{DeletedSession, Power, SessionShow, TurnArgument, TurnResult},
    wire::{QueueMode, StopConversation, Submit, Submitted},
};
use drupe_handles::Holder;
use drupe_journal::{Origin, QueuedTurn, SessionState, StoreError, remove_archive};
use drupe_surface::principal::{Caller, Principal, Who};
use drupe_wiring::ORCHESTRATOR;

use crate::{
    intake::sessions::Stopped,
    kernel::Kernel,
    people::{self, KnownWriter},
    questions,
    turn::{self, Route},
};

/// Takes a message in.
pub async fn submit(kernel: &Arc<Kernel>, by: &Principal, submit: Submit) -> Result<Submitted, Fault> {
    by.reaches(&submit.session)?;
    let submit = without_interrupting(kernel, by, submit)?;
    let submit = among_the_agents_of(by, submit)?;
    client_tools_are_taken(kernel, &submit).await?;
    let chain = by.caller().map_or(Ok(Chain::default()), |caller| chain_of(kernel, caller))?;
    // Those of an extension are in the workspace by now, and named in the text.
    if !submit.files.is_empty() {
        let message = format!("{} hands no files in with a message", by.name());
        return Err(Fault::denied(message).help("put them into the workspace, and say where they are"));
    }
    let token = match &by.who {
        Who::Extension(caller) => return of_extension(kernel, &caller.id, chain, submit).await,
        Who::Operator => None,
        Who::Token { name, .. } => Some(name.clone()),
    };
    if submit.sender.is_some() {
        let message = format!("{} is no channel, so it says of nobody that they wrote", by.name());
        return Err(Fault::denied(message).help("leave `sender` out"));
    }
    // What goes out through a channel speaks to people as the assistant: that is the operator's to arrange.
    if !submit.channel.is_empty() && token.is_some() {
        return Err(
            Fault::denied(format!("{} speaks through no channel", by.name())).help("leave `channel` out")
        );
    }
    if !submit.channel.is_empty() && !kernel.outbox.carries(&submit.channel) {
        return Err(Fault::not_found(format!("there is no channel `{}`", submit.channel))
            .help("a channel is an extension that works: `drupe ext list` shows them"));
    }
    kernel.intake.submit(Origin::Client { token }, submit, chain).await
}

/// To stop what runs is more than to say something: it needs the power to direct. A message that says nothing of it waits
/// where the configuration would have it interrupt.
fn without_interrupting(kernel: &Kernel, by: &Principal, submit: Submit) -> Result<Submit, Fault> {
    // An extension speaks in sessions of its own.
    if matches!(by.who, Who::Extension(_)) || by.may.contains(&Power::Direct) {
        return Ok(submit);
    }
    match submit.queue {
        Some(QueueMode::Interrupt) => by.needs(Power::Direct, "queue: interrupt").map(|()| submit),
        None if kernel.base.config.inbox.queue == QueueMode::Interrupt => {
            Ok(Submit { queue: Some(QueueMode::Followup), ..submit })
        }
        _ => Ok(submit),
    }
}

/// For somebody who does not reach every agent, a message names one of theirs, so that neither `@id` in its text nor the
/// choice of the session leads to another.
fn among_the_agents_of(by: &Principal, submit: Submit) -> Result<Submit, Fault> {
    let Some(agents) = &by.agents else { return Ok(submit) };
    let Route { agent, text } = turn::route(&submit, &SessionState::default()).map_err(Fault::invalid)?;
    let (named, text) = (agent.map(|(agent, _)| agent), text.to_owned());
    let only = || agents.iter().next().filter(|_| agents.len() == 1).cloned();
    let agent = named.or_else(only).ok_or_else(|| {
        let known: Vec<_> = agents.iter().map(|agent| format!("`{agent}`")).collect();
        Fault::invalid(format!(
            "the message names no agent, and {} does not reach the orchestrator",
            by.name()
        ))
        .help(format!("set `agent` to one of {}", known.join(", ")))
    })?;
    by.reaches_agent(&agent)?;
    Ok(Submit { agent: Some(agent), text, ..submit })
}

/// Refuses tools of a client that the agent which would answer now is not offered. Who answers in the end is asked again
/// when the turn begins.
async fn client_tools_are_taken(kernel: &Kernel, submit: &Submit) -> Result<(), Fault> {
    if submit.carried.as_ref().is_none_or(|carried| carried.tools.is_empty()) {
        return Ok(());
    }
    let Route { agent, .. } = turn::route(submit, &SessionState::default()).map_err(Fault::invalid)?;
    let chosen = match agent {
        Some((agent, _)) => Some(agent),
        None => {
            let session = kernel.store.session(&submit.session, SessionShow::BEHIND_ALL, true).await?;
            session.and_then(|session| {
                session.status.agent.or(session.status.handoff.map(|handoff| handoff.agent))
            })
        }
    };
    let id = chosen.map_or_else(|| AgentId::new(ORCHESTRATOR), Ok)?;
    kernel.roster.snapshot().client_tools_fault(&id).map_or(Ok(()), Err)
}

/// What sets a message off that an extension hands in, its channel, which is empty for one that carries none, and who wrote it. Refuses
/// one in a conversation that is not the extension's own, and one of somebody who is not answered there.
pub async fn handed_in(
    kernel: &Kernel,
    id: &ExtensionId,
    submit: &Submit,
) -> Result<(Origin, String, Option<KnownWriter>), Fault> {
    is_own(id, &submit.session)?;
    let writer = people::writer(kernel, id, submit.sender.as_ref(), &submit.session).await?;
    let person = writer.as_ref().map(|writer| writer.origin.clone());
    let channel = if kernel.outbox.carries(id.as_str()) { id.to_string() } else { String::new() };
    Ok((person.unwrap_or_else(|| Origin::Extension(id.clone())), channel, writer))
}

/// Takes a message in that an extension hands in: through its own channel, in a conversation of its own.
async fn of_extension(
    kernel: &Arc<Kernel>,
    id: &ExtensionId,
    chain: Chain,
    submit: Submit,
) -> Result<Submitted, Fault> {
    let (origin, channel, writer) = handed_in(kernel, id, &submit).await?;
    if !channel.is_empty()
        && let Some(answered) = questions::answered(kernel, id, &submit, writer.as_ref()).await?
    {
        return Ok(answered);
    }
    let (sender, session) = (submit.sender.clone(), submit.session.clone());
    let submitted = kernel.intake.submit(origin, Submit { channel, ..submit }, chain).await?;
    // Whoever was revoked while the message was taken in has it end: whoever revoked them may have looked before it was there.
    if writer.is_some()
        && let Err(fault) = people::writer(kernel, id, sender.as_ref(), &session).await
    {
        if fault.code == FaultCode::Unauthenticated {
            stop_turn(kernel, &submitted.turn).await?;
        }
        return Err(fault);
    }
    Ok(submitted)
}

/// Stops a conversation of an extension's own, as somebody in it wants.
pub async fn stop_own(kernel: &Arc<Kernel>, id: &ExtensionId, ask: StopConversation) -> Result<usize, Fault> {
    let StopConversation { session, sender } = ask;
    is_own(id, &session)?;
    people::writer(kernel, id, sender.as_ref(), &session).await?;
    stop_session(kernel, &session).await
}

/// Refuses a session that is not the extension's own.
fn is_own(id: &ExtensionId, session: &SessionId) -> Result<(), Fault> {
    if session.below(id.as_str()).is_none_or(str::is_empty) {
        let message = format!("extension `{id}` may not speak in session `{session}`");
        return Err(Fault::denied(message).help(format!("its own sessions begin with `{id}:`")));
    }
    Ok(())
}

/// What set off what an extension hands in, for itself or for the bearer of a token: the call on whose behalf it does so, or
/// the messages that it works on. So a circle of messages through it ends, whoever it says it asks for.
fn chain_of(kernel: &Kernel, caller: &Caller) -> Result<Chain, Fault> {
    let Caller { id, instance, call } = caller;
    if !call.is_empty() {
        let run = kernel.roster.wired.lasting.tokens.redeem(id, call)?;
        return Ok(run.scope.chain.after(&run.path));
    }
    // Its other calls are not what set it off: a channel hears of people while its tool works for one of them.
    let holder = Holder { extension: id.clone(), instance: *instance };
    drupe_bus::count_link(&kernel.roster.wired.handles.chains(&holder))
        .map_err(|cut| Fault::denied(cut.to_string()))
}

/// Refuses a turn of a session that is not reached.
pub async fn reaches(kernel: &Kernel, by: &Principal, turn: &TurnId) -> Result<(), Fault> {
    if by.reaches_all() {
        return Ok(());
    }
    // One that is not reached is answered as one that is not there: its session's name is not told.
    match kernel.store.session_of(turn).await? {
        Some(session) if by.sees(&session) => Ok(()),
        _ => Err(Fault::not_found(format!("there is no turn `{turn}`"))),
    }
}

/// Waits until a turn has ended; reads all of it once, at the end.
pub async fn wait(kernel: &Arc<Kernel>, ask: TurnArgument) -> Result<TurnResult, Fault> {
    let TurnArgument { turn, now, brief } = &ask;
    // Before it is looked at, so that an end in between is seen by one of the two.
    let waiting = kernel.intake.ends.of(turn);
    if !now && kernel.store.queued(turn).await?.is_some() {
        tokio::select! {
            () = waiting.ended() => {}
            () = kernel.life.closing.cancelled() => return Err(Fault::new(FaultCode::Unavailable, "the kernel is ending")),
        }
    }
    let result = kernel.store.turn_result(turn, *brief).await?;
    result.ok_or_else(|| Fault::not_found(format!("there is no turn `{turn}`")))
}

/// Stops all that runs or waits in a session; gives how many turns that were.
pub async fn stop_session(kernel: &Arc<Kernel>, session: &SessionId) -> Result<usize, Fault> {
    let mut turns = kernel.intake.sessions.of(session);
    // What was accepted while the kernel drains waits for the next one, and is known to the journal alone.
    let open = kernel.store.unfinished().await?.into_iter();
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

/// Deletes a session for good; none where there is none. What it recorded goes in steps after this.
pub async fn delete_session(
    kernel: &Arc<Kernel>,
    session: &SessionId,
) -> Result<Option<DeletedSession>, Fault> {
    let deleted = kernel.store.delete_session(session).await?;
    if let Some(deleted) = &deleted {
        let (inbox, gone) = (WorkspaceInbox::new(kernel.base.home.workspace()), deleted.sessions.clone());
        let forgetting = move || gone.iter().for_each(|session| inbox.forget(session));
        tokio::task::spawn_blocking(forgetting).await.map_err(Fault::internal)?;
        kernel.outbox.sweep().await;
        let retention = &kernel.base.config.journal.retention;
        if let Some(folder) = retention.archive.folder(kernel.base.home.root()) {
            for session in &deleted.sessions {
                remove_archive(&folder, session)?;
            }
        }
        tracing::info!(%session, "a session was deleted");
        kernel.life.tasks.spawn(finish_deletions(Arc::clone(kernel)));
    }
    Ok(deleted)
}

/// Removes what deleted sessions recorded. What is not done when the kernel drains is the next one's.
pub async fn finish_deletions(kernel: Arc<Kernel>) {
    let finished = kernel.life.cancel.run_until_cancelled(kernel.store.finish_deletions()).await;
    if let Some(Err(error)) = finished {
        tracing::warn!(%error, "what deleted sessions recorded is removed after the next start");
    }
}

/// Stops a turn: one that runs is cancelled, one that waits gets its end here. Gives the turn that it is a part of by now,
/// where it cannot be stopped by itself.
pub async fn stop_turn(kernel: &Arc<Kernel>, turn: &TurnId) -> Result<Option<TurnId>, Fault> {
    let (stopping, turn) = (Arc::clone(kernel), turn.clone());
    kernel.life.whole(async move {
            let kernel = stopping;
            // Recorded first: who is told that it stops may rely on it, whatever becomes of this process.
            let recorded = match kernel.store.cancel_turn(&turn, "it was stopped".into()).await {
                Ok(true) => Ok(None),
                Ok(false) => return Ok(None),
                Err(StoreError::UnknownTurn(_)) => {
                    return Err(Fault::not_found(format!("there is no turn `{turn}`")));
                }
                // It ends all the same: a full disk must not keep a turn going that costs.
                Err(error) if kernel.intake.sessions.has(&turn) => {
                    let fault = Fault::from(error);
                    let message = format!(
                        "turn `{turn}` is being stopped, which is not recorded: it goes on if the kernel restarts before there is room ({})",
                        fault.message
                    );
                    Err(Fault { message, ..fault })
                }
                Err(error) => return Err(error.into()),
            };
            let queued = match kernel.intake.sessions.stop(&turn) {
                // One that is not known here waits for the next kernel, which reads that it is to end.
                Stopped::Running | Stopped::Neither => return recorded,
                Stopped::TakenIn(by) => return Ok(Some(by)),
                Stopped::Withdrawn => kernel.store.queued(&turn).await?,
                Stopped::Waiting(queued) => Some(*queued),
            };
            let Some(queued) = queued else { return recorded };
            let again = QueuedTurn { cancelled: Some("stopped".into()), ..queued.clone() };
            if let Err(error) = turn::end(&kernel.intake.turns, queued, turn::stopped(None)).await {
                tracing::warn!(%turn, %error, "the end of a stopped turn is recorded later");
                kernel.intake.push(again);
            }
            recorded
        })
        .await
}
