//! The extension's configuration.

use drupe_extension_api::prelude::*;
use serde_json::Value;

/// As its manifest has it, whose schema says what each key means.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelegramSettings {
    pub api: String,
    pub poll_seconds: u64,
    /// Who is answered is the daemon's to decide, which reads it.
    #[serde(default, rename = "allowed")]
    pub _allowed: Option<Vec<Value>>,
    #[serde(default)]
    pub agent: Option<AgentId>,
}
