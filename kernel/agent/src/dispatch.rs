//! The tool calls of one step: name → schema → policy → intent → gate → run → result.
//!
//! It deliberately never asks where a tool comes from or what it is.

mod execute;
mod resume;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use drupe_extension_api::{
    DefinitionLimits, EffectClass, EffectId, EventBody, Item, ItemKind, Preview, ToolCallRequest, ToolStatus,
    wire::HookPoint,
};
use futures_util::{StreamExt, stream};
use serde_json::{json, value::RawValue};
use tokio::time::Instant;

use crate::{
    budget::{Exceeded, Spent},
    ids,
    journal::{Entry, JournalFault, RecordedEffect},
    policy::{Decision, PolicyCall},
    registry::{Registered, Registry},
    run::Run,
};
use execute::{finish, finish_held_back, one, stopped};

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
    },
}

impl Plan {
    fn refused(content: String) -> Self {
        Self::Answered { status: ToolStatus::Refused, content }
    }
}

/// How a call ended.
pub(crate) struct Answered {
    pub effect: EffectId,
    pub request: ToolCallRequest,
    pub status: ToolStatus,
    /// The whole result.
    pub content: String,
    pub refuse: Option<String>,
    /// What is to be recorded of it after all others of its step.
    pub held_back: Option<HeldBack>,
}

/// The end of a call that is recorded later than it came.
pub(crate) struct HeldBack {
    index: u32,
    kind: ItemKind,
    elapsed: Duration,
}

/// What bounds the tool calls of a run.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    pub registry: &'a Registry,
    pub limits: &'a DefinitionLimits,
    /// Why nothing that is new may run.
    pub ended: Option<&'a str>,
}

/// The place of a call in its run.
#[derive(Clone, Copy)]
struct Place<'a> {
    run: &'a Arc<Run>,
    step: u32,
}

/// The step under which the calls that a native agent makes outside the loop are recorded: before the first.
pub(crate) const OUTSIDE: u32 = 0;

/// Runs one tool on behalf of the native agent that `run` belongs to, by the same path as the calls of a model. The
/// result is whole: it is code that reads it.
pub async fn call_tool(
    run: &Arc<Run>,
    registry: &Registry,
    limits: &DefinitionLimits,
    request: ToolCallRequest,
) -> Result<(ToolStatus, String), JournalFault> {
    let bounds = Bounds { registry, limits, ended: None };
    let place = Place { run, step: OUTSIDE };
    let nth = run.times_asked(format!("tool {} {}", request.name, request.arguments));
    let effect = ids::effect_of_run(&run.id, &request.name, &request.arguments, nth);
    let recorded = run.recorded().await?;
    let steps = recorded.iter().flat_map(|recorded| &recorded.steps);
    let known = steps.flat_map(|step| &step.effects).find(|known| known.effect == effect);
    // Code that waits for a tool holds no share of the gate meanwhile.
    let work = async {
        // Calls of an earlier process were charged when the run began again.
        let (call, exceeded) = match known {
            Some(known) => (resume::call(bounds, place, effect, &request, known).await?, None),
            None => planned(bounds, place, 0, effect, &request, None).await?,
        };
        if let Some(exceeded) = exceeded {
            run.event(EventBody::BudgetExceeded(exceeded.told()));
        }
        run.commit().await?;
        let (_, answer) = one(bounds, place, call, &AtomicUsize::new(0)).await?;
        finish_held_back(place, &answer);
        run.commit().await?;
        Ok((answer.status, answer.content))
    };
    run.share.wait(work, run.over()).await
}

/// Decides for each call of a step whether it can run, and records what is about to happen. The caller commits.
/// With the limit that no further call may pass, if one met it.
pub(crate) async fn plan(
    bounds: Bounds<'_>,
    run: &Arc<Run>,
    step: u32,
    requests: &[ToolCallRequest],
    recorded: &[RecordedEffect],
) -> Result<(Vec<Call>, Option<Exceeded>), JournalFault> {
    let mut calls = Vec::with_capacity(requests.len());
    let mut exceeded = None;
    for (index, request) in (0u32..).zip(requests) {
        let effect = ids::effect(&run.scope.turn, &run.id, step, index);
        let known = recorded.iter().find(|e| e.effect == effect);
        let place = Place { run, step };
        let (call, limit) = planned(bounds, place, index, effect, request, known).await?;
        calls.push(call);
        exceeded = exceeded.or(limit);
    }
    Ok((calls, exceeded))
}

async fn planned(
    bounds: Bounds<'_>,
    place: Place<'_>,
    index: u32,
    effect: EffectId,
    request: &ToolCallRequest,
    known: Option<&RecordedEffect>,
) -> Result<(Call, Option<Exceeded>), JournalFault> {
    // What an earlier process spent is spent; what it refused for a limit is refused for it again.
    let counted = match known {
        None => place.run.budget.tool_call(),
        Some(known) if known.over_limit => place.run.budget.may_call_tools(),
        Some(_) => {
            place.run.budget.replay(Spent::calls(1));
            Ok(())
        }
    };
    let plan = match (known, &counted) {
        (Some(known), _) => resume::plan(bounds, place, request, known).await?,
        (None, Err(exceeded)) => Plan::refused(format!("not run: {exceeded}")),
        (None, Ok(())) => fresh(bounds, place.run, index, request).await,
    };
    let call = Call { index, effect, request: request.clone(), plan };
    match known {
        None => announce(place, &call, counted.is_err()),
        Some(known) if known.result.is_none() => resume::announce(place, &call, known),
        Some(_) => {}
    }
    Ok((call, counted.err()))
}

