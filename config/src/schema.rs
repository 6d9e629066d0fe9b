//! The JSON Schemas of the two files, for editors and for `drupe config schema`.

use drupe_extension_api::DefinitionLimits;
use serde_json::{Value, json};

use crate::{json_schema, manifest, settings};

/// The schema of `manifest.yaml`.
pub fn manifest_schema() -> Value {
    // Without `agents.defaults` of drupe.yaml.
    let limits = json!({"agent": {"limits": DefinitionLimits::default()}});
    json_schema::of_file(&manifest::MANIFEST, "drupe extension manifest", &limits)
}

/// The schema of `drupe.yaml`.
pub fn config_schema() -> Value {
    json_schema::of_file(&settings::CONFIG, "drupe configuration", &Value::Null)
}
