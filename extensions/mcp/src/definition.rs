//! What a server says of a tool, made fit to be offered. Pure.
//!
//! Providers refuse a whole request for one schema that they do not take, so what many servers write and providers refuse is
//! mended where a schema stays true by that: it only gets wider, and the server looks at what it is given anyway. The rest is
//! refused here, by name, so that one bad tool does not keep the others from being offered.

pub use drupe_mcp_import::shown;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::names;

/// Bytes of a description. Models read all of them in each request.
const DESCRIPTION: usize = 8 * 1024;

/// Bytes of a schema as JSON, and how deep it may be. The kernel's own bounds.
const SCHEMA: usize = 64 * 1024;
const DEPTH: usize = 32;

/// Properties at the top of a schema have such names, or providers refuse the request.
const PROPERTY: usize = 64;

/// Tools of one server, and bytes of all of them.
pub const TOOLS: usize = 256;
pub const ALL: usize = 512 * 1024;

/// A tool, as its server describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolText {
    pub description: String,
    pub schema: Value,
}

/// Why a tool cannot be offered, as the end of a sentence about it.
#[derive(Debug, Clone, PartialEq)]
pub struct NotOffered(pub String);

impl ToolText {
    /// Reads what a server says; why it cannot be offered is the end of a sentence.
    pub fn new(description: &str, schema: Map<String, Value>) -> Result<Self, NotOffered> {
        if description.len() > DESCRIPTION {
            let length = description.len();
            return Err(NotOffered(format!(
                "has a description of {length} bytes; it may have {DESCRIPTION}"
            )));
        }
        let mut schema = Value::Object(schema);
        if depth(&schema) > DEPTH {
            return Err(NotOffered(format!("has a schema that is more than {DEPTH} levels deep")));
        }
        let length = schema.to_string().len();
        if length > SCHEMA {
            return Err(NotOffered(format!("has a schema of {length} bytes; it may have {SCHEMA}")));
        }
        mend(&mut schema, true);
        match refused(&schema) {
            Some(why) => Err(NotOffered(why)),
            None => Ok(Self { description: shown(description), schema }),
        }
    }

    /// Stands for all of it.
    pub fn digest(&self) -> String {
        names::hash(json!([self.description, self.schema]).to_string().as_bytes())
    }

    /// Bytes that it adds to a request.
    pub fn size(&self) -> usize {
        self.description.len() + self.schema.to_string().len()
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Makes a schema wider where providers refuse it.
fn mend(schema: &mut Value, top: bool) {
    let Some(map) = schema.as_object_mut() else { return };
    map.remove("$schema");
    if top {
        for key in ["oneOf", "anyOf", "allOf", "enum", "const", "not", "$id"] {
            map.remove(key);
        }
        map.insert("type".into(), "object".into());
    }
    let array = |kind: &Value| {
        kind == "array" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|k| k == "array"))
    };
    let listed = map.get("items").is_some_and(Value::is_array);
    if listed || map.get("type").is_some_and(array) && !map.contains_key("items") {
        map.insert("items".into(), json!({}));
    }
    for (key, part) in map.iter_mut() {
        match key.as_str() {
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                part.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(|part| mend(part, false));
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                part.as_array_mut().into_iter().flatten().for_each(|part| mend(part, false));
            }
            "items"
            | "contains"
            | "additionalProperties"
            | "propertyNames"
            | "not"
            | "if"
            | "then"
            | "else" => {
                mend(part, false);
            }
            _ => {}
        }
        // Descriptions within the schema are read by models as well.
        if let (true, Value::String(text)) = (matches!(key.as_str(), "description" | "title"), part) {
            *text = shown(text);
        }
    }
}

/// What cannot be mended, as the end of a sentence.
fn refused(schema: &Value) -> Option<String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let usual = |name: &str| {
        let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        (1..=PROPERTY).contains(&name.len()) && name.bytes().all(byte)
    };
    if let Some(name) = properties.into_iter().flat_map(Map::keys).find(|name| !usual(name)) {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
        return Some(format!("has the parameter `{shown}`, and providers refuse such a name"));
    }
    outer_reference(schema)
}

/// Nothing is ever fetched for a schema.
fn outer_reference(value: &Value) -> Option<String> {
    match value {
        Value::Object(map) => {
            if let Some(to) = map.get("$ref").and_then(Value::as_str).filter(|to| !to.starts_with('#')) {
                let shown: String = to.chars().filter(|c| !c.is_control()).take(60).collect();
                return Some(format!("has a schema that refers to `{shown}`, which is not within it"));
            }
            map.values().find_map(outer_reference)
        }
        Value::Array(list) => list.iter().find_map(outer_reference),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(schema: Value) -> Result<Value, NotOffered> {
        let Value::Object(map) = schema else { panic!("an object") };
        ToolText::new("Does it.", map).map(|definition| definition.schema)
    }

    #[test]
    fn what_providers_refuse_and_many_write_is_mended() {
        let mended = read(json!({"$schema": "x", "oneOf": [{}], "properties": {
            "list": {"type": "array"}, "pair": {"type": ["array", "null"], "items": [{}, {}]},
            "choice": {"anyOf": [{"type": "array"}]}}}));
        let expected = json!({"type": "object", "properties": {
            "list": {"type": "array", "items": {}}, "pair": {"type": ["array", "null"], "items": {}},
            "choice": {"anyOf": [{"type": "array", "items": {}}]}}});
        assert_eq!(mended, Ok(expected));
        // A parameter may be named as a keyword is.
        let named = json!({"type": "object", "properties": {"items": {"type": "string"}, "oneOf": {"type": "string"}}});
        assert_eq!(read(named.clone()), Ok(named));
    }

    #[test]
    fn what_cannot_be_offered_is_refused_by_what_is_wrong_with_it() {
        let deep = (0..40).fold(json!({}), |inner, _| json!({"properties": {"x": inner}}));
        for (schema, says) in [
            (json!({"properties": {"a b": {}}}), "the parameter `a b`"),
            (
                json!({"properties": {"a": {"$ref": "https://x.example/s"}}}),
                "refers to `https://x.example/s`",
            ),
            (deep, "levels deep"),
            (json!({"description": "x".repeat(70_000)}), "bytes"),
        ] {
            let NotOffered(why) = read(schema).expect_err(says);
            assert!(why.contains(says), "{why}");
        }
        assert!(ToolText::new(&"x".repeat(9000), Map::new()).is_err());
    }

    #[test]
    fn what_people_would_not_see_is_not_read_by_models() {
        let hidden = "a\u{200b}b\u{202e}c\u{1b}[2Jd\u{e0041}\ne";
        let Ok(definition) = ToolText::new(hidden, Map::new()) else { panic!("it is fine") };
        assert_eq!(definition.description, "abc[2Jd\ne");
        let Ok(schema) = read(json!({"properties": {"x": {"description": hidden}}})) else {
            panic!("it is fine")
        };
        assert_eq!(schema["properties"]["x"]["description"], "abc[2Jd\ne");
    }
}
