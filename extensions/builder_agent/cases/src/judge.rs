//! What an agent is asked that judges an answer, and what it says.

use serde::Deserialize;
use serde_json::{Value, json};

/// What a judging agent says of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Judgment {
    pub pass: bool,
    pub reason: String,
}

impl Judgment {
    /// The message to the agent that judges.
    pub fn asked_for(question: &str, message: &str, answer: &str) -> String {
        format!(
            "Judge an answer. Say whether it passes, and why in one sentence.\n\nThe question to judge it by: {question}\n\n\
             The message: {message}\n\nThe answer: {answer}"
        )
    }

    /// What it is that an answer does not pass for; nothing where it does.
    pub fn fault(self) -> Option<String> {
        (!self.pass).then(|| format!("the judge finds it wrong: {}", self.reason))
    }
}

/// The form of a [`Judgment`] as JSON.
pub fn verdict_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"pass": {"type": "boolean"}, "reason": {"type": "string"}},
        "required": ["pass", "reason"],
        "additionalProperties": false,
    })
}
