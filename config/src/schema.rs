//! The JSON Schemas of the two files, for editors and for `drupe config schema`.

use serde_json::Value;

use crate::{json_schema, manifest, settings};

/// The schema of `manifest.yaml`.
pub fn manifest_schema() -> Value {
    json_schema::of_file(&manifest::MANIFEST, "drupe extension manifest")
}

/// The schema of `drupe.yaml`.
pub fn config_schema() -> Value {
    json_schema::of_file(&settings::CONFIG, "drupe configuration")
}