/// A call that was never recorded.
async fn fresh(bounds: Bounds<'_>, run: &Run, index: u32, request: &ToolCallRequest) -> Plan {
    if let Some(reason) = bounds.ended {
        return Plan::refused(format!("not run: {reason}"));
    }
    let most = bounds.limits.max_tool_calls_per_step;
    if index >= most {
        return Plan::refused(format!("not run: at most {most} tool calls are allowed in one step"));
    }
    let Some(tool) = bounds.registry.get(&request.name) else {
        return Plan::refused(unknown_tool(bounds.registry, &request.name));
    };
    let params = match tool.parameters(&request.arguments) {
        Ok(params) => params,
        Err(reason) => return Plan::refused(reason + &schema_hint(bounds.registry, tool)),
    };
    let began = Instant::now();
    let decision = tokio::select! {
        biased;
        over = run.over() => {
            let error = stopped(over, began);
            return Plan::Answered { status: error.status, content: error.message };
        }
        decision = run.scope.policy.decide(PolicyCall { run, spec: tool.spec(), params: params.get() }) => decision,
    };
    match decision {
        Decision::Allow => {}
        Decision::Deny(reason) => return Plan::refused(reason),
    }
    let facts = || json!({"tool": request.name, "params": Preview::of(params.get())});
    match run.ask_before(HookPoint::BeforeTool, facts).await {
        None => Plan::Run { tool: Arc::clone(tool), params, resumed: false },
        Some(reason) => Plan::refused(format!("not run: {reason}")),
    }
}

/// The schema of a deferred tool, which the model may never have seen.
fn schema_hint(registry: &Registry, tool: &Registered) -> String {
    /// Bytes of a schema that are shown; `search_tools` gives it whole.
    const SHOWN: usize = 4_096;
    let spec = tool.spec();
    if !registry.deferred().iter().any(|deferred| deferred.name == spec.name) {
        return String::new();
    }
    let schema = spec.input_schema.to_string();
    let shown = &schema[..schema.floor_char_boundary(SHOWN)];
    let cut = if shown.len() < schema.len() { "… (cut)" } else { "" };
    format!("\nIts schema: {shown}{cut}")
}

fn unknown_tool(registry: &Registry, name: &str) -> String {
    /// Names that still can be read.
    const SHOWN: usize = 40;
    /// Bytes of a name that nobody has.
    const NAME: usize = 100;
    if let Some(out) = registry.excluded().iter().find(|out| out.tool == name) {
        return format!("tool `{name}` is not there for you: {}", out.reason);
    }
    let specs = registry.offered();
    let names: Vec<&str> = specs.iter().take(SHOWN).map(|s| s.name.as_str()).collect();
    let more = registry.specs().len() - names.len();
    let have = match (names.is_empty(), more) {
        (true, _) => "you have no tools".to_owned(),
        (false, 0) => format!("you have: {}", names.join(", ")),
        (false, more) => format!("you have: {} and {more} more", names.join(", ")),
    };
    format!("there is no tool `{}` for you; {have}", &name[..name.floor_char_boundary(NAME)])
}

/// Records the intent of a call, or the refusal that it met.
fn announce(place: Place<'_>, call: &Call, over_limit: bool) {
    let class = match &call.plan {
        Plan::Run { tool, .. } => tool.spec().annotations.effect,
        Plan::Answered { .. } => EffectClass::Pure,
    };
    place.run.record(Entry::Intent {
        invocation: place.run.id.clone(),
        step: place.step,
        index: call.index,
        effect: call.effect.clone(),
        tool: call.request.name.clone(),
        class,
        over_limit,
    });
    started(place, call);
}

/// Tells that a call began, and how it ended where it did so at once.
fn started(place: Place<'_>, call: &Call) {
    let kind = match &call.plan {
        Plan::Run { tool, .. } => tool.spec().annotations.item,
        Plan::Answered { .. } => ItemKind::ToolCall,
    };
    let input = Some(Preview::kept(&call.request.arguments, call.effect.as_str()));
    let name = Some(call.request.name.clone());
    let item = Item { id: call.effect.to_string(), kind, name, input, output: None };
    place.run.event(EventBody::ItemStarted { item });
    if let Plan::Answered { status, content } = &call.plan {
        let end = HeldBack { index: call.index, kind, elapsed: Duration::ZERO };
        finish(place, &call.effect, &call.request, &end, (*status, content));
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
    let running = calls.iter().filter(|c| matches!(c.plan, Plan::Run { .. })).count();
    let after = AtomicUsize::new(running.saturating_sub(1));
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
        let calls = group.into_iter().map(|call| one(bounds, Place { run, step }, call, &after));
        let mut running = stream::iter(calls).buffer_unordered(parallel);
        while let Some(ended) = running.next().await {
            let (index, answer) = ended?;
            answers[index as usize] = Some(answer);
        }
    }
    let answers: Vec<Answered> = answers.into_iter().flatten().collect();
    for answer in &answers {
        finish_held_back(Place { run, step }, answer);
    }
    Ok(answers)
}

/// Whether the caller of this is followed by others that end later.
fn others_follow(after: &AtomicUsize) -> bool {
    after.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
}
