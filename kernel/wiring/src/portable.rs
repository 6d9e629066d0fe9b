//! What providers refuse of a tool's schema. For one such tool they refuse the whole request, whatever else it holds, so
//! each turn of everybody who is offered the tool would fail. A tool is the same for all models, so what one of the
//! usual providers refuses is refused here, in the words of the schema's author.
//!
//! None of this stands in the providers' documents; it was looked up in reports of it on 2026-11-23. How deep Gemini takes
//! a schema is not told: reports differ between versions of its API, so nothing is made of it here.

use serde_json::{Map, Value};

/// OpenAI: "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at the top level"
/// (goruck/home-generative-agent#545, langchain-ai/langchainjs#9804). Anthropic names the first three
/// (anthropics/claude-code#5319).
const NOT_AT_THE_TOP: [&str; 6] = ["oneOf", "anyOf", "allOf", "enum", "const", "not"];

/// Anthropic: "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'" (anthropics/claude-code#79418,
/// twilio-labs/mcp#58). It looks at the properties of the top alone: one was measured that was taken further in, and in
/// `$defs` (aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws#709, decocms/studio#6874).
const NAME: usize = 64;

/// Characters of what is quoted of a schema.
const QUOTED: usize = 60;

/// What a provider refuses of the schema of an input, as the end of a sentence.
pub(crate) fn refused(schema: &Map<String, Value>) -> Option<String> {
    if let Some(kind) = schema.get("type").filter(|kind| *kind != "object") {
        return Some(format!("has the type {}; a tool's input is an `object`", quoted(kind)));
    }
    if let Some(key) = NOT_AT_THE_TOP.into_iter().find(|key| schema.contains_key(*key)) {
        return Some(format!(
            "has `{key}` at its top, which providers refuse; put the choice into a property"
        ));
    }
    let names = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
    if let Some(name) = names.into_iter().find(|name| !is_name(name)) {
        let name = quoted(&Value::from(name.as_str()));
        return Some(format!(
            "has the property {name}, and providers refuse such a name; it may have up to {NAME} of the ASCII letters and \
             digits, `_`, `-` and `.`"
        ));
    }
    parts(schema).find_map(of_array)
}

fn is_name(name: &str) -> bool {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=NAME).contains(&name.len()) && name.bytes().all(usual)
}

/// OpenAI, at any depth: "array schema missing items" (streamnative/streamnative-mcp-server#26), also for one of several
/// types (campfirein/byterover-cli#42) and beside `prefixItems` (LionSR/TeXRA#2323); and a list of `items` "is not of type
/// 'object', 'boolean'" (vercel/ai#2271), which Gemini refuses as well (oomkapwn/enquire-mcp#360).
fn of_array(part: &Value) -> Option<String> {
    let schema = part.as_object()?;
    let array = |kind: &Value| kind == "array";
    let is_array = schema
        .get("type")
        .is_some_and(|kind| array(kind) || kind.as_array().is_some_and(|k| k.iter().any(array)));
    match schema.get("items") {
        None if is_array => Some(format!(
            "has an array without `items`, which providers refuse: {}; `items: {{}}` stands for anything",
            quoted(part)
        )),
        Some(Value::Array(_)) => Some(format!(
            "has a list of `items`, which providers refuse: {}; write one schema that all items fit",
            quoted(part)
        )),
        _ => parts(schema).find_map(of_array),
    }
}

/// The schemas that a schema is made of, used or not. What else it holds, such as a default, is no schema.
fn parts(schema: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    schema.iter().flat_map(|(key, value)| {
        let (named, listed, single) = match key.as_str() {
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                (value.as_object(), None, None)
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => (None, value.as_array(), None),
            "items"
            | "additionalItems"
            | "unevaluatedItems"
            | "contains"
            | "additionalProperties"
            | "unevaluatedProperties"
            | "propertyNames"
            | "not"
            | "if"
            | "then"
            | "else" => (None, None, Some(value)),
            _ => (None, None, None),
        };
        named.into_iter().flat_map(Map::values).chain(listed.into_iter().flatten()).chain(single)
    })
}

/// The beginning of it, as JSON, so that no character of it acts.
fn quoted(value: &Value) -> String {
    let text = value.to_string();
    let mut chars = text.chars();
    let mut shown: String =
        chars.by_ref().take(QUOTED).map(|c| if drupe_config::acts(c) { '?' } else { c }).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: &Value) -> Option<String> {
        refused(schema.as_object().expect("an object"))
    }

    #[track_caller]
    fn told(schema: &Value, says: &str) {
        let why = check(schema).unwrap_or_else(|| panic!("{schema} was let through"));
        assert!(why.contains(says), "{why}");
    }

    #[test]
    fn schemas_that_all_providers_take_are_let_through() {
        for schema in [
            json!({}),
            json!({"type": "object", "properties": {"a.b-c_D9": {}, "x".repeat(64): {"enum": ["array"]}}}),
            json!({"properties": {"tags": {"type": "array", "items": {"type": "string"}}}}),
            json!({"properties": {"any": {"type": ["array", "null"], "items": true}}}),
            json!({"properties": {"one": {"oneOf": [{"const": 1}, {"not": {}}]}}}),
            json!({"properties": {"a": {"default": {"type": "array"}, "examples": [{"items": []}]}}}),
            json!({"properties": {"type": {"type": "string"}, "items": {"type": "string"}}}),
        ] {
            assert_eq!(check(&schema), None, "{schema}");
        }
    }

    #[test]
    fn a_choice_at_the_top_is_refused() {
        for key in ["oneOf", "anyOf", "allOf", "enum", "const", "not"] {
            told(&json!({"type": "object", key: [{}]}), &format!("`{key}` at its top"));
        }
        told(&json!({"type": ["object", "null"]}), "is an `object`");
    }

    #[test]
    fn names_of_properties_that_a_provider_refuses_are_refused_at_the_top_alone() {
        for name in ["filter[id]", "$top", "@odata.type", "Account Number", "größe", "", "a\nb", "a:b", "a/b"]
        {
            told(&json!({"properties": {"fine": {}, name: {}}}), "has the property");
            for within in [
                json!({"properties": {"a": {"properties": {name: {}}}}}),
                json!({"properties": {"a": {"type": "array", "items": {"properties": {name: {}}}}}}),
                json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"properties": {name: {}}}}}),
            ] {
                assert_eq!(check(&within), None, "{within}");
            }
        }
        told(&json!({"properties": {"x".repeat(65): {}}}), "up to 64");
    }

    #[test]
    fn what_is_said_of_a_name_is_short_and_on_one_line() {
        let why =
            check(&json!({"properties": {"\u{1b}[2J\n\u{85}\u{202e}".repeat(5_000): {}}})).expect("refused");
        assert!(why.len() < 400 && !why.contains(drupe_config::acts), "{why}");
    }

    #[test]
    fn arrays_without_one_schema_of_their_items_are_refused_at_any_depth() {
        for array in [
            json!({"type": "array"}),
            json!({"type": ["string", "array"]}),
            json!({"type": "array", "prefixItems": [{"type": "number"}]}),
            json!({"type": "array", "items": [{"type": "number"}]}),
        ] {
            for schema in [
                json!({"properties": {"a": array}}),
                json!({"properties": {"a": {"properties": {"b": {"anyOf": [{"type": "null"}, array]}}}}}),
                json!({"properties": {"a": {"type": "array", "items": array}}}),
                json!({"additionalProperties": array}),
                json!({"$defs": {"a": array}}),
            ] {
                told(&schema, "items");
            }
        }
    }
}
