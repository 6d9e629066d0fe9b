//! What a call would change, asked of its tool before a person is asked about the call.
//!
//! All calls of a step are asked about at once and share one deadline, because the answer of the model is not safe before their
//! questions are: a tool that hangs, fails or says too much costs the person the preview and nobody the call.

use std::time::Duration;

use drupe_extension_api::{EffectId, Fault, FaultCode, ToolPreview, control::CallPreview};
use futures_util::future::join_all;
use serde_json::value::RawValue;

use super::{Call, Plan};
use crate::{
    input_form::InputForm, journal::RecordedEffect, policy::Question, registry::Registered, run::Run,
};

/// How long a tool may take to say what a call would change: a diff of the largest file that is shown takes a tenth of it.
const TIME: Duration = Duration::from_secs(2);

/// Bytes of the reason why there is no preview.
const REASON: usize = 1_024;

/// Adds to each question that is new what the call would change, where its tool can say so.
pub(super) async fn show(run: &Run, calls: &mut [(Call, Option<&RecordedEffect>, bool)]) {
    let asked = calls.iter_mut().filter_map(|(call, known, _)| match &mut call.plan {
        Plan::Ask { tool, params, question } if known.is_none() && shows(tool) => {
            Some((&*tool, params.clone(), &call.effect, question))
        }
        _ => None,
    });
    join_all(asked.map(|(tool, params, effect, question)| async move {
        let said = tokio::select! {
            biased;
            _ = run.over() => Err(Fault::new(FaultCode::Cancelled, "the run was stopped")),
            said = ask(run, tool, params, effect.clone()) => said,
        };
        keep(question, said);
    }))
    .await;
}

fn shows(tool: &Registered) -> bool {
    let annotations = &tool.spec().annotations;
    annotations.previews || annotations.needs_input
}

async fn ask(
    run: &Run,
    tool: &Registered,
    params: Box<RawValue>,
    effect: EffectId,
) -> Result<ToolPreview, Fault> {
    let late = |_| Fault::new(FaultCode::Timeout, format!("it took longer than {} s", TIME.as_secs()));
    let said = tokio::time::timeout(TIME, tool.tool().preview(params, effect, run)).await.map_err(late)??;
    match &said.seal {
        // Without its seal the call could do something else than what is shown.
        Some(seal) if seal.len() > ToolPreview::LONGEST_SEAL => {
            return Err(Fault::invalid(format!("its seal has {} bytes", seal.len())));
        }
        _ => {}
    }
    match (&said.input, tool.spec().annotations.needs_input) {
        (Some(input), true) => InputForm::new(input).map(drop)?,
        (None, false) => {}
        (Some(_), false) => {
            return Err(Fault::invalid("it asks for input, which its annotations do not say that it needs"));
        }
        (None, true) => return Err(Fault::invalid("it says that it needs input, and asks for none")),
    }
    Ok(said)
}

fn keep(question: &mut Question, said: Result<ToolPreview, Fault>) {
    let (text, most, failed, input) = match said {
        Ok(ToolPreview { text, seal, input }) => {
            question.seal = seal;
            (text, ToolPreview::MAX, false, input)
        }
        Err(fault) => (fault.to_string(), REASON, true, None),
    };
    question.preview = Some(CallPreview { text: cut(text, most), failed, input });
}

/// The beginning of a text, which says at its end how much more there is.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = text.floor_char_boundary(most);
        let more = format!("\n[{} more bytes are not shown]", text.len() - end);
        text.truncate(end);
        text.push_str(&more);
    }
    text
}
