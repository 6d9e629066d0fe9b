//! Reads the events of Chat Completions.

use drupe_agent::{ModelEvent, ModelFault, Usage};
use serde::Deserialize;
use serde_json::Value;

use super::{
    content::Content,
    dialect::{Dialect, Returns},
};
use crate::source::Broken;
use crate::wire::{
    Draft, Reader, WireError,
    draft::{self, Call, Finish},
    in_stream, items,
    text::Text,
};

/// Every event says all that it means; only parts of reasoning that go back are put together here.
pub(super) struct Chunks {
    details: Vec<Value>,
    /// Whether the server wants them back.
    keeps: bool,
}

impl Chunks {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { details: Vec::new(), keeps: dialect.returns == Returns::Details }
    }

    /// Takes further pieces of parts: those of one part bear its number, and their texts follow each other.
    fn detail(&mut self, piece: Value) {
        let number = |part: &Value| part.get("index").cloned();
        let kind = |part: &Value| part.get("type").cloned();
        let same = |part: &&mut Value| {
            number(part).is_some() && number(part) == number(&piece) && kind(part) == kind(&piece)
        };
        let (Some(part), Value::Object(more)) = (self.details.iter_mut().find(same), &piece) else {
            if piece.is_object() && self.details.len() < MOST_DETAILS {
                self.details.push(piece);
            }
            return;
        };
        let Value::Object(part) = part else { return };
        for (key, value) in more {
            match (part.get_mut(key), value) {
                (Some(Value::String(text)), Value::String(more)) if PIECES.contains(&key.as_str()) => {
                    text.push_str(more)
                }
                (_, Value::Null) => {}
                (_, value) => {
                    part.insert(key.clone(), value.clone());
                }
            }
        }
    }
}

/// More parts than any answer has.
const MOST_DETAILS: usize = 1_024;
/// What comes in pieces.
const PIECES: [&str; 3] = ["text", "summary", "data"];

impl Reader for Chunks {
    fn take(&mut self, data: &str, draft: &mut Draft, out: &mut Vec<ModelEvent>) -> Result<(), Broken> {
        if data == "[DONE]" {
            draft.ended = true;
            return Ok(());
        }
        self.chunk(draft::event(data)?, draft, out)
    }

    fn whole(&mut self, data: &str, draft: &mut Draft, out: &mut Vec<ModelEvent>) -> Result<(), Broken> {
        let mut chunk: Chunk<'_> = draft::event(data)?;
        let messages = chunk.choices.iter_mut().flatten().filter_map(|choice| choice.delta.as_mut());
        for message in messages {
            // Each is a call of its own, and none of them has a number.
            let calls = message.tool_calls.iter_mut().flatten();
            calls.zip(0..).for_each(|(call, n)| call.index = Some(n));
        }
        self.chunk(chunk, draft, out)?;
        draft.ended |= draft.finish.is_some();
        Ok(())
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
        if let Some(usage) = chunk.usage.or_else(|| chunk.x_groq.and_then(|g| g.usage)) {
            draft.usage = Some(usage.into());
        }
        for choice in chunk.choices.into_iter().flatten().filter(|c| c.index == 0) {
            let mut part = choice.delta.unwrap_or_default();
            let pieces = part.reasoning_details.take().filter(|_| self.keeps);
            for piece in pieces.into_iter().flatten() {
                draft.weigh(items::bytes(&piece));
                self.detail(piece);
            }
            delta(part, draft, out)?;
            if let Some(reason) = choice.finish_reason {
                let (finish, wrong) = ended(&reason, draft.is_begun())?;
                (draft.finish, draft.wrong) = (Some(finish), wrong);
                if finish == Finish::Filter {
                    draft.tell(&reason, filtered(choice.content_filter_results.as_ref()), "");
                }
                for part in self.details.drain(..) {
                    draft.keep(part, 0);
                }
            }
        }
        Ok(())
    }
}

/// The categories of a filter that apply, as Azure tells them.
fn filtered(results: Option<&Value>) -> impl Iterator<Item = &str> {
    let all = results.and_then(Value::as_object).into_iter().flatten();
    all.filter(|(_, result)| result.get("filtered").and_then(Value::as_bool) == Some(true))
        .map(|(category, _)| category.as_str())
}

