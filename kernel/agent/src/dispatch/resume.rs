//! A call whose intent an earlier process recorded: what has a result keeps it; what has none runs again only where
//! that is harmless, else its outcome is looked up, or unknown.

use std::sync::Arc;

use drupe_extension_api::{EffectClass, EffectId, ToolCallRequest, ToolStatus, wire::LookupResult};

use super::{Bounds, Call, OUTSIDE, Place, Plan, started, unknown_tool};
use crate::{
    ids,
    journal::{JournalFault, RecordedEffect},
    registry::Registered,
    results,
};

/// What becomes of the call.
pub(super) async fn plan(
    bounds: Bounds<'_>,
    place: Place<'_>,
    request: &ToolCallRequest,
    known: &RecordedEffect,
) -> Result<Plan, JournalFault> {
    if let Some((status, content)) = known.result.clone() {
        // What the call set off will not run again: what it spent is come back to here, and for calls outside the loop
        // when the run begins again.
        if place.step != OUTSIDE {
            place.run.replay_below(ids::child_of_effect(&known.effect)).await?;
        }
        if let Some(tool) = bounds.registry.get(&request.name).filter(|_| status == ToolStatus::Ok) {
            tool.tool().replayed(&request.arguments, &content, place.run);
        }
        return Ok(Plan::Answered { status, content });
    }
    let tool = bounds.registry.get(&request.name);
    Ok(match (known.class, tool) {
        (EffectClass::Pure | EffectClass::Idempotent, Some(tool)) => {
            match tool.parameters(&request.arguments) {
                Ok(params) => Plan::Run { tool: Arc::clone(tool), params, resumed: true },
                Err(reason) => Plan::refused(reason),
            }
        }
        (EffectClass::Pure | EffectClass::Idempotent, None) => {
            Plan::refused(unknown_tool(bounds.registry, &request.name))
        }
        (EffectClass::Once, Some(tool)) => look_up(place, tool, request, known).await,
        (EffectClass::Once, None) => unknown(request, ", and the tool no longer exists"),
    })
}

/// A call that an earlier process made outside the loop.
pub(super) async fn call(
    bounds: Bounds<'_>,
    place: Place<'_>,
    effect: EffectId,
    request: &ToolCallRequest,
    known: &RecordedEffect,
) -> Result<Call, JournalFault> {
    let plan = plan(bounds, place, request, known).await?;
    let call = Call { index: known.index, effect, request: request.clone(), plan };
    if known.result.is_none() {
        announce(place, &call, known);
    }
    Ok(call)
}

async fn look_up(
    place: Place<'_>,
    tool: &Registered,
    request: &ToolCallRequest,
    known: &RecordedEffect,
) -> Plan {
    let found = tokio::select! {
        biased;
        _ = place.run.over() => LookupResult::Unknown,
        found = tool.tool().lookup(known.effect.clone()) => found,
    };
    match found {
        LookupResult::Done { content } => {
            Plan::Answered { status: ToolStatus::Ok, content: results::kept(content) }
        }
        LookupResult::NotDone => Plan::Answered {
            status: ToolStatus::Cancelled,
            content: "interrupted by a restart before it took effect; call it again if it is still wanted"
                .into(),
        },
        LookupResult::Unknown => unknown(request, ""),
    }
}

fn unknown(request: &ToolCallRequest, why: &str) -> Plan {
    let content = format!(
        "outcome unknown: the call of `{}` was interrupted by a restart before its result was recorded{why}. It was \
         not run again; check what it did before you repeat it.",
        request.name
    );
    Plan::Answered { status: ToolStatus::OutcomeUnknown, content }
}

/// Opens the call again and, where it is answered, closes it.
pub(super) fn announce(place: Place<'_>, call: &Call, known: &RecordedEffect) {
    place.run.reopen(place.step, known.index, known.effect.clone());
    started(place, call);
}
