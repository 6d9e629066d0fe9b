//! The way out of a kernel: what goes out, what goes with it, and how it ends. Each step of a life is told here.

use std::{sync::Arc, time::Duration};

use drupe_agent::{Chain, TopicMessage};
use drupe_extension_api::{FaultCode, control::ExtensionState, wire::op};
use drupe_gate::{order as gate, survey::TURNED_OFF};
use drupe_host::Header;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::json;

use super::{
    Key, Roster,
    state::{Action, Event, State},
};

const STOP: Duration = Duration::from_secs(10);

/// How long calls may go on in an instance that was stopped while the kernel goes on.
const LINGER: Duration = Duration::from_secs(30);

/// Stops all, in reverse order of dependency.
pub async fn stop_all(roster: &Arc<Roster>) {
    for wave in roster.extensions.waves(&State::Active).into_iter().rev() {
        let stopping = wave.into_iter().map(|key| async move {
            if note(roster, &key, Event::Stop) == Action::Rollback {
                roll_back(roster, &key).await;
            }
        });
        join_all(stopping).await;
    }
}

/// Something takes an extension out, and all that depends on it; they are ended at once.
pub async fn take_out(roster: &Arc<Roster>, name: &str, event: Event) {
    for key in mark_out(roster, name, event).into_iter().rev() {
        roll_back(roster, &key).await;
    }
}

/// The same, but what is out, each before those that depend on it, is left to be ended with [`roll_back`] once nobody is offered it any more.
#[must_use = "what is marked is to be rolled back"]
pub fn mark_out(roster: &Roster, name: &str, event: Event) -> Vec<Key> {
    let mut out: Vec<Key> = roster.extensions.named(name);
    out.retain(|key| note(roster, key, event.clone()) == Action::Rollback);
    // What depends on it cannot stay.
    let dependents = roster.extensions.read(|r| {
        let manifest = r.manifest.as_ref().filter(|_| !r.state.is_out())?;
        let field = gate::dependencies(manifest).into_iter().find(|(d, _)| d == name)?.1;
        Some((r.found.name.clone(), field))
    });
    for (dependent, field) in dependents.into_iter().flatten() {
        let why = gate::lost(field, name, roster.extensions.states().get(name));
        out.extend(mark_out(roster, &dependent, Event::DependencyLost(why)));
    }
    out
}

/// Ends the instance of an extension. Calls that run go on to their end: who made them holds the instance.
pub async fn roll_back(roster: &Arc<Roster>, key: &Key) {
    let part = roster
        .extensions
        .with(key, |r| r.part.as_mut().and_then(|p| p.instance.take().map(|i| (i, p.clone()))));
    let Some((instance, part)) = part.flatten() else { return };
    let header = Header { timeout: Some(STOP), ..Header::default() };
    if let Err(fault) = instance.call::<serde_json::Value>(op::STOP, &(), header).await
        && !matches!(fault.code, FaultCode::Unavailable | FaultCode::Crashed)
    {
        tracing::warn!(extension = %part.id(), %fault, "did not stop in order");
    }
    // Calls of running turns end as they began; what goes on after that is not waited for.
    let closing = Arc::clone(roster);
    roster.life.tasks.spawn(async move {
        let deadline = tokio::time::Instant::now() + LINGER;
        while instance.calls() > 0 && tokio::time::Instant::now() < deadline {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
                // Nobody else ends it: others hold it until the process is gone.
                () = closing.life.closing.cancelled() => break,
            }
        }
        instance.close().await;
    });
}

/// Lets something happen to an extension, and tells of it.
pub fn note(roster: &Roster, key: &Key, event: Event) -> Action {
    let (action, change) = roster.extensions.step(key, event, Timestamp::now());
    if let Some(change) = change {
        match change.state {
            ExtensionState::Degraded => roster.wired.lasting.live.away(&key.0),
            ExtensionState::Failed
            | ExtensionState::Quarantined
            | ExtensionState::Disabled
            | ExtensionState::Skipped
            | ExtensionState::AwaitingApproval
            | ExtensionState::Stopped => roster.wired.lasting.live.gone(&key.0),
            _ => {}
        }
        let payload = json!({"id": key.0, "state": change.state, "reason": change.reason});
        let (extension, state) = (&key.0, payload["state"].as_str());
        match &change.reason {
            Some(reason) if reason.starts_with(TURNED_OFF) => {
                tracing::info!(%extension, state, "{reason}");
            }
            Some(reason) => tracing::warn!(%extension, state, "{reason}"),
            None => tracing::debug!(%extension, state, "extension"),
        }
        let topic = "kernel.extension".to_owned();
        roster.bus.message(Arc::new(TopicMessage {
            topic,
            payload,
            chain: Chain::default(),
            correlation: None,
        }));
        let (store, name) = (roster.store.clone(), key.0.clone());
        roster.life.tasks.spawn(async move {
            if let Err(error) = store.record_extension(name, change).await {
                tracing::warn!(%error, "the state of an extension was not recorded");
            }
        });
    }
    action
}
