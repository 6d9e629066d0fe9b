//! The tool calls of one step: name → schema → policy → intent → gate → run → result.

use std::{pin::pin, sync::Arc, time::Duration};

use drupe_extension_api::{
    DefinitionLimits, EffectClass, EffectId, EventBody, Item, ItemKind, ItemOutcome, Preview,
    ToolCallRequest, ToolStatus, wire::LookupResult,
};
use futures_util::{StreamExt, stream};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::{
    ids,
    journal::{Entry, JournalFault, RecordedEffect},
    policy::{Decision, PolicyCall},
    registry::{Registered, Registry},
    run::{GATE, Run},
    tool::{ToolContext, ToolError, ToolOutput},
};

/// How long a cancelled call may take to end by itself before it is dropped.
const GRACE: Duration = Duration::from_millis(500);

/// One call of a step, ready to run or already answered.
pub(crate) struct Call {
    pub index: u32,
    pub effect: EffectId,
    pub request: ToolCallRequest,
    pub plan: Plan,
}

pub(crate) enum Plan {
    Run {
        tool: Arc<Registered>,
        params: Box<RawValue>,
        resumed: bool,
    },
    /// Answered without running now: refused, or recorded by an earlier process.
    Answered {
        status: ToolStatus,
        content: String,
        recorded: bool,
    },
}

/// How a call ended.
pub(crate) struct Answered {
    pub request: ToolCallRequest,
    pub status: ToolStatus,
    pub content: String,
    pub refuse: Option<String>,
}

/// What bounds the tool calls of a run.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    pub registry: &'a Registry,
    pub limits: &'a DefinitionLimits,
}

/// The step under which the calls that a native agent makes outside the loop are recorded: before the first.
const OUTSIDE: u32 = 0;

/// Runs one tool on behalf of the native agent that `run` belongs to, by the same path as the calls of a model.
pub async fn call_tool(
    run: &Arc<Run>,
    registry: &Registry,
    limits: &DefinitionLimits,
    request: ToolCallRequest,
) -> Result<(ToolStatus, String), JournalFault> {
    let bounds = Bounds { registry, limits };
    let index = run.next_place();
    let effect = ids::effect(&run.scope.turn, &run.id, OUTSIDE, index);
    let recorded = run.recorded().await?.map(|r| r.steps).unwrap_or_default();
    let known = recorded
        .iter()
        .find(|s| s.step == OUTSIDE)
        .and_then(|s| s.effects.iter().find(|e| e.effect == effect));
    let plan = match known {
        Some(known) => resume(bounds, run, OUTSIDE, &request, known).await,
        None => fresh(bounds, run, 0, &request).await,
    };
    let call = Call { index, effect, request, plan };
    if known.is_none() {
        announce(run, OUTSIDE, &call);
    }
    run.budget.tool_calls(1);
    run.commit().await?;
    let (_, answer, _) = one(bounds, run, OUTSIDE, call).await;
    run.commit().await?;
    Ok((answer.status, answer.content))
}

/// Decides for each call of a step whether it can run, and records what is about to happen. The caller commits.
pub(crate) async fn plan(
    bounds: Bounds<'_>,
    run: &Run,
    step: u32,
    requests: &[ToolCallRequest],
    recorded: &[RecordedEffect],
) -> Vec<Call> {
    let mut calls = Vec::with_capacity(requests.len());
    for (index, request) in (0u32..).zip(requests) {
        let effect = ids::effect(&run.scope.turn, &run.id, step, index);
        let known = recorded.iter().find(|e| e.effect == effect);
        let plan = match known {
            Some(known) => resume(bounds, run, step, request, known).await,
            None => fresh(bounds, run, index, request).await,
        };
        let call = Call { index, effect, request: request.clone(), plan };
        if known.is_none() {
            announce(run, step, &call);
        }
        calls.push(call);
    }
    let count = calls.iter().filter(|c| !matches!(c.plan, Plan::Answered { recorded: true, .. })).count();
    run.budget.tool_calls(u32::try_from(count).unwrap_or(u32::MAX));
    calls
}

