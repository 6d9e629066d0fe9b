//! YAML as a tree in which every value knows its place.
//!
//! What a value may be is not decided here, and neither is how text becomes a tree.

use serde_json::{Map, Number, Value};

use crate::{Diagnostics, source::At};

/// A value and its place.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub value: Yaml,
    pub at: At,
}

#[derive(Debug, Clone)]
pub(crate) enum Yaml {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key of a map with its value.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub key: String,
    pub key_at: At,
    pub value: Node,
}

impl Node {
    /// The value of a key, where this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The entries of a map; of anything else, none.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Yaml::Map(entries) => entries,
            _ => &[],
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.value, Yaml::Null)
    }

    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Yaml::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What it is without its content.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Yaml::Null => "nothing",
            Yaml::Bool(_) => "`true` or `false`",
            Yaml::Integer(_) | Yaml::Float(_) => "a number",
            Yaml::Text(_) => "text",
            Yaml::List(_) => "a list",
            Yaml::Map(_) => "a map",
        }
    }

    /// What it is, for a message: "text `abc`", "the number 3", "a list".
    pub fn describe(&self) -> String {
        match &self.value {
            Yaml::Null | Yaml::List(_) | Yaml::Map(_) => self.kind().into(),
            Yaml::Bool(value) => format!("`{value}`"),
            Yaml::Integer(value) => format!("the number {value}"),
            Yaml::Float(value) => format!("the number {value:?}"),
            Yaml::Text(text) => format!("text `{}`", shorten(text)),
        }
    }

    /// The same as JSON; places are lost. Numbers that JSON cannot hold become null.
    pub fn to_json(&self) -> Value {
        match &self.value {
            Yaml::Null => Value::Null,
            Yaml::Bool(value) => Value::Bool(*value),
            Yaml::Integer(value) => Number::from_i128(*value).map_or(Value::Null, Value::Number),
            Yaml::Float(value) => Number::from_f64(*value).map_or(Value::Null, Value::Number),
            Yaml::Text(text) => Value::String(text.clone()),
            Yaml::List(list) => Value::Array(list.iter().map(Node::to_json).collect()),
            Yaml::Map(_) => Value::Object(self.to_json_map()),
        }
    }

    pub fn to_json_map(&self) -> Map<String, Value> {
        self.entries().iter().map(|entry| (entry.key.clone(), entry.value.to_json())).collect()
    }
}

/// A text cut to what fits into a message, on one line.
pub(crate) fn shorten(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(60).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// Reports keys that stand twice, and leaves the first of each.
pub(crate) fn refuse_duplicates(node: &mut Node, path: &str, faults: &mut Diagnostics) {
    match &mut node.value {
        Yaml::List(list) => {
            for (index, item) in list.iter_mut().enumerate() {
                refuse_duplicates(item, &self::item(path, index), faults);
            }
        }
        Yaml::Map(entries) => {
            let mut first_lines = std::collections::BTreeMap::<String, u32>::new();
            entries.retain_mut(|entry| {
                let field = join(path, &entry.key);
                refuse_duplicates(&mut entry.value, &field, faults);
                let line = entry.key_at.line;
                let Some(first) = first_lines.get(&entry.key) else {
                    first_lines.insert(entry.key.clone(), line);
                    return true;
                };
                let message = format!("`{}` stands twice: on line {first} and on line {line}", entry.key);
                faults.error("duplicate_key", &entry.key_at, &field, message).help("keep one of them");
                false
            });
        }
        _ => {}
    }
}

/// A name that is longer is cut: it is for people, and every value below would carry it.
const MAX_PATH_BYTES: usize = 300;

/// A field's name with its parents.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        return key.to_owned();
    }
    if path.len() > MAX_PATH_BYTES { cut(path) } else { format!("{path}.{key}") }
}

/// An item's name with its parents.
pub(crate) fn item(path: &str, index: usize) -> String {
    if path.len() > MAX_PATH_BYTES { cut(path) } else { format!("{path}[{index}]") }
}

fn cut(path: &str) -> String {
    if path.ends_with('…') { path.to_owned() } else { format!("{path}…") }
}
