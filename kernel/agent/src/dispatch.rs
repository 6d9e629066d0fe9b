//! The tool calls of one step: name → schema → policy → intent → gate → run → result.
//!
//! It deliberately never asks where a tool comes from or what it is. The states of a call, and who decides about it:
//! [`policy`](crate::policy).

mod agree;
mod execute;
mod line;
mod preview;
mod resume;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use drupe_extension_api::{
    DefinitionLimits, EffectClass, EffectId, EventBody, Image, ItemKind, Preview, ToolCallRequest,
    ToolStatus, wire::HookPoint,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use serde_json::{json, value::RawValue};
use tokio_util::sync::CancellationToken;

use crate::{
    asker::Asker,
    budget::{Exceeded, Spent},
    ids,
    journal::{Entry, JournalFault, RecordedEffect},
    policy::{Decision, PolicyCall, Question},
    registry::{Registered, Registry},
    run::{Over, Run},
    stopwatch::Stopwatch,
    tool::{Agreement, RunEnd},
};
use execute::{finish, finish_held_back, one};
use line::{Line, Place as InLine};

/// One call of a step, ready to run or already answered.
pub(crate) struct Call {
    pub index: u32,
    pub effect: EffectId,
    pub request: ToolCallRequest,
    pub plan: Plan,
    /// Its place among those that run, if it begins at once.
    place: Option<InLine>,
    /// Whether a record must say that it starts before it does.
    waits: bool,
}

pub(crate) enum Plan {
    Run {
        tool: Arc<Registered>,
        params: Box<RawValue>,
        resumed: bool,
        /// The rule by which it may, where it is not what holds of most calls.
        by: Option<String>,
        /// What came of the question about it, in an earlier process.
        agreement: Agreement,
    },
    /// Runs when a person has agreed.
    Ask { tool: Arc<Registered>, params: Box<RawValue>, question: Box<Question> },
    /// Answered without running now: refused, or recorded by an earlier process.
    Answered { status: ToolStatus, content: String, images: Vec<Image> },
}

impl Plan {
    fn refused(content: String) -> Self {
        Self::answered(ToolStatus::Refused, content)
    }

    fn answered(status: ToolStatus, content: String) -> Self {
        Self::Answered { status, content, images: Vec::new() }
    }

    fn tool(&self) -> Option<&Arc<Registered>> {
        match self {
            Self::Run { tool, .. } | Self::Ask { tool, .. } => Some(tool),
            Self::Answered { .. } => None,
        }
    }

    /// How the call is shown.
    fn kind(&self) -> ItemKind {
        self.tool().map_or(ItemKind::ToolCall, |tool| tool.spec().annotations.item)
    }
}

impl Call {
    /// The beginning of its parameters.
    fn input(&self) -> Preview {
        Preview::kept(&self.request.arguments, self.effect.as_str())
    }
}

/// How a call ended.
pub(crate) struct Answered {
    pub effect: EffectId,
    pub request: ToolCallRequest,
    pub status: ToolStatus,
    /// The whole result.
    pub content: String,
    /// The pictures beside it; those that an earlier process recorded are without their bytes.
    pub images: Vec<Image>,
    pub ends: Option<RunEnd>,
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
    /// Whose time the calls use: that of the run, or of the call on whose behalf code calls.
    time: &'a Stopwatch,
    /// Cancelled when the calls are to end: with the run, or before.
    cancel: &'a CancellationToken,
}

impl Place<'_> {
    /// Ends when the calls must.
    async fn over(&self) -> Over {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Over::Cancelled,
            over = self.run.over() => over,
        }
    }
}

/// The step under which the calls that a native agent makes outside the loop are recorded: before the first.
pub(crate) const OUTSIDE: u32 = 0;

/// Runs one tool below `run` for code, by the same path as the calls of a model. The result is whole: it is code that
/// reads it.
///
/// `time` is that of what the code works on; it stands still while a person is asked.
pub async fn call_tool(
    run: &Arc<Run>,
    (asker, time): (&Asker, &Stopwatch),
    registry: &Registry,
    limits: &DefinitionLimits,
    request: ToolCallRequest,
) -> Result<(ToolStatus, String), JournalFault> {
    let nth = run.times_asked(asker, format_args!("tool {} {}", request.name, request.arguments));
    let effect = ids::effect_for_code(asker.place(run), &request.name, &request.arguments, nth);
    // Code that waits for a tool holds no share of the gate meanwhile.
    let work =
        call_beside(run, (time, &run.cancel), Bounds { registry, limits, ended: None }, request, effect);
    run.share.wait(work, run.over()).await
}

