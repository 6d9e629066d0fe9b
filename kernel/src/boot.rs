//! From nothing to a kernel that serves, and back.

use std::sync::Arc;

use drupe_config::{Config, ORCHESTRATOR_PROMPT};
use drupe_extension_api::{EventBody, Fault, FaultCode, control::ExtensionState};

use crate::{
    channels,
    ending::Why,
    extension::{lifecycle, state::Event},
    instructions,
    kernel::{Kernel, store_fault},
    snapshot::Snapshot,
    wiring::{self, Context, Prompt},
};

/// The orchestrator's own texts, unrendered: what it is told of tools is only known when they are wired.
pub fn orchestrator_prompt(config: &Config) -> Result<Prompt, String> {
    let settings = &config.orchestrator;
    let instructions = match &settings.instructions {
        None => ORCHESTRATOR_PROMPT.to_owned(),
        Some(drupe_config::Instructions::Inline(text)) => text.clone(),
        Some(drupe_config::Instructions::File { path, .. }) => {
            std::fs::read_to_string(path).map_err(|error| {
                format!("`orchestrator.instructions`: `{}` cannot be read: {error}", path.display())
            })?
        }
    };
    Ok(Prompt { instructions, context: instructions::context(&settings.context)? })
}

/// What is wired before any extension is there: the orchestrator alone.
pub fn bare(context: &Context<'_>) -> Result<Snapshot, String> {
    wiring::wire(&[], context).map_err(|fault| fault.reason)
}

/// Brings all extensions to work.
pub async fn extensions(kernel: &Arc<Kernel>) -> Result<(), Fault> {
    lifecycle::find(kernel);
    lifecycle::bring_up(kernel).await;
    wire_all(kernel).await?;
    if lifecycle::start_all(kernel).await {
        wire_all(kernel).await?;
    }
    Ok(())
}

/// Wires what is loaded. An extension that cannot be wired is taken out, and the rest wired without it.
pub async fn wire_all(kernel: &Arc<Kernel>) -> Result<(), Fault> {
    let prompt = orchestrator_prompt(&kernel.config).map_err(|e| Fault::new(FaultCode::NotConfigured, e))?;
    loop {
        let context = Context {
            config: &kernel.config,
            models: &kernel.models,
            tokens: &kernel.tokens,
            orchestrator: &prompt,
            workspace: kernel.home.workspace(),
        };
        match wiring::wire(&kernel.extensions.parts(), &context) {
            Ok(snapshot) => {
                kernel.set_snapshot(snapshot);
                return Ok(());
            }
            Err(fault) => match fault.extension {
                Some(id) => lifecycle::take_out(kernel, id.as_str(), Event::Failed(fault.reason)).await,
                None => return Err(Fault::new(FaultCode::NotConfigured, fault.reason)),
            },
        }
    }
}

/// Takes an extension out of a running kernel.
pub async fn take_out(kernel: &Arc<Kernel>, name: &str, event: Event) {
    lifecycle::take_out(kernel, name, event).await;
    if let Err(fault) = wire_all(kernel).await {
        tracing::error!(%fault, "the extensions that are left cannot be wired; the old wiring stays");
    }
}

/// Takes up what an earlier kernel left: turns, deliveries, and the outcome of a restart that a session asked for.
pub async fn take_up(kernel: &Arc<Kernel>) -> Result<(), Fault> {
    let store = &kernel.store;
    while let Some(row) = store.take_restart().await.map_err(store_fault)? {
        let Some(session) = row.session else { continue };
        let failed = kernel.extensions.read(|r| match r.state.shown() {
            (ExtensionState::Failed, Some(why)) => {
                Some(format!("; `{}` failed: {}", r.found.name, why.lines().next().unwrap_or(why)))
            }
            _ => None,
        });
        let reason = failed.into_iter().flatten().fold(row.reason, |text, line| text + &line);
        let body = EventBody::Lifecycle { state: "restarted".into(), reason: Some(reason) };
        store.record_events(session, row.turn, vec![(None, body)]).await.map_err(store_fault)?;
    }
    for turn in store.unfinished().await.map_err(store_fault)? {
        kernel.sessions.push(kernel, turn);
    }
    channels::deliver_soon(kernel);
    Ok(())
}

/// Ends: running turns get their time, the rest is left to the next kernel; then extensions stop.
pub async fn drain(kernel: &Arc<Kernel>, why: Why) {
    let deadline = tokio::time::Instant::now() + kernel.config.drain_timeout;
    // Polling is what it takes: turns end in as many ways as there are, and a drain happens once a process.
    while kernel.sessions.running() > 0 && tokio::time::Instant::now() < deadline {
        if why != Why::Stop && kernel.ending.decided() == Some(Why::Stop) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let left = kernel.sessions.running();
    if left > 0 {
        tracing::warn!(turns = left, "turns did not end in time; they go on after the next start");
    }
    kernel.cancel.cancel();
    lifecycle::stop_all(kernel).await;
    kernel.tasks.close();
    let rest = std::time::Duration::from_secs(5);
    if tokio::time::timeout(rest, kernel.tasks.wait()).await.is_err() {
        tracing::warn!("some tasks did not end");
    }
}
