//! The JSON Schemas that ship are those that the declared keys give.

use std::path::Path;

use drupe_config::{config_schema, manifest_schema};

use crate::golden::same;

#[test]
fn the_shipped_schemas_are_those_of_the_declared_keys() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    for (name, schema) in
        [("manifest.schema.json", manifest_schema()), ("drupe.schema.json", config_schema())]
    {
        assert!(jsonschema::meta::is_valid(&schema), "{name} is no JSON Schema");
        let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
        assert!(
            same(&folder.join(name), &text),
            "{name} is out of date; regenerate it: DRUPE_BLESS=1 cargo test -p drupe-config"
        );
    }
}
