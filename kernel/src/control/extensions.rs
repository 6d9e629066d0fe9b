//! What the operator decides about extensions, and what is known of each.

use std::sync::Arc;

use drupe_config::{Instructions, Manifest, agent_template, new_agent};
use drupe_extension_api::{
    AgentId, Fault,
    control::{AgentTemplate, Approval, ApprovalAnswer, ExtensionDetail, ExtensionStatus, StandingGrant},
};
use drupe_folders::discovery::Origin;
use drupe_gate::survey::nothing_waits;
use drupe_journal::Says;
use drupe_surface::principal::Principal;
use drupe_wiring::{self as wiring, ORCHESTRATOR};

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

/// Agrees, or does not, to a tool call, or to what an extension brings.
pub async fn answer(kernel: &Arc<Kernel>, by: &Principal, answer: ApprovalAnswer) -> Result<Approval, Fault> {
    let ApprovalAnswer { id, allow, for_session, hash } = answer;
    let says = match (allow, for_session) {
        (false, false) => Says::No,
        (true, false) => Says::Yes,
        (true, true) => Says::YesForSession,
        (false, true) => {
            return Err(Fault::invalid("`for_session` is for an answer that allows").help("leave it out"));
        }
    };
    let shown = || hash.clone();
    for call in kernel.intake.turns.policy.questions().await?.iter().filter(|one| one.id.starts_with(&id)) {
        call.call.as_ref().map_or(Ok(()), |call| by.reaches(&call.session))?;
    }
    if let Some(call) = kernel.intake.turns.policy.answer_question(&id, says, shown(), &by.name()).await? {
        return Ok(call);
    }
    if for_session {
        return Err(Fault::invalid(format!("`{id}` is no call of a tool that waits"))
            .help("`for_session` is for calls; what an extension brings is agreed to as a whole"));
    }
    let give = || async { kernel.store.answer_activation(&id, allow, shown(), by.name()).await };
    let mut answered = give().await?;
    if answered.is_none() {
        // It may have come this moment, or where nothing is watched.
        change::rescan(&kernel.roster).await?;
        answered = give().await?;
    }
    let approval = answered.ok_or_else(|| nothing_waits(&id, kernel.roster.extensions.status(&id).ok()))?;
    change::rescan(&kernel.roster).await?;
    lifecycle::until_settled(&kernel.roster, &approval.extension).await?;
    Ok(approval)
}

/// Takes back what was allowed for the rest of a session.
pub async fn revoke_grant(kernel: &Kernel, by: &Principal, id: &str) -> Result<StandingGrant, Fault> {
    let nothing = || {
        Fault::not_found(format!("nothing that was allowed has the id `{id}`"))
            .help("`drupe approvals grants` lists what was")
    };
    let policy = &kernel.intake.turns.policy;
    let known = policy.grants().await?.into_iter().find(|grant| grant.id == id).ok_or_else(nothing)?;
    by.reaches(&known.session)?;
    policy.revoke_grant(id, &by.name()).await?.ok_or_else(nothing)
}