/// A call that was never recorded.
async fn fresh(bounds: Bounds<'_>, run: &Run, index: u32, request: &ToolCallRequest) -> Plan {
    let refused = |content: String| Plan::Answered { status: ToolStatus::Refused, content, recorded: false };
    let most = bounds.limits.max_tool_calls_per_step;
    if index >= most {
        return refused(format!("not run: at most {most} tool calls are allowed in one step"));
    }
    let Some(tool) = bounds.registry.get(&request.name) else {
        let names: Vec<&str> = bounds.registry.specs().iter().map(|s| s.name.as_str()).collect();
        let have = if names.is_empty() {
            "you have no tools".to_owned()
        } else {
            format!("you have: {}", names.join(", "))
        };
        return refused(format!("there is no tool `{}` for you; {have}", Preview::of(&request.name).text));
    };
    let params = match tool.parameters(&request.arguments) {
        Ok(params) => params,
        Err(reason) => return refused(reason),
    };
    let call = PolicyCall { run, spec: tool.spec(), params: params.get() };
    match run.scope.policy.decide(call).await {
        Decision::Allow => Plan::Run { tool: Arc::clone(tool), params, resumed: false },
        Decision::Deny(reason) => refused(reason),
    }
}

/// A call whose intent an earlier process recorded: what has a result keeps it; what has none runs again only where
/// that is harmless, else its outcome is looked up, or unknown.
async fn resume(
    bounds: Bounds<'_>,
    run: &Run,
    step: u32,
    request: &ToolCallRequest,
    known: &RecordedEffect,
) -> Plan {
    if let Some((status, content)) = known.result.clone() {
        return Plan::Answered { status, content, recorded: true };
    }
    let unknown = |why: &str| Plan::Answered {
        status: ToolStatus::OutcomeUnknown,
        content: format!(
            "outcome unknown: the call of `{}` was interrupted by a restart before its result was recorded{why}. It was \
             not run again; check what it did before you repeat it.",
            request.name
        ),
        recorded: false,
    };
    let Some(tool) = bounds.registry.get(&request.name) else {
        return unknown(", and the tool no longer exists");
    };
    let plan = match known.class {
        EffectClass::Pure | EffectClass::Idempotent => match tool.parameters(&request.arguments) {
            Ok(params) => return Plan::Run { tool: Arc::clone(tool), params, resumed: true },
            Err(reason) => Plan::Answered { status: ToolStatus::Refused, content: reason, recorded: false },
        },
        EffectClass::Once => match tool.tool().lookup(known.effect.clone()).await {
            LookupResult::Done { content } => {
                Plan::Answered { status: ToolStatus::Ok, content, recorded: false }
            }
            LookupResult::NotDone => Plan::Answered {
                status: ToolStatus::Cancelled,
                content:
                    "interrupted by a restart before it took effect; call it again if it is still wanted"
                        .into(),
                recorded: false,
            },
            LookupResult::Unknown => unknown(""),
        },
    };
    if let Plan::Answered { status: ToolStatus::OutcomeUnknown, content, .. } = &plan {
        run.event(EventBody::Diagnostic { code: "outcome_unknown".into(), message: content.clone() });
    }
    if let Plan::Answered { status, content, .. } = &plan {
        finish(
            run,
            step,
            known.index,
            &known.effect,
            request,
            ItemKind::ToolCall,
            *status,
            content,
            Duration::ZERO,
        );
    }
    plan
}

/// Records the intent of a call, or the refusal that it met.
fn announce(run: &Run, step: u32, call: &Call) {
    let (class, kind) = match &call.plan {
        Plan::Run { tool, .. } => (tool.spec().annotations.effect, tool.spec().annotations.item),
        Plan::Answered { .. } => (EffectClass::Pure, ItemKind::ToolCall),
    };
    run.record(Entry::Intent {
        invocation: run.id.clone(),
        step,
        index: call.index,
        effect: call.effect.clone(),
        tool: call.request.name.clone(),
        class,
    });
    let input = Some(Preview::of(&call.request.arguments));
    let name = Some(call.request.name.clone());
    let item = Item { id: call.effect.to_string(), kind, name, input, output: None };
    run.event(EventBody::ItemStarted { item });
    if let Plan::Answered { status, content, recorded: false } = &call.plan {
        finish(run, step, call.index, &call.effect, &call.request, kind, *status, content, Duration::ZERO);
    }
}

/// Runs the calls: in parallel up to the agent's bound and the session's gate, an exclusive one alone. Answers come
/// back in call order. All but the last result of the step are committed as they come; the last one joins the next
/// commit of the run.
pub(crate) async fn run_all(
    bounds: Bounds<'_>,
    run: &Arc<Run>,
    step: u32,
    calls: Vec<Call>,
) -> Result<Vec<Answered>, JournalFault> {
    let mut left = calls.iter().filter(|c| matches!(c.plan, Plan::Run { .. })).count();
    let mut answers: Vec<Option<Answered>> = calls.iter().map(|_| None).collect();
    let parallel = usize::try_from(bounds.limits.parallel_tool_calls).unwrap_or(1).max(1);
    let exclusive = |c: &Call| matches!(&c.plan, Plan::Run { tool, .. } if tool.spec().annotations.exclusive);
    let mut rest = calls.into_iter().peekable();
    while let Some(first) = rest.next() {
        let mut group = vec![first];
        if !exclusive(&group[0]) {
            while let Some(next) = rest.next_if(|c| !exclusive(c)) {
                group.push(next);
            }
        }
        let mut running =
            stream::iter(group).map(|call| one(bounds, run, step, call)).buffer_unordered(parallel);
        while let Some((index, answer, ran)) = running.next().await {
            answers[index as usize] = Some(answer);
            if ran {
                left -= 1;
                if left > 0 {
                    run.commit().await?;
                }
            }
        }
    }
    Ok(answers.into_iter().flatten().collect())
}

