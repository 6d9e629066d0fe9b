//! Commands: `tool_name {json}` and `tool_name key=value …`.
//!
//! A text is a command if it begins with a tool's exact name (a `/` may stand before it) and goes on with nothing
//! else than an object or pairs. Anything else is a sentence, even if its first word names a tool.

use std::sync::Arc;

use drupe_extension_api::ToolSpec;
use serde_json::{Map, Value};

use super::texts;

type Call = (String, Map<String, Value>);

/// The call, or what is wrong with it, or none for a sentence.
pub(super) fn parse(text: &str, tools: &[Arc<ToolSpec>]) -> Option<Result<Call, String>> {
    let text = text.trim();
    let text = text.strip_prefix('/').unwrap_or(text);
    let (name, rest) =
        text.split_at(text.find(|c: char| c.is_whitespace() || c == '{').unwrap_or(text.len()));
    let tool = tools.iter().find(|t| t.name.as_str() == name)?;
    let rest = rest.trim();
    let arguments = if rest.starts_with('{') {
        match serde_json::from_str(rest) {
            Ok(object) => object,
            Err(e) => {
                return Some(Err(format!(
                    "`{name}` needs a JSON object, and this is none: {e}. {}",
                    texts::how_to_call(tool)
                )));
            }
        }
    } else {
        let words = words(rest)?;
        words.iter().map(|word| pair(word, tool)).collect::<Option<_>>()?
    };
    if !missing(tool, &arguments).is_empty() {
        return Some(Err(texts::how_to_call(tool)));
    }
    Some(Ok((name.to_owned(), arguments)))
}

/// The `key=value` pairs of a sentence whose keys are parameters of `tool`.
pub(super) fn pairs(text: &str, tool: &ToolSpec) -> Map<String, Value> {
    let known = |key: &str| tool.input_schema.pointer("/properties").is_some_and(|p| p.get(key).is_some());
    let words = words(text).unwrap_or_default();
    words.iter().filter_map(|word| pair(word, tool)).filter(|(key, _)| known(key)).collect()
}

/// Required parameters that `arguments` lack.
pub(super) fn missing<'a>(tool: &'a ToolSpec, arguments: &Map<String, Value>) -> Vec<&'a str> {
    let required = tool.input_schema.get("required").and_then(Value::as_array).into_iter().flatten();
    required.filter_map(Value::as_str).filter(|name| !arguments.contains_key(*name)).collect()
}

/// A word, and where the first quoted part of it began.
struct Word {
    text: String,
    quoted: Option<usize>,
}

/// Splits at whitespace outside quotes. Either quote may be used; a backslash takes the next character as it is.
/// None where a quote is not closed.
fn words(text: &str) -> Option<Vec<Word>> {
    let mut words = Vec::new();
    let mut word = Word { text: String::new(), quoted: None };
    let mut open = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, open) {
            ('\\', Some(_)) => word.text.extend(chars.next()),
            (c, Some(quote)) if c == quote => open = None,
            // A quote opens a value; within a word it is an apostrophe.
            ('"' | '\'', None) if word.text.is_empty() || word.text.ends_with('=') => {
                word.quoted.get_or_insert(word.text.len());
                open = Some(c);
            }
            (c, None) if c.is_whitespace() => {
                if !word.text.is_empty() || word.quoted.is_some() {
                    words.push(std::mem::replace(&mut word, Word { text: String::new(), quoted: None }));
                }
            }
            (c, _) => word.text.push(c),
        }
    }
    if !word.text.is_empty() || word.quoted.is_some() {
        words.push(word);
    }
    open.is_none().then_some(words)
}

fn pair(word: &Word, tool: &ToolSpec) -> Option<(String, Value)> {
    let (key, value) = word.text.split_once('=')?;
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    // In `"a=b"` the sign belongs to the text.
    if !is_key || word.quoted.is_some_and(|at| at <= key.len()) {
        return None;
    }
    Some((key.to_owned(), typed(value, word.quoted.is_some(), tool, key)))
}

/// The value in the type that the schema names. Without one, a value is what it looks like as JSON, unless quotes
/// make it a text.
fn typed(value: &str, quoted: bool, tool: &ToolSpec, key: &str) -> Value {
    let schema = tool.input_schema.get("properties").and_then(|p| p.get(key));
    let text = || Value::String(value.to_owned());
    match schema.and_then(|s| s.get("type")).and_then(Value::as_str) {
        Some("string") => text(),
        None if quoted => text(),
        _ => serde_json::from_str(value).unwrap_or_else(|_| text()),
    }
}
