//! What the operator decides about extensions, and what is known of each.

use std::sync::Arc;

use drupe_extension_api::{
    Fault,
    control::{Approval, ApprovalAnswer, ExtensionDetail, ExtensionStatus},
};
use drupe_gate::survey::nothing_waits;
use drupe_surface::principal::Principal;

use crate::{
    extension::{change, lifecycle},
    kernel::{Kernel, store_fault},
};

/// What the operator does to an extension.
pub enum Decision {
    /// It is turned on or off, over its manifest.
    Enabled(bool),
    /// It gets another chance.
    Release,
}

/// An extension in full, with what happened to it in earlier kernels.
pub async fn show(kernel: &Kernel, id: String) -> Result<ExtensionDetail, Fault> {
    let mut detail = kernel.extensions.detail(&id)?;
    let mut earlier = kernel.store.extension_history(&id).await.map_err(store_fault)?;
    // What this kernel saw is not all written down yet.
    let began = detail.history.first().map(|change| change.time);
    earlier.retain(|change| began.is_none_or(|began| change.time < began));
    earlier.append(&mut detail.history);
    detail.history = earlier;
    Ok(detail)
}

/// Carries a decision out, and waits until the extension works or is out.
pub async fn decide(kernel: &Arc<Kernel>, id: String, decision: Decision) -> Result<ExtensionStatus, Fault> {
    kernel.extensions.status(&id)?;
    match decision {
        Decision::Release => change::release(kernel, &id).await?,
        Decision::Enabled(on) => {
            kernel.store.set_enabled(id.clone(), Some(on)).await.map_err(store_fault)?;
            change::rescan(kernel).await?;
        }
    }
    lifecycle::until_settled(kernel, &id).await?;
    kernel.extensions.status(&id)
}

/// Agrees, or does not, to a tool call, or to what an extension brings.
pub async fn answer(kernel: &Arc<Kernel>, by: &Principal, answer: ApprovalAnswer) -> Result<Approval, Fault> {
    let ApprovalAnswer { id, allow, hash } = answer;
    let shown = || hash.clone();
    for call in
        kernel.policy.questions().await.map_err(store_fault)?.iter().filter(|one| one.id.starts_with(&id))
    {
        call.call.as_ref().map_or(Ok(()), |call| by.reaches(&call.session))?;
    }
    if let Some(call) =
        kernel.policy.answer_question(&id, allow, shown(), &by.name()).await.map_err(store_fault)?
    {
        return Ok(call);
    }
    let give = || async {
        kernel.store.answer_activation(&id, allow, shown(), by.name()).await.map_err(store_fault)
    };
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
