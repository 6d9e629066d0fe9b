//! The extension's configuration.

use std::time::Duration;

use drupe_extension_api::Fault;
use serde::Deserialize;

/// As its manifest has it, whose schema says what each key means.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebSettings {
    pub page_bytes: usize,
    pub max_body_kb: usize,
    pub timeout_ms: u64,
    pub gap_ms: u64,
    pub cache_minutes: u64,
    pub cache_kb: usize,
    pub allow: Vec<String>,
    pub search: Option<SearchSettings>,
}

/// Where searches go, and with which key.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchSettings {
    pub provider: SearchProvider,
    #[serde(default)]
    pub address: Option<String>,
    #[serde(default)]
    pub key: Option<String>,
}

/// The providers whose API is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchProvider {
    Searxng,
    Brave,
    Tavily,
}

/// The key stays out of whatever shows the settings.
impl std::fmt::Debug for SearchSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SearchSettings")
            .field("provider", &self.provider)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Default for WebSettings {
    fn default() -> Self {
        Self {
            // With what stands above it, below the 12 KiB from which on a result is shown to a model in parts alone.
            page_bytes: 10 << 10,
            // Most pages have below 1 MiB, papers as PDF below 8.
            max_body_kb: 8 << 10,
            timeout_ms: 20_000,
            gap_ms: 500,
            cache_minutes: 5,
            cache_kb: 4 << 10,
            allow: Vec::new(),
            search: None,
        }
    }
}

impl WebSettings {
    pub fn body_bytes(&self) -> usize {
        self.max_body_kb << 10
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    pub fn gap(&self) -> Duration {
        Duration::from_millis(self.gap_ms)
    }

    pub fn kept(&self) -> Duration {
        Duration::from_secs(60 * self.cache_minutes)
    }

    /// Refuses what the schema of the manifest refuses, too, where the type does not say it.
    pub fn check(&self) -> Result<(), Fault> {
        if self.page_bytes < 1024 {
            return Err(Fault::invalid("`page_bytes` is less than 1024"));
        }
        Ok(())
    }
}
