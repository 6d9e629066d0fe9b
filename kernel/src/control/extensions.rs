//! What the operator decides about extensions, and what is known of each.

use std::time::Duration;

use drupe_config::{Instructions, Manifest, agent_template, new_agent};
use drupe_extension_api::{
    AgentId, Fault, FaultCode,
    control::{AgentTemplate, ExtensionAsk, ExtensionDetail, ExtensionStatus},
    wire::{OperatorAsk, op},
};
use drupe_folders::discovery::Origin;
use drupe_host::Header;
use drupe_surface::principal::Principal;
use drupe_wiring::{self as wiring, ORCHESTRATOR};
use serde_json::Value;

use crate::{
    extension::{change, lifecycle},
    kernel::Kernel,
};

/// An extension in full, with what happened to it in earlier kernels.
pub async fn show(kernel: &Kernel, id: String) -> Result<ExtensionDetail, Fault> {
    let mut detail = kernel.roster.extensions.detail(&id)?;
    let mut earlier = kernel.store.extension_history(&id).await?;
    // What this kernel saw is not all written down yet.
    let began = detail.history.first().map(|change| change.time);
    earlier.retain(|change| began.is_none_or(|began| change.time < began));
    earlier.append(&mut detail.history);
    detail.history = earlier;
    Ok(detail)
}

/// An agent as it would be written, with the values that hold; one that is to be written, where none is named.
pub fn template(kernel: &Kernel, id: Option<AgentId>) -> Result<AgentTemplate, Fault> {
    let config = &kernel.base.config;
    let defaults = &config.agents.defaults;
    let Some(id) = id else { return Ok(agent_template(None, &new_agent(defaults), defaults)) };
    if id.as_str() == ORCHESTRATOR {
        return Err(Fault::invalid(format!("`{id}` has no manifest: it is a part of `drupe.yaml`"))
            .help("`drupe config template` prints one"));
    }
    let snapshot = kernel.roster.snapshot();
    let agent = snapshot.agent(&id)?;
    let of = kernel.roster.extensions.read(|r| {
        let part = r.part.clone().filter(|part| part.id().as_str() == id.as_str())?;
        Some((part, r.found.origin == Origin::Shipped))
    });
    let Some((part, shipped)) = of.into_iter().flatten().next() else {
        return Err(Fault::not_found(format!("agent `{id}` is not there any more")));
    };
    if !part.manifest.secrets.is_empty() && filled_in(&part.manifest) {
        return Err(Fault::denied(format!("the prompt of `{id}` is a template that may hold its secrets"))
            .help("copy its folder"));
    }
    let definition = match &agent.looping {
        Some(looping) => looping.definition().clone(),
        None => wiring::definition(&part, config),
    };
    // A copy of what ships takes its place.
    let mut manifest = (*part.manifest).clone();
    manifest.overrides |= shipped;
    Ok(agent_template(Some(&manifest), &definition, defaults))
}

fn filled_in(manifest: &Manifest) -> bool {
    let instructions = manifest.agent.as_ref().and_then(|agent| agent.instructions.as_ref());
    matches!(instructions, Some(Instructions::Template(_) | Instructions::File { template: true, .. }))
}

/// Turns one on or off over its manifest, or else gives it another chance, and waits until it works or is out.
pub async fn decide(kernel: &Kernel, id: String, enabled: Option<bool>) -> Result<ExtensionStatus, Fault> {
    let roster = &kernel.roster;
    roster.extensions.status(&id)?;
    if enabled.is_none() {
        change::release(roster, &id).await?;
    } else {
        kernel.store.set_enabled(id.clone(), enabled).await?;
        change::rescan(roster).await?;
    }
    lifecycle::until_settled(roster, &id).await?;
    roster.extensions.status(&id)
}

/// How long an extension may take to answer the operator.
const ANSWER: Duration = Duration::from_secs(60);

/// Asks something that is an extension's own.
pub async fn ask(kernel: &Kernel, by: &Principal, asked: ExtensionAsk) -> Result<Value, Fault> {
    let ExtensionAsk { id, ask, params } = asked;
    if !by.reaches_all() {
        // What an extension keeps is of all sessions.
        return Err(Fault::denied(format!("{} does not reach all sessions", by.name())));
    }
    let Some(instance) = kernel.roster.working(&id) else {
        kernel.roster.extensions.status(&id)?;
        return Err(Fault::not_found(format!("`{id}` does not work now"))
            .help(format!("`drupe ext show {id}` says why")));
    };
    let unanswered = |fault: Fault| match fault.code {
        FaultCode::Unsupported => {
            fault.help(format!("`{id}` has nothing that is asked for by the name `{ask}`"))
        }
        _ => fault,
    };
    let Some(instance) = instance else { return Err(unanswered(Fault::unsupported(&ask))) };
    let header = Header { timeout: Some(ANSWER), ..Header::default() };
    let payload = OperatorAsk { ask: ask.clone(), params };
    instance.call(op::OPERATOR_ASK, &payload, header).await.map_err(unanswered)
}
