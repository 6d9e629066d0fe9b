//! The extension's configuration.

use std::collections::BTreeMap;

use drupe_extension_api::prelude::*;

/// As its manifest has it, whose schema says what each key means.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSettings {
    pub endpoints: BTreeMap<String, EndpointSettings>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointSettings {
    pub url: String,
    pub secret: String,
    #[serde(default)]
    pub previous_secret: Option<String>,
}
