//! A call whose intent an earlier process recorded: what has a result keeps it; what has none runs again only where
//! that is harmless, else its outcome is looked up, or unknown.

use std::sync::Arc;

use drupe_extension_api::{EffectClass, ToolCallRequest, ToolStatus, wire::LookupResult};

use super::{Bounds, Call, OUTSIDE, Place, Plan, unknown_tool};
use crate::{
    ids,
    journal::{Entry, JournalFault, Reached, RecordedEffect, begun, requested},
    policy::{Decision, PolicyCall, Question},
    registry::Registered,
    results,
    tool::Agreement,
};

/// What becomes of the call.
pub(super) async fn plan(
    bounds: Bounds<'_>,
    place: Place<'_>,
    request: &ToolCallRequest,
    known: &RecordedEffect,
) -> Plan {
    if let Some((status, content)) = known.result.clone() {
        // What the call set off will not run again: what it spent is come back to here, and for calls outside the loop
        // when the run begins again.
        if place.step != OUTSIDE {
            place.run.replay_below(ids::child_of_effect(&known.effect));
        }
        if let Some(tool) = bounds.registry.get(&request.name).filter(|_| status == ToolStatus::Ok) {
            tool.tool().replayed((&request.arguments, &content), &known.effect, place.run);
        }
        return Plan::Answered { status, content, images: known.images.clone() };
    }
    let Some(tool) = bounds.registry.get(&request.name) else {
        return match (known.class, &known.reached) {
            (EffectClass::Once, Reached::Started) => unknown(request, ", and the tool no longer exists"),
            _ => Plan::refused(unknown_tool(bounds.registry, &request.name)),
        };
    };
    if is_once(known, tool) && known.reached == Reached::Started {
        return look_up(place, tool, request, known).await;
    }
    let params = match tool.parameters(&request.arguments) {
        Ok(params) => params,
        Err(reason) => return Plan::refused(reason),
    };
    if let Some(reason) = changed(place, tool, params.get(), known) {
        return Plan::refused(format!("not run: {reason}"));
    }
    let tool = Arc::clone(tool);
    match (&known.reached, &known.question) {
        (Reached::Asked, Some(question)) => Plan::Ask { tool, params, question: question.clone() },
        // Of class `once` only what had not started comes here.
        (_, question) => {
            let agreement = match question.as_ref().map(|question| agreed_before(place, question)) {
                Some(agreed) => match agreed.await {
                    Ok(agreement) => agreement,
                    Err(fault) => return Plan::refused(format!("not run: {fault}")),
                },
                None => Agreement::default(),
            };
            Plan::Run { resumed: !is_once(known, &tool), tool, params, by: None, agreement }
        }
    }
}

/// What came of a question that an earlier process asked, and whose answer it had.
async fn agreed_before(place: Place<'_>, question: &Question) -> Result<Agreement, JournalFault> {
    let answer = place.run.scope.policy.answer(question).await?;
    Ok(Agreement { shown: question.seal.clone(), given: answer.given })
}

/// Whether a call must not run twice: by what its tool was, or is by now.
fn is_once(known: &RecordedEffect, tool: &Registered) -> bool {
    [known.class, tool.spec().annotations.effect].contains(&EffectClass::Once)
}

/// Why a call may not run any more. What was decided holds for the tool that it was decided about, which may be another one
/// under the same name by now.
fn changed(place: Place<'_>, tool: &Registered, params: &str, known: &RecordedEffect) -> Option<String> {
    let (run, spec, name) = (place.run, tool.spec(), &known.tool);
    if let Some(question) = &known.question {
        let about = (&**spec, tool.tool().origin());
        let other = !question.is_about(run, about, params);
        let why =
            || format!("`{name}` is another tool now than the one about which was asked; call it again");
        return other.then(why);
    }
    match run.scope.policy.decide(PolicyCall { run, effect: &known.effect, spec, params }) {
        Decision::Allow { .. } => None,
        Decision::Deny { reason } => Some(reason),
        Decision::Ask(need) => {
            Some(format!("a person has to agree to a call of `{name}` by now ({}); call it again", need.why))
        }
    }
}

async fn look_up(
    place: Place<'_>,
    tool: &Registered,
    request: &ToolCallRequest,
    known: &RecordedEffect,
) -> Plan {
    let found = tokio::select! {
        biased;
        _ = place.over() => LookupResult::Unknown,
        found = tool.tool().lookup(known.effect.clone()) => found,
    };
    match found {
        LookupResult::Done { content } => Plan::answered(ToolStatus::Ok, results::kept(content)),
        LookupResult::NotDone => Plan::answered(
            ToolStatus::Cancelled,
            "interrupted by a restart before it took effect; call it again if it is still wanted".into(),
        ),
        LookupResult::Unknown => unknown(request, ""),
    }
}

fn unknown(request: &ToolCallRequest, why: &str) -> Plan {
    let content = format!(
        "outcome unknown: the call of `{}` was interrupted by a restart before its result was recorded{why}. It was \
         not run again; check what it did before you repeat it.",
        request.name
    );
    Plan::answered(ToolStatus::OutcomeUnknown, content)
}

/// Opens the call again. One that must not run twice and is to start now says so first.
pub(super) fn announce(place: Place<'_>, call: &mut Call, known: &RecordedEffect) {
    place.run.reopen(place.step, known);
    // It is begun anew for whoever watches; its record is there.
    let id = call.effect.as_str();
    place.run.tell(begun(id, call.plan.kind(), &call.request.name, call.input()));
    if let Plan::Ask { question, .. } = &call.plan {
        place.run.tell(requested(question));
    }
    let runs = matches!(call.plan, Plan::Run { .. });
    let once = call.plan.tool().is_some_and(|tool| is_once(known, tool));
    if runs && once {
        call.waits = call.place.is_none();
        if !call.waits {
            let (invocation, effect) = (place.run.id.clone(), known.effect.clone());
            place.run.record(Entry::Started { invocation, step: place.step, effect });
        }
    }
}
