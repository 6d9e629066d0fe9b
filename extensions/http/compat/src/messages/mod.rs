//! Anthropic's Messages: `POST /v1/messages` and `POST /v1/messages/count_tokens`.
//!
//! Facts: `anthropic` 2.12.0 for Python (`types/`, `_streaming.py`, `lib/streaming/_messages.py`, `_constants.py`) and
//! `@anthropic-ai/sdk` 1.12.0 for JavaScript, read on 2026-11-24. Every frame has a name, and the SDKs drop one without;
//! `ping` is ignored and `error` raised; there is no `[DONE]`. Figures in `message_delta` are sums and replace those of
//! `message_start`. The version of the API that the SDKs send is 2026-10-21 since their releases of that day: sampling
//! parameters, documents in answers and citations in a user's texts are refused there (codersera.com and apidog.com on the
//! migration, 2026-11-24).
//!
//! Text stands in blocks, which clients join with nothing (Python) or a space (Node) between: what the agent says before its
//! own tool calls is a block of its own, and the next one begins with an empty line. A block that was sent cannot be taken back,
//! so an answer that is begun anew with other words ends the stream with an error.
//!
//! `message_start` must tell the input before a model was asked. It has the same estimate that `count_tokens` gives, and
//! `message_delta` has what the turn used.

mod answer;
mod request;

use serde_json::{Value, json};

use crate::{Ask, Encoder, Rejection, ServedTurn, fields, rejection::clip};

/// A version of the API, as `anthropic-version` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiVersion {
    /// `2023-06-01`, with sampling parameters.
    V2023,
    /// `2026-10-21`, without sampling parameters.
    V2026,
}

impl ApiVersion {
    /// By the header. A client without one is a person with `curl`, and gets the older version, which allows more.
    pub fn of(header: Option<&str>) -> Result<Self, Rejection> {
        match header {
            None | Some("2023-06-01") => Ok(Self::V2023),
            Some("2026-10-21") => Ok(Self::V2026),
            Some(other) => {
                let other = clip(other);
                let message =
                    format!("anthropic-version `{other}` is not known: send 2026-10-21 or 2023-06-01");
                Err(Rejection::invalid(Some("anthropic-version".into()), message))
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct MessagesRequest {
    pub ask: Ask,
}

impl MessagesRequest {
    pub fn parse(body: &[u8], version: ApiVersion) -> Result<Self, Rejection> {
        let body = fields::body(body)?;
        let root = fields::Node::root(&body);
        // An answer without a bound is not to be had from Anthropic, and clients count on being told.
        root.need("max_tokens")?;
        Ok(Self { ask: request::read(&root, version)? })
    }

    /// The request of `count_tokens`, which asks for no answer.
    pub fn parse_count(body: &[u8], version: ApiVersion) -> Result<Self, Rejection> {
        let body = fields::body(body)?;
        Ok(Self { ask: request::read(&fields::Node::root(&body), version)? })
    }

    pub fn encoder(&self, turn: &ServedTurn) -> Encoder {
        let blocks = answer::Blocks::new(&self.ask, turn);
        Encoder::new(blocks, turn, &self.ask)
    }

    /// The answer of `count_tokens`: an estimate.
    pub fn token_count(&self) -> Value {
        json!({"input_tokens": self.ask.estimated_tokens()})
    }
}
