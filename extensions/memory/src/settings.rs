//! What the operator may set. The manifest has the same defaults, with a schema that bounds them.

use drupe_extension_api::prelude::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemorySettings {
    pub namespace: Sharing,
    /// The longest fact, in bytes.
    pub max_fact_bytes: usize,
    /// The most facts of a namespace.
    pub max_facts: usize,
    /// The most tokens of facts in a turn.
    pub context_tokens: usize,
    /// What a model for vectors is asked for.
    pub vectors: Vectors,
}

/// What is found by meaning, where a model makes vectors of texts.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Vectors {
    None,
    Search,
    /// Also what a turn is given.
    Turns,
}

/// Whose facts an agent sees.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    Agent,
    Shared,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            namespace: Sharing::Agent,
            // A paragraph: what is longer is a document, and would take a turn's room alone.
            max_fact_bytes: 1024,
            // Some years of a person who tells something worth keeping several times a day.
            max_facts: 10_000,
            // Ten facts of usual length.
            context_tokens: 300,
            vectors: Vectors::Turns,
        }
    }
}
