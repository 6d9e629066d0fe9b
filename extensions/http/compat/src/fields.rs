//! Reads a vendor's JSON by hand: what nobody looks for is ignored, and what does not fit is refused with its place.
//!
//! Derived types would refuse as well, but without the path that clients get as `param`, and with an enum for each of the
//! many shapes that a content or a tool may have.

use serde_json::{Map, Value};

use crate::Rejection;

/// A value of a request, and where it stands there.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    value: &'a Value,
    path: String,
}

/// The root of a body, which every one of these APIs wants to be an object.
pub(crate) fn body(bytes: &[u8]) -> Result<Value, Rejection> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        Rejection::invalid(None, format!("the body is not valid JSON (line {line}, column {column})"))
    })?;
    match value {
        Value::Object(_) => Ok(value),
        _ => Err(Rejection::invalid(None, "the body must be a JSON object")),
    }
}

impl<'a> Node<'a> {
    pub fn root(value: &'a Value) -> Self {
        Self { value, path: String::new() }
    }

    pub fn raw(&self) -> &'a Value {
        self.value
    }

    /// A field; `null` counts as absent, since the SDKs write it for what was not given.
    pub fn get(&self, key: &str) -> Option<Self> {
        let value = self.value.get(key).filter(|value| !value.is_null())?;
        Some(Self { value, path: self.below(key) })
    }

    pub fn need(&self, key: &str) -> Result<Self, Rejection> {
        self.get(key).ok_or_else(|| {
            let path = self.below(key);
            let message = format!("`{path}` is required and missing");
            Rejection::invalid(Some(path), message).coded("missing_required_parameter")
        })
    }

    fn below(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub fn text(&self) -> Result<&'a str, Rejection> {
        self.value.as_str().ok_or_else(|| self.expected("a text"))
    }

    pub fn flag(&self) -> Result<bool, Rejection> {
        self.value.as_bool().ok_or_else(|| self.expected("true or false"))
    }

    pub fn object(&self) -> Result<&'a Map<String, Value>, Rejection> {
        self.value.as_object().ok_or_else(|| self.expected("an object"))
    }

    pub fn number(&self, least: f64, most: f64) -> Result<f64, Rejection> {
        let number = self.value.as_f64().ok_or_else(|| self.expected("a number"))?;
        if (least..=most).contains(&number) {
            Ok(number)
        } else {
            Err(self.wrong(format!("{number} is not between {least} and {most}")))
        }
    }

    /// A whole number from `least` on.
    pub fn count(&self, least: u32) -> Result<u32, Rejection> {
        let count = self.value.as_u64().ok_or_else(|| self.expected("a whole number"))?;
        // More than 32 bits hold is no bound on anything here.
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if count >= least { Ok(count) } else { Err(self.wrong(format!("{count} is less than {least}"))) }
    }

    pub fn is_array(&self) -> bool {
        self.value.is_array()
    }

    pub fn items(&self) -> Result<Vec<Self>, Rejection> {
        let items = self.value.as_array().ok_or_else(|| self.expected("an array"))?;
        let at = |(at, value)| Self { value, path: format!("{}[{at}]", self.path) };
        Ok(items.iter().enumerate().map(at).collect())
    }

    /// Something other than `null`, `false`, 0, and what is empty: a value that asks for nothing is no wish.
    pub fn asks(&self, key: &str) -> Option<Self> {
        self.get(key).filter(|node| match node.value {
            Value::Bool(wish) => *wish,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            Value::Null => false,
        })
    }

    /// The value has another type.
    pub fn expected(&self, what: &str) -> Rejection {
        let found = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        };
        let message = format!("`{}` must be {what}, and is {found}", self.path);
        Rejection::invalid(Some(self.path.clone()), message).coded("invalid_type")
    }

    /// The value has the right type and cannot be.
    pub fn wrong(&self, why: impl AsRef<str>) -> Rejection {
        let message = format!("`{}`: {}", self.path, why.as_ref());
        Rejection::invalid(Some(self.path.clone()), message).coded("invalid_value")
    }

    /// The value would be right with the vendor, and drupe cannot do it.
    pub fn unsupported(&self, why: impl AsRef<str>) -> Rejection {
        Rejection::unsupported(&self.path, why)
    }
}
