//! OpenAI's Chat Completions: `POST /v1/chat/completions`.
//!
//! Facts: `openai` 3.54.0 for Python (`types/chat/completion_create_params.py`, `chat_completion_chunk.py`,
//! `_streaming.py`) and 6.49.0 for JavaScript (`lib/ChatCompletionStream.js`), read on 2026-11-24. A stream has frames
//! without names, ends with `[DONE]`, and is broken off by a frame with `error`, which both SDKs raise.
//!
//! There is one text in an answer: what the agent says before its own tool calls stands before it, an empty line between.
//! A text that was sent cannot be taken back, so an answer that is begun anew with other words ends the stream with an error:
//! both of them in one text would be a wrong answer that looks like a right one.

mod answer;
pub(crate) mod request;

use crate::{Ask, Encoder, Rejection, ServedTurn, fields};

#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    pub ask: Ask,
    /// Whether a stream ends with what was used.
    pub include_usage: bool,
}

impl ChatRequest {
    pub fn parse(body: &[u8]) -> Result<Self, Rejection> {
        request::read(&fields::Node::root(&fields::body(body)?))
    }

    pub fn encoder(&self, turn: &ServedTurn) -> Encoder {
        let chunks = answer::Chunks::new(&self.ask.model, turn, self.include_usage);
        Encoder::new(chunks, turn, &self.ask)
    }
}
