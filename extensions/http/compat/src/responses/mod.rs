//! OpenAI's Responses: `POST /v1/responses`, and the objects that `GET /v1/responses/{id}` gives.
//!
//! Facts: `openai` 3.54.0 for Python (`types/responses/`, `lib/streaming/responses/_responses.py`) and 6.49.0 for
//! JavaScript (`lib/responses/ResponseAccumulator.js`), read on 2026-11-24. Both keep a list of output items by
//! `output_index` and break off at a delta whose item or part was not added before, at an index that is used twice, and at an
//! item whose id changes; JavaScript breaks off at the type of an event that it does not know.
//!
//! Each message is an item of its own. What the agent says before its own tool calls has the phase `commentary`, and the answer
//! has `final_answer`, so a client can tell them apart. A message that is begun anew ends as `incomplete` and empty, and
//! the answer follows as the next item: the final object has no word of it, and its indices are those of the stream.
//!
//! Answers are kept unless the client says no, and a client may then refer to their items instead of sending them: the ids of
//! items name their turn.
//!
//! Tools of types other than `function` are OpenAI's own, and the agent has its own instead: they are skipped, because clients
//! send them with every request. They are left out of what the answer repeats, which is how a client can see it.

mod answer;
mod request;

use drupe_extension_api::TurnId;
use serde_json::{Map, Value};

use crate::{Ask, Encoder, Rejection, ServedTurn, fields};

#[derive(Debug, Clone, PartialEq)]
pub struct ResponsesRequest {
    pub ask: Ask,
    /// What the answer repeats of the request.
    echo: Map<String, Value>,
}

impl ResponsesRequest {
    pub fn parse(body: &[u8]) -> Result<Self, Rejection> {
        request::read(&fields::Node::root(&fields::body(body)?))
    }

    pub fn encoder(&self, turn: &ServedTurn) -> Encoder {
        let items = answer::Items::new(self.echo.clone(), turn);
        Encoder::new(items, turn, &self.ask)
    }
}

/// The id of the answer of a turn.
pub fn response_id(turn: &TurnId) -> String {
    format!("resp_{turn}")
}

/// The turn whose answer has this id.
pub fn turn_of(response: &str) -> Option<TurnId> {
    response.strip_prefix("resp_").and_then(|turn| TurnId::new(turn).ok())
}

/// The id of a part of the answer of a turn.
pub(crate) fn item_id(prefix: &str, turn: &str, at: usize) -> String {
    format!("{prefix}_{turn}_{at}")
}

/// The turn whose answer has an item of this id.
pub(crate) fn turn_of_item(item: &str) -> Option<TurnId> {
    let (turn, at) = item.strip_prefix("msg_").or_else(|| item.strip_prefix("fc_"))?.rsplit_once('_')?;
    at.parse::<usize>().ok()?;
    TurnId::new(turn).ok()
}
