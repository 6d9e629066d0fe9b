//! What a person is asked to fill in before a call runs, and what they filled in.
//!
//! It is a JSON Schema of one flat object, so that a terminal and a page can ask for it line by line. A property that is
//! `writeOnly` is a secret: its value is taken out of what the call is given before anything of it is kept.

use std::fmt::Write;

use drupe_extension_api::Fault;
use drupe_json_schema::Schema;
use serde_json::{Map, Value};

/// Properties that one form may have: more is not read before it is answered.
const PROPERTIES: usize = 20;

/// The most bytes of a schema.
const BYTES: usize = 16 << 10;

/// Bytes of what is filled in.
const FILLED: usize = 64 << 10;

/// The longest name of a property, in bytes.
const NAME: usize = 128;

/// A form that can be asked for.
pub struct InputForm<'a> {
    schema: &'a Value,
    properties: &'a Map<String, Value>,
}

/// What a person filled in, apart from its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilledForm {
    /// What the call is given, with `true` in place of each secret.
    pub values: Map<String, Value>,
    /// The secrets, each with its name.
    pub secrets: Vec<(String, String)>,
}

impl<'a> InputForm<'a> {
    /// Reads the schema of one.
    ///
    /// # Errors
    /// A schema that is none, that is larger than 16 KiB, has no property or more than 20, or one that is anything else than a
    /// text, a number, a truth value, or a choice among texts.
    pub fn new(schema: &'a Value) -> Result<Self, Fault> {
        let wrong = |why: &str| Fault::invalid(format!("what a person is asked to fill in {why}"));
        if schema.to_string().len() > BYTES {
            return Err(wrong(&format!("has more than {BYTES} bytes")));
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        let Some(properties) = properties.filter(|_| schema["type"] == "object") else {
            return Err(wrong("is no JSON Schema of an object with `properties`"));
        };
        if !(1..=PROPERTIES).contains(&properties.len()) {
            return Err(wrong(&format!("has {} properties, not 1 to {PROPERTIES}", properties.len())));
        }
        for (name, property) in properties {
            if name.is_empty() || name.len() > NAME || name.chars().any(char::is_control) {
                return Err(wrong("has a property whose name nobody could read"));
            }
            let kind = property.get("type").and_then(Value::as_str).unwrap_or_default();
            let fits = match kind {
                "string" | "number" | "integer" | "boolean" => true,
                "array" => property["items"].get("enum").or(property["items"].get("anyOf")).is_some(),
                _ => false,
            };
            if !fits {
                return Err(wrong(&format!(
                    "has `{name}`, which is neither a text, a number, a truth value nor a choice among texts"
                )));
            }
            if is_secret(property) && (kind != "string" || !is_variable(name)) {
                return Err(wrong(&format!(
                    "has the secret `{name}`, which must be a text with the name of a variable"
                )));
            }
        }
        Schema::new(schema).map_err(|error| wrong(&format!("is no JSON Schema: {error}")))?;
        Ok(Self { schema, properties })
    }

    /// The names of the secrets that it asks for.
    pub fn secrets(&self) -> Vec<&str> {
        let secrets = self.properties.iter().filter(|(_, property)| is_secret(property));
        secrets.map(|(name, _)| name.as_str()).collect()
    }

    /// What was filled in, if it fits. No message shows a value.
    ///
    /// # Errors
    /// What does not fit, by name; anything that is not asked for.
    pub fn fill(&self, values: Map<String, Value>) -> Result<FilledForm, Fault> {
        if let Some(other) = values.keys().find(|name| !self.properties.contains_key(*name)) {
            return Err(Fault::invalid(format!("`{}` is not asked for", cut(other))));
        }
        let values = Value::Object(values);
        if values.to_string().len() > FILLED {
            return Err(Fault::invalid(format!("what is filled in has more than {FILLED} bytes")));
        }
        let schema = Schema::new(self.schema).map_err(Fault::internal)?;
        let unfit = schema.unfit_secret(&values).map_err(Fault::internal)?;
        if !unfit.is_empty() {
            let mut message = "what is filled in does not fit".to_owned();
            for (nth, one) in unfit.iter().take(3).enumerate() {
                let what = one.pointer.strip_prefix('/').unwrap_or("the whole");
                let _ = write!(message, "{} {what}: {}", if nth == 0 { ":" } else { ";" }, one.reason);
            }
            return Err(Fault::invalid(message));
        }
        let Value::Object(mut values) = values else { unreachable!("an object was put in") };
        let mut secrets = Vec::new();
        for (name, value) in &mut values {
            if is_secret(&self.properties[name])
                && let Value::String(secret) = std::mem::replace(value, Value::Bool(true))
            {
                secrets.push((name.clone(), secret));
            }
        }
        Ok(FilledForm { values, secrets })
    }
}

fn is_secret(property: &Value) -> bool {
    property["writeOnly"] == Value::Bool(true)
}

/// Whether a text can be the name of a variable.
fn is_variable(text: &str) -> bool {
    text.len() <= NAME
        && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(NAME)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form(properties: Value) -> Value {
        json!({"type": "object", "properties": properties, "required": []})
    }

    #[test]
    fn only_what_a_person_can_be_asked_for_line_by_line_is_a_form() {
        for good in [
            json!({"a": {"type": "string"}}),
            json!({"a": {"type": "string", "enum": ["x", "y"]}, "b": {"type": "boolean"}}),
            json!({"a": {"type": "array", "items": {"type": "string", "enum": ["x"]}}}),
            json!({"API_KEY": {"type": "string", "writeOnly": true}}),
        ] {
            assert!(InputForm::new(&form(good.clone())).is_ok(), "{good}");
        }
        let many: Map<_, _> = (0..21).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
        for bad in [
            json!({}),
            json!({"a": {"type": "object"}}),
            json!({"a": {"type": "array", "items": {"type": "string"}}}),
            json!({"a": {}}),
            json!({"a\u{7}": {"type": "string"}}),
            json!({"a": {"type": "string", "minLength": -1}}),
            json!({"a": {"type": "string", "description": "x".repeat(BYTES)}}),
            json!({"not a variable": {"type": "string", "writeOnly": true}}),
            json!({"COUNT": {"type": "number", "writeOnly": true}}),
            Value::Object(many),
        ] {
            assert!(InputForm::new(&form(bad.clone())).is_err(), "{bad}");
        }
        assert!(InputForm::new(&json!("text")).is_err());
    }

    #[test]
    fn secrets_are_taken_out_of_what_a_call_is_given_and_no_refusal_shows_one() {
        let schema = json!({"type": "object", "required": ["KEY"], "properties": {
            "KEY": {"type": "string", "writeOnly": true, "minLength": 8}, "days": {"type": "integer"},
        }});
        let form = InputForm::new(&schema).expect("a form");
        let fill = |values: Value| form.fill(values.as_object().expect("an object").clone());
        let filled = fill(json!({"KEY": "hunter2-hunter2", "days": 3})).expect("it fits");
        assert_eq!(Value::Object(filled.values), json!({"KEY": true, "days": 3}));
        assert_eq!(filled.secrets, [("KEY".to_owned(), "hunter2-hunter2".to_owned())]);
        for bad in [
            json!({"days": 3}),
            json!({"KEY": "hunter2"}),
            json!({"KEY": "hunter2-hunter2", "days": "three"}),
            json!({"KEY": "hunter2-hunter2", "other": "hunter2"}),
            json!({"KEY": true}),
        ] {
            let fault = fill(bad.clone()).expect_err("it does not fit").to_string();
            assert!(!fault.contains("hunter2"), "{bad}: {fault}");
        }
    }
}