fn delta(delta: Delta<'_>, draft: &mut Draft, out: &mut Vec<ModelEvent>) -> Result<(), ModelFault> {
    let content = delta.content.unwrap_or_default();
    // Gateways that know both names send the same text under both.
    let reasoning = delta.reasoning_content.or(delta.reasoning).unwrap_or_default();
    draft.think(out, &reasoning);
    draft.think(out, &content.reasoning);
    draft.say(out, &content.text);
    if let Some(refusal) = delta.refusal.filter(|text| !text.is_empty()) {
        draft.decline(&refusal);
    }
    for part in delta.tool_calls.into_iter().flatten() {
        self::part(part, draft)?;
    }
    Ok(())
}

/// Finds the call that a part belongs to. Most servers count; some send whole calls that are all number 0 and
/// differ by id; some do not count at all.
fn part(part: CallPart<'_>, draft: &mut Draft) -> Result<(), ModelFault> {
    let id = part.id.unwrap_or_default();
    let key = part.index.unwrap_or_else(|| draft.calls.last().map_or(0, |c| c.key));
    let same = |c: &Call| c.key == key && (id.is_empty() || c.id.is_empty() || *c.id == *id);
    let call = match draft.calls.iter().rposition(same) {
        Some(at) => &mut draft.calls[at],
        None => draft.open(Call { key, ..Call::default() })?,
    };
    if call.id.is_empty() {
        call.id.push_str(&id);
    }
    let function = part.function.unwrap_or_default();
    if call.name.is_empty() {
        call.name.push_str(&function.name.unwrap_or_default());
    }
    call.arguments.push_str(&function.arguments.unwrap_or_default());
    Ok(())
}

/// What a reason to stop means, and what was wrong with the answer beside it. The form has five reasons, and servers
/// have more of their own for a good end than anybody could list: one that is not known passes as that where
/// something `came`, and nowhere else.
fn ended(reason: &str, came: bool) -> Result<(Finish, Option<ModelFault>), ModelFault> {
    match reason.to_lowercase().as_str() {
        "length" | "max_tokens" | "max_length" | "model_length" | "model_context_window_exceeded" => {
            Ok((Finish::Length, None))
        }
        "content_filter" | "sensitive" | "refusal" | "safety" | "recitation" | "language" | "blocklist"
        | "prohibited_content" | "spii" => Ok((Finish::Filter, None)),
        "error" | "abort" | "network_error" | "insufficient_system_resource" => Err(draft::broke_off(reason)),
        "repetition" | "malformed_function_call" | "malformed_response" | "pause_turn" => {
            Ok((Finish::End, Some(draft::broke_off(reason))))
        }
        "stop" | "tool_calls" | "function_call" | "" => Ok((Finish::End, None)),
        _ => Ok((Finish::End, (!came).then(|| draft::unknown_end(reason)))),
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<WireUsage>,
    error: Option<WireError>,
    x_groq: Option<Groq>,
}

#[derive(Deserialize)]
struct Groq {
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: u64,
    /// What a whole answer has in its place is a message.
    #[serde(borrow, alias = "message")]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
    content_filter_results: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Delta<'a> {
    content: Option<Content<'a>>,
    reasoning_content: Option<Text<'a>>,
    reasoning: Option<Text<'a>>,
    reasoning_details: Option<Vec<Value>>,
    refusal: Option<Text<'a>>,
    tool_calls: Option<Vec<CallPart<'a>>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct CallPart<'a> {
    index: Option<u64>,
    id: Option<Text<'a>>,
    function: Option<FunctionPart<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct FunctionPart<'a> {
    name: Option<Text<'a>>,
    arguments: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct WireUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<InputDetails>,
    completion_tokens_details: Option<OutputDetails>,
    /// DeepSeek's name for cached tokens.
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct InputDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let (cached, written) =
            wire.prompt_tokens_details.map_or((None, None), |d| (d.cached_tokens, d.cache_write_tokens));
        let cached = cached.or(wire.prompt_cache_hit_tokens);
        Self {
            input_tokens: wire.prompt_tokens.unwrap_or(0),
            cached_tokens: cached.unwrap_or(0),
            cache_write_tokens: written.unwrap_or(0),
            output_tokens: wire.completion_tokens.unwrap_or(0),
            reasoning_tokens: wire.completion_tokens_details.and_then(|d| d.reasoning_tokens).unwrap_or(0),
        }
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
