//! Parameters against the schema of a tool, as far as the schemas of this SDK go: `type`, `required`, `properties`,
//! `additionalProperties`, `items`, `enum` and `const`. The kernel checks by all of JSON Schema before a call reaches a
//! tool; what this passes may still be refused there, what this refuses always is.

use serde_json::Value;

/// What does not fit, with its place; none where nothing was found.
pub(super) fn misfit(schema: &Value, value: &Value, place: &str) -> Option<String> {
    let schema = schema.as_object()?;
    let at = if place.is_empty() { "the parameters" } else { place };
    if let Some(kind) = schema.get("type").filter(|kind| !is_of(kind, value)) {
        return Some(format!("{at}: {value} is not of type {kind}"));
    }
    if let Some(choice) = schema.get("enum").and_then(Value::as_array).filter(|all| !all.contains(value)) {
        return Some(format!("{at}: {value} is none of {}", Value::from(choice.clone())));
    }
    if let Some(only) = schema.get("const").filter(|only| *only != value) {
        return Some(format!("{at}: {value} is not {only}"));
    }
    match value {
        Value::Object(fields) => {
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            if let Some(missing) = required.filter_map(Value::as_str).find(|key| !fields.contains_key(*key)) {
                return Some(format!("{at}: `{missing}` is missing"));
            }
            let known = schema.get("properties").and_then(Value::as_object);
            fields.iter().find_map(|(key, value)| match known.and_then(|known| known.get(key)) {
                Some(part) => misfit(part, value, &format!("{place}/{key}")),
                None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => {
                    Some(format!("{at}: `{key}` is not known"))
                }
                None => misfit(schema.get("additionalProperties")?, value, &format!("{place}/{key}")),
            })
        }
        Value::Array(items) => {
            let part = schema.get("items")?;
            items.iter().enumerate().find_map(|(n, item)| misfit(part, item, &format!("{place}/{n}")))
        }
        _ => None,
    }
}

fn is_of(kind: &Value, value: &Value) -> bool {
    match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| is_of(kind, value)),
        Value::String(kind) => match kind.as_str() {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "number" => value.is_number(),
            "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
            "string" => value.is_string(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            _ => true,
        },
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::misfit;

    #[test]
    fn what_does_not_fit_is_named_with_its_place() {
        let schema = json!({
            "type": "object",
            "required": ["text"],
            "additionalProperties": false,
            "properties": {
                "text": {"type": "string"},
                "count": {"type": ["integer", "null"]},
                "kind": {"enum": ["a", "b"]},
                "parts": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}}},
            },
        });
        for fits in [
            json!({"text": "x"}),
            json!({"text": "x", "count": null, "kind": "b", "parts": [{"n": 1.5}, {"other": true}]}),
            json!({"text": "x", "count": 2.0}),
        ] {
            assert_eq!(misfit(&schema, &fits, ""), None, "{fits}");
        }
        for (params, says) in [
            (json!([]), "the parameters"),
            (json!({}), "`text` is missing"),
            (json!({"text": 1}), "/text"),
            (json!({"text": "x", "more": 1}), "`more`"),
            (json!({"text": "x", "count": 1.5}), "/count"),
            (json!({"text": "x", "kind": "c"}), "/kind"),
            (json!({"text": "x", "parts": [{"n": 1}, {"n": "1"}]}), "/parts/1/n"),
        ] {
            let found = misfit(&schema, &params, "");
            assert!(found.as_ref().is_some_and(|found| found.contains(says)), "{params}: {found:?}");
        }
    }
}