/// Runs one tool beside the steps of a run, as the call of that id: one that an earlier process recorded goes on.
pub(crate) async fn call_beside(
    run: &Arc<Run>,
    (time, cancel): (&Stopwatch, &CancellationToken),
    bounds: Bounds<'_>,
    request: ToolCallRequest,
    effect: EffectId,
) -> Result<(ToolStatus, String), JournalFault> {
    let place = Place { run, step: OUTSIDE, time, cancel };
    let recorded = run.recorded();
    let steps = recorded.iter().flat_map(|recorded| &recorded.steps);
    let known = steps.flat_map(|step| &step.effects).find(|known| known.effect == effect);
    run.came_back_to_call(&effect);
    // Calls of an earlier process were charged when the run began again.
    let (plan, exceeded) = match known {
        Some(known) => (resume::plan(bounds, place, &request, known).await, None),
        None => fresh(bounds, run, 0, &effect, &request).await,
    };
    let index = known.map_or(0, |known| known.index);
    let call = Call { index, effect, request, plan, place: None, waits: false };
    let mut calls = [(call, known, exceeded.is_some())];
    preview::show(run, &mut calls).await;
    let line = Line::beside();
    announce(place, &line, &mut calls);
    if let Some(exceeded) = exceeded {
        run.tell(EventBody::BudgetExceeded(exceeded.told()));
    }
    run.commit().await?;
    let [(call, ..)] = calls;
    let (_, answer) = one(bounds, place, &line, call, &AtomicUsize::new(0)).await?;
    finish_held_back(place, &answer);
    run.commit().await?;
    Ok((answer.status, answer.content))
}

/// The calls of a step, decided about.
pub(crate) struct Step {
    calls: Vec<Call>,
    line: Line,
    /// The limit that no further call may pass, if one met it.
    pub exceeded: Option<Exceeded>,
}

impl Step {
    /// Whether anything of it is still to happen, so that it must be recorded first.
    pub(crate) fn has_work(&self) -> bool {
        self.calls.iter().any(|call| call.plan.tool().is_some())
    }
}

/// Decides for each call of a step whether it can run, and records what is about to happen. The caller commits.
pub(crate) async fn plan(
    bounds: Bounds<'_>,
    run: &Arc<Run>,
    step: u32,
    requests: &[ToolCallRequest],
    recorded: &[RecordedEffect],
) -> Step {
    let place = Place { run, step, time: run.budget.time(), cancel: &run.cancel };
    let mut calls = Vec::with_capacity(requests.len());
    let mut exceeded = None;
    for (index, request) in (0u32..).zip(requests) {
        let effect = ids::effect(&run.scope.turn, &run.id, step, index);
        let known = recorded.iter().find(|e| e.effect == effect);
        let (plan, limit) = match known {
            Some(known) => known_before(bounds, place, request, known).await,
            None => fresh(bounds, run, index, &effect, request).await,
        };
        let call = Call { index, effect, request: request.clone(), plan, place: None, waits: false };
        calls.push((call, known, limit.is_some()));
        exceeded = exceeded.or(limit);
    }
    preview::show(run, &mut calls).await;
    let line = Line::new(bounds.limits.parallel_tool_calls);
    announce(place, &line, &mut calls);
    Step { calls: calls.into_iter().map(|(call, ..)| call).collect(), line, exceeded }
}

/// A call that an earlier process recorded. What that spent is spent; what it refused for a limit is refused for it again.
async fn known_before(
    bounds: Bounds<'_>,
    place: Place<'_>,
    request: &ToolCallRequest,
    known: &RecordedEffect,
) -> (Plan, Option<Exceeded>) {
    let limit = match known.over_limit {
        true => place.run.budget.may_call_tools().err(),
        false => {
            place.run.budget.replay(Spent::calls(1));
            None
        }
    };
    (resume::plan(bounds, place, request, known).await, limit)
}

/// A call that was never recorded.
async fn fresh(
    bounds: Bounds<'_>,
    run: &Run,
    index: u32,
    effect: &EffectId,
    request: &ToolCallRequest,
) -> (Plan, Option<Exceeded>) {
    match run.budget.tool_call() {
        Ok(()) => (decided(bounds, run, index, effect, request).await, None),
        Err(exceeded) => (Plan::refused(format!("not run: {exceeded}")), Some(exceeded)),
    }
}

