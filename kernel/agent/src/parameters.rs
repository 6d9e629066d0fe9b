//! The parameters of a call as a model wrote them.

use serde::de::Error;
use serde_json::Value;

/// Parses them.
///
/// An object that has a key twice is refused. One reader takes the first of the two and another one the last, so what is
/// checked and what a person agrees to could be another call than the one that the tool carries out.
pub(crate) fn parse(text: &str) -> serde_json::Result<Value> {
    let value = serde_json::from_str(text)?;
    // Of keys that are the same a value keeps one.
    match keys_of(&value) == keys_in(text) {
        true => Ok(value),
        false => Err(serde_json::Error::custom("an object has the same key twice")),
    }
}

fn keys_of(value: &Value) -> usize {
    match value {
        Value::Object(entries) => entries.len() + entries.values().map(keys_of).sum::<usize>(),
        Value::Array(items) => items.iter().map(keys_of).sum(),
        _ => 0,
    }
}

/// The keys in a text that is known to be JSON: a colon outside of strings follows each.
fn keys_in(text: &str) -> usize {
    let (mut keys, mut quoted, mut escaped) = (0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b':' if !quoted => keys += 1,
            _ => {}
        }
    }
    keys
}
