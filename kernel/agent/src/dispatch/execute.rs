//! One call: its share of the gate, its time, its result.

use std::{
    pin::pin,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use drupe_extension_api::{EffectClass, EffectId, Image, ToolCallRequest, ToolStatus, wire::HookPoint};
use serde_json::{json, value::RawValue};
use tokio::time::Instant;

use super::{
    Answered, Bounds, Call, HeldBack, Line, Place, Plan, agree,
    line::{self},
    others_follow,
};
use crate::{
    journal::{Entry, JournalFault},
    registry::Registered,
    results,
    run::{Over, Run},
    stopwatch::Stopwatch,
    tool::{Agreement, ToolContext, ToolError, ToolOutput},
};

/// How long a cancelled call of the root may take to end by itself before it is dropped: a second less what
/// recording it may take. Deeper calls have less, so that those above can still collect what they report.
fn grace(depth: u32) -> Duration {
    const ROOT_MS: u32 = 800;
    const LEVEL_MS: u32 = 200;
    const LEAST_MS: u32 = 100;
    Duration::from_millis(ROOT_MS.saturating_sub(depth.saturating_mul(LEVEL_MS)).max(LEAST_MS).into())
}

/// Runs a call, or hands on how it was answered; commits its result unless it is the step's last. One that ends the
/// whole run is recorded with the run's end, since a result without it would let the run go on after a crash.
pub(super) async fn one(
    bounds: Bounds<'_>,
    place: Place<'_>,
    line: &Line,
    call: Call,
    after: &AtomicUsize,
) -> Result<(u32, Answered), JournalFault> {
    let Call { index, effect, request, plan, place: seat, waits } = call;
    let (tool, params, resumed, asked, mut agreement) = match plan {
        Plan::Answered { status, content, images } => {
            let answered = Answered { effect, request, status, content, images, ends: None, held_back: None };
            return Ok((index, answered));
        }
        Plan::Run { tool, params, resumed, by: _, agreement } => (tool, params, resumed, None, agreement),
        Plan::Ask { tool, params, question } => {
            let agreement = Agreement { shown: question.seal.clone(), given: None };
            (tool, params, false, Some(question), agreement)
        }
    };
    // From here until its result is recorded the run has something to do, unless a person is asked.
    let time = place.time.below(Duration::MAX);
    let mut agreed = Ok(());
    if let Some(question) = &asked {
        agreed = agree::agreed(place, &time, question).await?.map(|given| agreement.given = given);
    }
    let began = Instant::now();
    let result = match agreed {
        Err((status, message)) => Err(ToolError { status, message }),
        Ok(()) => match seat {
            Some(seat) => Ok(seat),
            None => line.wait(place, &tool).await.map_err(|over| stopped(over, began)),
        },
    };
    let result = match result {
        Err(error) => Err(error),
        Ok(seat) => {
            starts(place, &tool, (index, &effect), asked.is_some(), waits).await?;
            let result =
                execute(bounds, place, &tool, params, &effect, (resumed, agreement), (seat, &time)).await;
            if tool.spec().annotations.reads_untrusted {
                place.run.tainted_by(tool.spec().name.as_str());
            }
            result
        }
    };
    let ToolOutput { status, content, images, ends } =
        result.unwrap_or_else(|error| ToolOutput { status: error.status, ..ToolOutput::text(error.message) });
    let content = results::kept(content);
    let followed = others_follow(after);
    let end = HeldBack { index, kind: tool.spec().annotations.item, elapsed: began.elapsed() };
    let held_back = if ends.is_some() {
        tell_after(place.run, &request, &end, status).await;
        Some(end)
    } else {
        finish(place, &effect, &request, &end, (status, &content, &images));
        // What cannot be done again is safe before anybody is told of it.
        if followed || place.run.tells(HookPoint::AfterTool) {
            place.run.commit().await?;
        }
        tell_after(place.run, &request, &end, status).await;
        None
    };
    Ok((index, Answered { effect, request, status, content, images, ends, held_back }))
}

/// Records that a call starts, where that is not recorded yet.
async fn starts(
    place: Place<'_>,
    tool: &Registered,
    (index, effect): (u32, &EffectId),
    asked: bool,
    waits: bool,
) -> Result<(), JournalFault> {
    let (run, step) = (place.run, place.step);
    let (invocation, effect) = (run.id.clone(), effect.clone());
    if asked {
        run.record(Entry::Intent {
            invocation,
            step,
            index,
            effect,
            tool: tool.spec().name.to_string(),
            class: tool.spec().annotations.effect,
            over_limit: false,
            waits: false,
            kind: tool.spec().annotations.item,
            input: None,
            by: None,
        });
    } else if waits {
        run.record(Entry::Started { invocation, step, effect });
    } else {
        return Ok(());
    }
    run.commit().await
}

async fn tell_after(run: &Run, request: &ToolCallRequest, end: &HeldBack, status: ToolStatus) {
    let facts =
        || json!({"tool": request.name, "status": status, "elapsed_ms": crate::run::millis(end.elapsed)});
    run.ask_after(HookPoint::AfterTool, facts).await;
}

async fn execute(
    bounds: Bounds<'_>,
    place: Place<'_>,
    tool: &Registered,
    params: Box<RawValue>,
    effect: &EffectId,
    (resumed, agreement): (bool, Agreement),
    (seat, time): (line::Place, &Stopwatch),
) -> Result<ToolOutput, ToolError> {
    let (run, began) = (place.run, Instant::now());
    let annotations = &tool.spec().annotations;
    let timeout = annotations.timeout_ms.unwrap_or(bounds.limits.tool_timeout_ms);
    time.restart(Duration::from_millis(timeout));
    let cancel = place.cancel.child_token();
    let context = ToolContext {
        run: Arc::clone(run),
        effect: effect.clone(),
        cancel: cancel.clone(),
        time: time.clone(),
        resumed,
        agreement,
        share: seat.held.share(),
    };
    let mut call = pin!(tool.tool().call(params, context));
    let over = tokio::select! {
        biased;
        // Before the call: what ends because it hears of this has not ended by itself.
        () = place.cancel.cancelled() => Over::Cancelled,
        // Before the deadline: a sub-agent whose time is over at the same moment says so better.
        result = &mut call => return result,
        () = time.over() => Over::Timeout,
    };
    cancel.cancel();
    // What can end by itself, a sub-agent with its report for one, is given the time to; the rest is dropped.
    let mut error = stopped(over, began);
    match tokio::time::timeout(grace(run.depth()), call).await {
        Ok(Ok(output)) => return Ok(output),
        Ok(Err(own)) => error.message = format!("{}: {}", error.message, own.message),
        // It went on working when it was dropped.
        Err(_) if annotations.effect == EffectClass::Once => {
            error.message.push_str("; whether it took effect is not known: check before you repeat it");
        }
        Err(_) => {}
    }
    Err(error)
}

/// What the model reads of a call that was stopped.
pub(super) fn stopped(over: Over, began: Instant) -> ToolError {
    let ms = began.elapsed().as_millis();
    let message = match over {
        Over::Cancelled => format!("cancelled after {ms} ms"),
        Over::Timeout => format!("stopped after {ms} ms because its time was over"),
    };
    ToolError { status: ToolStatus::Cancelled, message }
}

/// Records how a call ended, and tells it.
pub(super) fn finish(
    place: Place<'_>,
    effect: &EffectId,
    request: &ToolCallRequest,
    end: &HeldBack,
    (status, content, images): (ToolStatus, &str, &[Image]),
) {
    let run: &Run = place.run;
    run.record(Entry::Result {
        invocation: run.id.clone(),
        step: place.step,
        index: end.index,
        effect: effect.clone(),
        tool: request.name.clone(),
        kind: end.kind,
        status,
        elapsed_ms: crate::run::millis(end.elapsed),
        content: content.to_owned(),
        images: images.to_vec(),
        left: false,
    });
}

/// Does so for a call whose end was held back.
pub(super) fn finish_held_back(place: Place<'_>, answer: &Answered) {
    if let Some(end) = &answer.held_back {
        let result = (answer.status, answer.content.as_str(), answer.images.as_slice());
        finish(place, &answer.effect, &answer.request, end, result);
    }
}