async fn decided(
    bounds: Bounds<'_>,
    run: &Run,
    index: u32,
    effect: &EffectId,
    request: &ToolCallRequest,
) -> Plan {
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
    if let Some(reason) = run.narrowed_out(&request.name).filter(|_| !tool.is_core()) {
        return Plan::refused(reason);
    }
    let params = match tool.parameters(&request.arguments) {
        Ok(params) => params,
        Err(reason) => return Plan::refused(reason + &schema_hint(bounds.registry, tool)),
    };
    let spec = tool.spec();
    let asked = PolicyCall { run, effect, spec, params: params.get() };
    let (by, need) = match run.scope.policy.decide(asked) {
        Decision::Allow { by } => (by, None),
        Decision::Ask(need) => (None, Some(need)),
        Decision::Deny { reason } => return Plan::refused(reason),
    };
    let facts = || json!({"tool": request.name, "params": Preview::of(params.get())});
    // Before a person is asked: what is forbidden anyway is no question.
    if let Some(reason) = run.ask_before(HookPoint::BeforeTool, facts).await {
        return Plan::refused(format!("not run: {reason}"));
    }
    let tool = Arc::clone(tool);
    match need {
        None => Plan::Run { tool, params, resumed: false, by, agreement: Agreement::default() },
        Some(need) => {
            let about = (&**tool.spec(), tool.tool().origin());
            let question = Question::new(run, effect.clone(), about, params.get(), need).into();
            Plan::Ask { tool, params, question }
        }
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

/// Gives places to those that begin at once, and records of each what is about to happen to it, or the refusal that it met.
/// Beside each call stand what an earlier process recorded of it, and whether a limit refuses it.
fn announce(place: Place<'_>, line: &Line, calls: &mut [(Call, Option<&RecordedEffect>, bool)]) {
    line.seat(place.run, calls.iter_mut().map(|(call, ..)| call));
    for (call, known, over_limit) in calls {
        match known {
            Some(known) if known.result.is_some() => continue,
            Some(known) => resume::announce(place, call, known),
            None => match &call.plan {
                Plan::Ask { tool, question, .. } => agree::ask(place, call.index, tool, question),
                Plan::Run { .. } | Plan::Answered { .. } => intend(place, call, *over_limit),
            },
        }
        if let Plan::Answered { status, content, images } = &call.plan {
            let end = HeldBack { index: call.index, kind: call.plan.kind(), elapsed: Duration::ZERO };
            finish(place, &call.effect, &call.request, &end, (*status, content, images));
        }
    }
}

/// Records the intent of a call, or that it does not run.
fn intend(place: Place<'_>, call: &mut Call, over_limit: bool) {
    let class = call.plan.tool().map_or(EffectClass::Pure, |tool| tool.spec().annotations.effect);
    // What may run twice need not tell a crash apart from a wait.
    call.waits = class == EffectClass::Once && call.place.is_none();
    let by = match &call.plan {
        Plan::Run { by, .. } => by.clone(),
        Plan::Ask { .. } | Plan::Answered { .. } => None,
    };
    place.run.record(Entry::Intent {
        invocation: place.run.id.clone(),
        step: place.step,
        index: call.index,
        effect: call.effect.clone(),
        tool: call.request.name.clone(),
        class,
        over_limit,
        waits: call.waits,
        kind: call.plan.kind(),
        input: Some(call.input()),
        by,
    });
}

/// Runs the calls: as many at once as [`Line`] lets, and those about which a person is asked when they may. Answers come
/// back in call order. All but the last result of the step are committed as they come; the last one joins the next
/// commit of the run.
pub(crate) async fn run_all(
    bounds: Bounds<'_>,
    run: &Arc<Run>,
    step: u32,
    Step { calls, line, .. }: Step,
) -> Result<Vec<Answered>, JournalFault> {
    let place = Place { run, step, time: run.budget.time(), cancel: &run.cancel };
    let running = calls.iter().filter(|call| call.plan.tool().is_some()).count();
    let after = AtomicUsize::new(running.saturating_sub(1));
    let mut answers: Vec<Option<Answered>> = calls.iter().map(|_| None).collect();
    let all = calls.into_iter().map(|call| one(bounds, place, &line, call, &after));
    let mut running: FuturesUnordered<_> = all.collect();
    while let Some(ended) = running.next().await {
        let (index, answer) = ended?;
        answers[index as usize] = Some(answer);
    }
    let answers: Vec<Answered> = answers.into_iter().flatten().collect();
    if answers.iter().any(|answer| answer.held_back.is_some()) {
        // Whoever works beside it would commit the result without the end of the run.
        run.end_workers().await;
    }
    for answer in &answers {
        finish_held_back(place, answer);
    }
    Ok(answers)
}

/// Whether the caller of this is followed by others that end later.
fn others_follow(after: &AtomicUsize) -> bool {
    after.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
}
