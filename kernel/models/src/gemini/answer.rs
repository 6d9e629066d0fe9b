//! Reads the events of the Gemini API.

use drupe_agent::{ModelEvent, ModelFault, Usage};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::source::Broken;
use crate::wire::{
    Draft, Reader, WireError,
    draft::{self, Call, Finish},
    in_stream,
    text::Text,
};

/// Every event is a whole response in small; nothing is remembered but the counts.
#[derive(Default)]
pub(super) struct Chunks {
    counts: WireUsage,
}

impl Reader for Chunks {
    fn take(&mut self, data: &str, draft: &mut Draft, out: &mut Vec<ModelEvent>) -> Result<(), Broken> {
        // Not this API's, but of gateways that end every stream so.
        if data == "[DONE]" {
            draft.ended = true;
            return Ok(());
        }
        self.chunk(draft::event(data)?, draft, out)
    }

    /// One response, or the list of them that the API gives to those who do not ask for events.
    fn whole(&mut self, data: &str, draft: &mut Draft, out: &mut Vec<ModelEvent>) -> Result<(), Broken> {
        let chunks: Vec<Chunk<'_>> = match data.trim_start().starts_with('[') {
            true => draft::event(data)?,
            false => vec![draft::event(data)?],
        };
        chunks.into_iter().try_for_each(|chunk| self.chunk(chunk, draft, out))
    }
}

impl Chunks {
    fn chunk(
        &mut self,
        chunk: Chunk<'_>,
        draft: &mut Draft,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), Broken> {
        if let Some(error) = chunk.error {
            return Err(in_stream(&error));
        }
        if let Some(counts) = chunk.usage {
            self.counts = self.counts.or_more(&counts);
            draft.usage = Some((&self.counts).into());
        }
        if let Some(feedback) = chunk.prompt_feedback
            && let Some(reason) = feedback.block_reason
        {
            draft.finish = Some(Finish::Filter);
            let words = feedback.block_reason_message.unwrap_or_default();
            draft.tell(&reason, blocked(feedback.safety_ratings.as_ref()), &words);
        }
        for candidate in chunk.candidates.into_iter().flatten().filter(|c| c.index == 0) {
            // The reason to stop is the end: what would follow it belongs to nothing.
            if draft.finish.is_some() {
                break;
            }
            for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
                take(part, draft, out)?;
            }
            if let Some(reason) = candidate.finish_reason {
                let (finish, wrong) = ended(&reason)?;
                (draft.finish, draft.wrong) = (Some(finish), wrong);
                if finish == Finish::Filter {
                    let words = candidate.finish_message.unwrap_or_default();
                    draft.tell(&reason, blocked(candidate.safety_ratings.as_ref()), &words);
                }
            }
        }
        Ok(())
    }
}

/// The categories for which something was blocked.
fn blocked(ratings: Option<&Value>) -> impl Iterator<Item = &str> {
    let all = ratings.and_then(Value::as_array).into_iter().flatten();
    let blocked = all.filter(|rating| rating.get("blocked").and_then(Value::as_bool) == Some(true));
    blocked.filter_map(|rating| rating.get("category").and_then(Value::as_str))
}

fn take(part: Part<'_>, draft: &mut Draft, out: &mut Vec<ModelEvent>) -> Result<(), ModelFault> {
    let thought = part.thought.unwrap_or(false);
    let signature = part.thought_signature.filter(|text| !text.is_empty());
    if let Some(function) = part.function_call {
        let id = function.id.filter(|id| !id.is_empty());
        let at = draft.calls.len() + 1;
        for (key, kept) in [("thoughtSignature", signature.as_deref()), ("id", id.as_deref())] {
            if let Some(kept) = kept {
                draft.keep(json!({key: kept}), at);
            }
        }
        draft.open(Call {
            id: id.unwrap_or_default().0.into_owned(),
            name: function.name.unwrap_or_default().0.into_owned(),
            arguments: function.args.map_or("{}", RawValue::get).to_owned(),
            ..Call::default()
        })?;
        return Ok(());
    }
    if let Some(signature) = signature.filter(|_| !thought) {
        draft.keep(json!({"thoughtSignature": &*signature}), 0);
    }
    match part.text {
        Some(text) if thought => draft.think(out, &text),
        Some(text) => draft.say(out, &text),
        None => {}
    }
    Ok(())
}

/// What a reason to stop means, and what the model itself did wrong. Of that the provider is well.
fn ended(reason: &str) -> Result<(Finish, Option<ModelFault>), ModelFault> {
    match reason {
        "STOP" => Ok((Finish::End, None)),
        "MAX_TOKENS" => Ok((Finish::Length, None)),
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => Ok((Finish::Filter, None)),
        "OTHER" | "IMAGE_OTHER" | "FINISH_REASON_UNSPECIFIED" => Err(draft::broke_off(reason)),
        "MALFORMED_FUNCTION_CALL"
        | "MALFORMED_RESPONSE"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MISSING_THOUGHT_SIGNATURE"
        | "NO_IMAGE" => Ok((Finish::End, Some(draft::broke_off(reason)))),
        other => Ok((Finish::End, Some(draft::unknown_end(other)))),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(bound(deserialize = "'de: 'a"))]
struct Chunk<'a> {
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(rename = "usageMetadata")]
    usage: Option<WireUsage>,
    prompt_feedback: Option<Feedback<'a>>,
    error: Option<WireError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(bound(deserialize = "'de: 'a"))]
struct Feedback<'a> {
    block_reason: Option<Text<'a>>,
    block_reason_message: Option<Text<'a>>,
    safety_ratings: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(bound(deserialize = "'de: 'a"))]
struct Candidate<'a> {
    #[serde(default)]
    index: u64,
    content: Option<Content<'a>>,
    finish_reason: Option<Text<'a>>,
    finish_message: Option<Text<'a>>,
    safety_ratings: Option<Value>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Option<Vec<Part<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(bound(deserialize = "'de: 'a"))]
struct Part<'a> {
    text: Option<Text<'a>>,
    thought: Option<bool>,
    thought_signature: Option<Text<'a>>,
    function_call: Option<FunctionCall<'a>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct FunctionCall<'a> {
    id: Option<Text<'a>>,
    name: Option<Text<'a>>,
    args: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireUsage {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

impl WireUsage {
    /// Counts only grow, and not every event has all of them.
    fn or_more(&self, later: &Self) -> Self {
        Self {
            prompt_token_count: self.prompt_token_count.max(later.prompt_token_count),
            tool_use_prompt_token_count: self
                .tool_use_prompt_token_count
                .max(later.tool_use_prompt_token_count),
            cached_content_token_count: self.cached_content_token_count.max(later.cached_content_token_count),
            candidates_token_count: self.candidates_token_count.max(later.candidates_token_count),
            thoughts_token_count: self.thoughts_token_count.max(later.thoughts_token_count),
        }
    }
}

impl From<&WireUsage> for Usage {
    fn from(wire: &WireUsage) -> Self {
        let reasoning = wire.thoughts_token_count.unwrap_or(0);
        let prompt = wire.prompt_token_count.unwrap_or(0);
        Self {
            input_tokens: prompt.saturating_add(wire.tool_use_prompt_token_count.unwrap_or(0)),
            cached_tokens: wire.cached_content_token_count.unwrap_or(0),
            output_tokens: wire.candidates_token_count.unwrap_or(0).saturating_add(reasoning),
            reasoning_tokens: reasoning,
            ..Self::default()
        }
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
