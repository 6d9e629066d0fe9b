//! Agents that work beside a running turn: which there are, their end, and what a person tells them.

use std::sync::Arc;

use drupe_agent::{SpawnedAgents, Unread};
use drupe_extension_api::{
    EffectId, Fault, FaultCode, SessionId,
    control::{SpawnedArgument, SpawnedQuery, SpawnedStatus, SpawnedTell},
};
use drupe_surface::principal::Principal;

use crate::kernel::Kernel;

/// The most bytes of a text that one is told.
const TEXT: usize = 32 * 1024;

pub fn list(kernel: &Kernel, by: &Principal, ask: SpawnedQuery) -> Result<Vec<SpawnedStatus>, Fault> {
    if let Some(session) = &ask.session {
        by.reaches(session)?;
    }
    let mut all = Vec::new();
    for (session, turn, spawned) in kernel.intake.sessions.spawned() {
        let asked = ask.session.as_ref().is_none_or(|asked| *asked == session);
        if !asked || !by.sees(&session) {
            continue;
        }
        all.extend(spawned.list().into_iter().map(|one| SpawnedStatus {
            session: session.clone(),
            turn: turn.clone(),
            handle: one.handle,
            agent: one.agent,
            owner: one.owner,
            state: one.state.to_owned(),
            unread: one.unread,
        }));
    }
    all.sort_by(|a, b| (&a.session, &a.handle).cmp(&(&b.session, &b.handle)));
    Ok(all)
}

pub async fn stop(kernel: &Kernel, by: &Principal, ask: SpawnedArgument) -> Result<(), Fault> {
    let SpawnedArgument { session, handle } = ask;
    let spawned = of(kernel, by, &session)?;
    match spawned.stop(&handle).await {
        true => Ok(()),
        false => Err(unknown(&session, &handle)),
    }
}

pub async fn tell(kernel: &Kernel, by: &Principal, ask: SpawnedTell) -> Result<(), Fault> {
    let SpawnedTell { session, handle, text } = ask;
    if text.trim().is_empty() || text.len() > TEXT {
        return Err(Fault::invalid(format!("`text` has 1 to {TEXT} bytes")));
    }
    let spawned = of(kernel, by, &session)?;
    let effect = EffectId::new(format!("e-{}", uuid::Uuid::now_v7().simple()))?;
    match spawned.tell(&handle, effect, text).await {
        Ok(()) => Ok(()),
        Err(Unread::Unknown) => Err(unknown(&session, &handle)),
        Err(why @ Unread::Busy) => Err(Fault::new(FaultCode::Busy, format!("`{handle}`: {why}"))),
        Err(why) => Err(Fault::invalid(format!("`{handle}` was told nothing: {why}"))),
    }
}

/// What is spawned in the turn of a session that runs.
fn of(kernel: &Kernel, by: &Principal, session: &SessionId) -> Result<Arc<SpawnedAgents>, Fault> {
    by.reaches(session)?;
    let mut all = kernel.intake.sessions.spawned().into_iter();
    let found = all.find(|(of, ..)| of == session);
    found.map(|(.., spawned)| spawned).ok_or_else(|| {
        Fault::not_found(format!("no turn runs in session `{session}`"))
            .help("`drupe session agents` shows who works")
    })
}

fn unknown(session: &SessionId, handle: &str) -> Fault {
    Fault::not_found(format!("no agent `{handle}` works beside session `{session}`"))
        .help("`drupe session agents` shows who works")
}