async fn one(bounds: Bounds<'_>, run: &Arc<Run>, step: u32, call: Call) -> (u32, Answered, bool) {
    let Call { index, effect, request, plan } = call;
    match plan {
        Plan::Answered { status, content, .. } => {
            (index, Answered { request, status, content, refuse: None }, false)
        }
        Plan::Run { tool, params, resumed } => {
            let began = Instant::now();
            let result = execute(bounds, run, &tool, params, &effect, resumed, began).await;
            let (status, content, refuse) = match result {
                Ok(output) => (output.status, output.content, output.refuse),
                Err(error) => (error.status, error.message, None),
            };
            let kind = tool.spec().annotations.item;
            finish(run, step, index, &effect, &request, kind, status, &content, began.elapsed());
            (index, Answered { request, status, content, refuse }, true)
        }
    }
}

async fn execute(
    bounds: Bounds<'_>,
    run: &Arc<Run>,
    tool: &Registered,
    params: Box<RawValue>,
    effect: &EffectId,
    resumed: bool,
    began: Instant,
) -> Result<ToolOutput, ToolError> {
    let annotations = &tool.spec().annotations;
    let gate = u32::try_from(GATE).unwrap_or(u32::MAX);
    let weight = annotations.weight.clamp(1, gate);
    let permit = tokio::select! {
        permit = Arc::clone(&run.scope.gate).acquire_many_owned(weight) => permit.ok(),
        () = run.cancel.cancelled() => return Err(cancelled(began)),
    };
    let timeout = annotations.timeout_ms.unwrap_or(bounds.limits.tool_timeout_ms);
    let deadline = (Instant::now() + Duration::from_millis(timeout)).min(run.budget.deadline());
    let cancel = run.cancel.child_token();
    let context = ToolContext {
        run: Arc::clone(run),
        effect: effect.clone(),
        cancel: cancel.clone(),
        deadline,
        resumed,
        permit,
    };
    let mut call = pin!(tool.tool().call(params, context));
    let error = tokio::select! {
        result = &mut call => return result,
        () = run.cancel.cancelled() => cancelled(began),
        () = tokio::time::sleep_until(deadline) => ToolError {
            status: ToolStatus::Cancelled,
            message: format!("stopped after {} ms: its time was over", began.elapsed().as_millis()),
        },
    };
    cancel.cancel();
    // What can end by itself, a sub-agent with its report for one, is given the time to; the rest is dropped.
    match tokio::time::timeout(GRACE, call).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(_)) | Err(_) => Err(error),
    }
}

fn cancelled(began: Instant) -> ToolError {
    ToolError {
        status: ToolStatus::Cancelled,
        message: format!("cancelled after {} ms", began.elapsed().as_millis()),
    }
}

#[expect(clippy::too_many_arguments, reason = "it writes one record and one event, whose fields these are")]
fn finish(
    run: &Run,
    step: u32,
    index: u32,
    effect: &EffectId,
    request: &ToolCallRequest,
    kind: ItemKind,
    status: ToolStatus,
    content: &str,
    elapsed: Duration,
) {
    run.record(Entry::Result {
        invocation: run.id.clone(),
        step,
        index,
        effect: effect.clone(),
        status,
        content: content.to_owned(),
    });
    let outcome = match status {
        ToolStatus::Ok => ItemOutcome::Ok,
        ToolStatus::Error => ItemOutcome::Error,
        ToolStatus::Refused => ItemOutcome::Refused,
        ToolStatus::Cancelled => ItemOutcome::Cancelled,
        ToolStatus::OutcomeUnknown => ItemOutcome::OutcomeUnknown,
    };
    let item = Item {
        id: effect.to_string(),
        kind,
        name: Some(request.name.clone()),
        input: None,
        output: Some(Preview::of(content)),
    };
    let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    run.event(EventBody::ItemCompleted { item, outcome, elapsed_ms });
}
