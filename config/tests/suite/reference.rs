//! The reference says of each key the default and the bounds that its declaration has.
//!
//! A default is declared once; what is written about it elsewhere is compared here.

use std::{collections::BTreeSet, fs, path::Path};

use drupe_config::{config_schema, manifest_schema};
use serde_json::Value;

#[test]
fn the_reference_of_the_configuration_has_the_declared_defaults_and_bounds() {
    check("configuration.md", &config_schema(), "");
}

#[test]
fn the_reference_of_manifests_has_the_declared_defaults_and_bounds() {
    check("manifest.md", &manifest_schema(), "agent.");
}

/// Compares every table of a page whose heading is a map of keys; `inner` is the map of headings of the third level.
fn check(page: &str, schema: &Value, inner: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference").join(page);
    let text = fs::read_to_string(path).unwrap();
    let mut section = None;
    let mut written = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with('#') {
            section = section_of(line, inner);
        }
        let (Some(section), Some(row)) = (&section, line.strip_prefix("| `")) else { continue };
        let (key, cells) = row.split_once("` | ").unwrap_or_default();
        let cells: Vec<&str> = cells.split(" | ").collect();
        let path = if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
        let Some(declared) = find(schema, &path) else { continue };
        if let Some((min, max)) = cells[0].split_once(" to ").and_then(bounds) {
            let declared = (number(&declared["minimum"]), number(&declared["maximum"]));
            assert_eq!(declared, (min, max), "{page}: the bounds of `{path}`");
        }
        // A table without defaults has two cells behind the key.
        let has_one = cells.len() > 2 && declared.get("properties").is_none();
        let default = cells.get(1).filter(|_| has_one).and_then(|cell| code(cell));
        if let Some(default) = default.and_then(|text| serde_yaml::from_str::<Value>(text).ok()) {
            // Words may describe a default that depends on something else.
            if declared["default"].is_null() && default.is_string() {
                continue;
            }
            assert!(
                same(&declared["default"], &default),
                "{page}: the default of `{path}` is {}",
                declared["default"]
            );
            written.insert(path);
        }
    }
    let mut missing = Vec::new();
    each_default(schema, "", &mut |path| {
        if !written.contains(path) {
            missing.push(path.to_owned());
        }
    });
    // Each of them stands in the sentence about its map.
    missing
        .retain(|path| !path.contains("long_prompts") && !path.ends_with("put.format") && !inherited(path));
    assert!(missing.is_empty(), "{page} says no default of {missing:?}");
    assert!(written.len() > 10, "{page} was not understood: {written:?}");
}

/// The limits of the orchestrator and of the defaults are those of the manifest's page.
fn inherited(path: &str) -> bool {
    path.starts_with("orchestrator.limits.") || path.starts_with("agents.defaults.limits.")
}

/// The map of keys that a heading names.
fn section_of(heading: &str, inner: &str) -> Option<String> {
    if heading == "## Top level" {
        return Some(String::new());
    }
    let outer = if heading.starts_with("### ") { inner } else { "" };
    let name = code(heading.trim_start_matches('#'))?;
    Some(format!("{outer}{name}"))
}

/// The text of a cell that is one piece of code.
fn code(cell: &str) -> Option<&str> {
    cell.trim().strip_prefix('`')?.strip_suffix('`').filter(|text| !text.contains('`'))
}

fn bounds((min, max): (&str, &str)) -> Option<(f64, f64)> {
    let number = |text: &str| text.replace(',', "").parse().ok();
    Some((number(min)?, number(max)?))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn same(declared: &Value, written: &Value) -> bool {
    declared == written || declared.as_f64().is_some_and(|number| Some(number) == written.as_f64())
}

fn find<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(schema, |schema, part| match part.starts_with('<') {
        true => schema.get("additionalProperties"),
        false => schema.get("properties")?.get(part),
    })
}

fn each_default(schema: &Value, path: &str, visit: &mut dyn FnMut(&str)) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        if schema.get("default").is_some() {
            visit(&join(key));
        }
        each_default(schema, &join(key), visit);
    }
}
