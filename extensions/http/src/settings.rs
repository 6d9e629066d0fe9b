//! The extension's configuration.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{hooks::HookSettings, visitors::EmbedSettings};

/// As its manifest has it, whose schema says what each key means.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    pub address: String,
    pub hosts: Vec<String>,
    pub origins: Vec<String>,
    pub behind_proxy: bool,
    pub max_body_kb: usize,
    pub max_connections: usize,
    pub embeds: BTreeMap<String, EmbedSettings>,
    pub hooks: BTreeMap<String, HookSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            address: String::new(),
            hosts: Vec::new(),
            origins: Vec::new(),
            behind_proxy: false,
            max_body_kb: 4096,
            max_connections: 12_000,
            embeds: BTreeMap::new(),
            hooks: BTreeMap::new(),
        }
    }
}
