//! How attempts of models went, as their records tell it.

use drupe_extension_api::{ItemOutcome, Preview};
use serde::{Deserialize, Serialize};

/// How an attempt of a model went, beyond what it used: what its events tell. Older records have none, and their events are
/// kept beside them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempted {
    /// From 1, within its step.
    pub attempt: u32,
    /// Request to end of stream, in milliseconds.
    pub latency_ms: u64,
    /// Request to the first piece of an answer, in milliseconds; none where none came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ms: Option<u64>,
    /// What people were shown, if that ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<ShownAnswer>,
}

/// What people were shown of an answer, over all of its attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShownAnswer {
    /// The attempt with which its item began.
    pub since: u32,
    /// How long that lasted, in milliseconds.
    pub elapsed_ms: u64,
    /// How long the model reasoned, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoned_ms: Option<u64>,
    /// How it ended without an answer, and what had come of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<BrokenAnswer>,
}

/// An answer that broke off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrokenAnswer {
    /// How its item ended, which is not `ok`.
    pub outcome: ItemOutcome,
    /// The beginning of its text.
    pub text: Preview,
    /// The beginning of its reasoning.
    pub reasoning: Preview,
}
