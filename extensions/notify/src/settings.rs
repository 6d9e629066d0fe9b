//! The extension's configuration.

use drupe_extension_api::prelude::*;

/// As its manifest has it, whose schema says what each key means.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotifySettings {
    pub server: String,
    pub token: bool,
    pub priority: u8,
    pub notice_priority: u8,
    pub tags: Vec<String>,
    pub markdown: bool,
    #[serde(default)]
    pub click: Option<String>,
}
