//! From a tree to the values that hold: everything that has not its declared form is reported, and reads as absent.
//!
//! What comes out is JSON in which each absent key has its default, and from it the types that the rest of the program
//! knows. A fault leaves its value out and nothing else, so that all faults of a file are found at once.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{
    Diagnostics, Overlay,
    overlay::expand,
    shape::{Shape, Table, Text, suggestion},
    tree::{self, Entry, Node, Yaml, join},
};

/// What reading needs beside the tree.
pub(crate) struct Reading<'a> {
    pub faults: &'a mut Diagnostics,
    /// What `${NAME}` stands for. Without them a placeholder is text like any other.
    pub variables: Option<&'a Overlay>,
}

impl Reading<'_> {
    /// A map as the type that is declared with its keys; nothing where a fault leaves too little.
    pub fn typed<T: DeserializeOwned>(
        &mut self,
        table: &'static Table,
        node: &Node,
        path: &str,
    ) -> Option<T> {
        let value = self.value(table, node, path)?;
        match serde_json::from_value(value) {
            Ok(typed) => Some(typed),
            Err(_) if self.faults.has_errors() => None,
            Err(error) => {
                let message = format!("{} cannot be read: {error}", table.name);
                self.faults.error("unreadable", &node.at, path, message);
                None
            }
        }
    }

    fn value(&mut self, table: &'static Table, node: &Node, path: &str) -> Option<Value> {
        match &node.value {
            Yaml::Map(entries) => Some(table.read(node, entries, path, None, self)),
            Yaml::Null => Some(table.read(node, &[], path, None, self)),
            _ => {
                mismatch(&Shape::Record(table), node, path, self.faults);
                None
            }
        }
    }

    fn text(&mut self, form: &Text, text: &str, node: &Node, path: &str) -> Option<Value> {
        let Some(variables) = self.variables.filter(|_| form.placeholders) else { return Some(text.into()) };
        match expand(text, |name| variables.get(name)) {
            Ok(text) => Some(text.into()),
            Err(unresolved) => {
                for item in unresolved {
                    item.report(&node.at, path, &format!("`{path}`"), self.faults);
                }
                None
            }
        }
    }
}

impl Shape {
    /// The value of `node`, where it has this form. `outer` has the defaults of a map that the one around it gives.
    fn read(
        &'static self,
        node: &Node,
        path: &str,
        outer: Option<&Value>,
        reading: &mut Reading<'_>,
    ) -> Option<Value> {
        match (self, &node.value) {
            (Self::Bool | Self::SwitchOrText(_), Yaml::Bool(_)) => Some(node.to_json()),
            (Self::Text(form) | Self::SwitchOrText(form), Yaml::Text(text)) if (form.check)(text) => {
                reading.text(form, text, node, path)
            }
            (Self::Integer { min, max }, Yaml::Integer(value))
                if (i128::from(*min)..=i128::from(*max)).contains(value) =>
            {
                Some(node.to_json())
            }
            (Self::Number { min, max }, Yaml::Float(value)) if (*min..=*max).contains(value) => {
                Some(node.to_json())
            }
            // Exact for every bound in use: all are far below 2^53.
            (Self::Number { min, max }, Yaml::Integer(value)) if (*min..=*max).contains(&(*value as f64)) => {
                Some(node.to_json())
            }
            (Self::Choice { known, .. }, Yaml::Text(text)) if known.contains(&text.as_str()) => {
                Some(node.to_json())
            }
            (Self::Choice { later, .. }, Yaml::Text(text)) if later.contains(&text.as_str()) => {
                let key = path.rsplit('.').next().unwrap_or(path);
                let message = format!("`{key}: {text}` is not supported yet, expected {}", self.expected());
                let fault = reading.faults.error("not_supported_yet", &node.at, path, message);
                fault.help("choose a supported value");
                None
            }
            (Self::WordOrList { word, .. }, Yaml::Text(text)) if text == word => Some(node.to_json()),
            (Self::List(item) | Self::OneOrMany(item) | Self::WordOrList { item, .. }, Yaml::List(list)) => {
                let items = list.iter().enumerate();
                let read = |(index, node)| item.read(node, &tree::item(path, index), None, reading);
                Some(Value::Array(items.filter_map(read).collect()))
            }
            (Self::OneOrMany(item), Yaml::Text(_)) => {
                Some(Value::Array(vec![item.read(node, path, None, reading)?]))
            }
            (Self::AtMost(most, list), _) => {
                refuse_more(*most, node, path, reading.faults);
                list.read(node, path, None, reading)
            }
            (Self::Map { key, value }, Yaml::Map(entries)) => {
                let mut map = Map::new();
                for entry in entries {
                    let fits = check_key(entry, key, path, reading.faults);
                    let read = value.read(&entry.value, &join(path, &entry.key), None, reading);
                    map.extend(read.filter(|_| fits).map(|read| (entry.key.clone(), read)));
                }
                Some(Value::Object(map))
            }
            (Self::Record(table), Yaml::Map(entries)) => {
                Some(table.read(node, entries, path, outer, reading))
            }
            (Self::Any, _) | (Self::Open, Yaml::Map(_)) => {
                check_numbers(node, path, reading.faults);
                Some(node.to_json())
            }
            // A key whose items are all commented out counts as absent.
            (Self::Record(table), Yaml::Null) => {
                table.read(node, &[], path, outer, reading);
                None
            }
            (Self::List(_) | Self::WordOrList { .. } | Self::Map { .. } | Self::Open, Yaml::Null) => None,
            _ => {
                mismatch(self, node, path, reading.faults);
                None
            }
        }
    }
}

impl Table {
    fn read(
        &'static self,
        node: &Node,
        entries: &[Entry],
        path: &str,
        outer: Option<&Value>,
        reading: &mut Reading<'_>,
    ) -> Value {
        let mut map = self.defaults(outer);
        for entry in entries {
            let field = join(path, &entry.key);
            let value = match (self.key(&entry.key), self.rest) {
                (Some(key), _) if key.later => {
                    let message = format!("`{field}` is not supported yet");
                    let fault = reading.faults.error("not_supported_yet", &entry.key_at, &field, message);
                    fault.help("remove it: it would have no effect");
                    None
                }
                (Some(key), _) => {
                    key.shape.read(&entry.value, &field, key.default_in(outer).as_ref(), reading)
                }
                (None, Some((form, shape))) => {
                    let fits = check_key(entry, form, path, reading.faults);
                    shape.read(&entry.value, &field, None, reading).filter(|_| fits)
                }
                (None, None) => {
                    self.unknown(entry, path, &field, reading.faults);
                    None
                }
            };
            map.extend(value.map(|value| (entry.key.clone(), value)));
        }
        for key in self.supported().filter(|key| key.required) {
            if !entries.iter().any(|entry| entry.key == key.name) {
                let field = join(path, key.name);
                let message = format!("`{field}` is missing, expected {}", key.shape.expected());
                let fault = reading.faults.error("missing_key", &node.at, &field, message);
                fault.help(format!("add it: {}", key.doc()));
            }
        }
        Value::Object(map)
    }

    fn unknown(&'static self, entry: &Entry, path: &str, field: &str, faults: &mut Diagnostics) {
        let within = self.supported().find_map(|key| match &key.shape {
            Shape::Record(table) if table.key(&entry.key).is_some() => Some(key.name),
            _ => None,
        });
        let help = match within {
            Some(parent) => Some(format!("`{}` belongs under `{parent}`", entry.key)),
            None => suggestion(&entry.key, self.supported().map(|key| key.name)).or_else(|| {
                let names: Vec<_> = self.supported().map(|key| key.name).collect();
                Some(format!("known here: {}", names.join(", ")))
            }),
        };
        let place = if self.name.is_empty() { format!("`{path}`") } else { self.name.to_owned() };
        let message = format!("unknown key `{}` in {place}", entry.key);
        faults.error("unknown_key", &entry.key_at, field, message).help_if(help);
    }
}

fn mismatch(shape: &Shape, node: &Node, path: &str, faults: &mut Diagnostics) {
    let found = if shape.secret() { node.kind().into() } else { node.describe() };
    let field = if path.is_empty() { "the file" } else { path };
    let message = format!("`{field}`: expected {}, found {found}", shape.expected());
    let help = match (shape, &node.value) {
        (Shape::Choice { known, .. }, Yaml::Text(text)) => suggestion(text, known.iter().copied()),
        (Shape::Text(_) | Shape::OneOrMany(_), Yaml::Integer(_) | Yaml::Float(_) | Yaml::Bool(_)) => {
            Some("put it in quotes to make it text".into())
        }
        (Shape::List(_) | Shape::WordOrList { .. }, Yaml::Text(_)) => {
            Some("write a list: `[a, b]`, or a line `- a` for each".into())
        }
        _ => None,
    };
    let code = match (shape, &node.value) {
        (Shape::Integer { .. }, Yaml::Integer(_)) => "out_of_range",
        (Shape::Number { .. }, Yaml::Integer(_) | Yaml::Float(_)) => "out_of_range",
        (Shape::Text(_), Yaml::Text(_)) | (Shape::Choice { .. }, Yaml::Text(_)) => "invalid_value",
        _ => "wrong_type",
    };
    faults.error(code, &node.at, path, message).help_if(help);
}

fn refuse_more(most: usize, node: &Node, path: &str, faults: &mut Diagnostics) {
    let Yaml::List(list) = &node.value else { return };
    let Some(extra) = list.get(most) else { return };
    let message = format!("`{path}` has {} items; {most} are taken", list.len());
    faults.error("too_many", &extra.at, &tree::item(path, most), message).help("split it, or remove some");
}

/// What somebody else gives meaning to is handed on as JSON, which knows fewer numbers than YAML.
fn check_numbers(node: &Node, path: &str, faults: &mut Diagnostics) {
    match &node.value {
        Yaml::Integer(_) | Yaml::Float(_) if node.to_json().is_null() => {
            let message = format!("`{path}`: {} is beyond what a number can hold here", node.describe());
            faults.error("out_of_range", &node.at, path, message).help("put it in quotes to make it text");
        }
        Yaml::List(list) => {
            for (index, item) in list.iter().enumerate() {
                check_numbers(item, &tree::item(path, index), faults);
            }
        }
        Yaml::Map(entries) => {
            for entry in entries {
                check_numbers(&entry.value, &join(path, &entry.key), faults);
            }
        }
        _ => {}
    }
}

fn check_key(entry: &Entry, form: &Text, path: &str, faults: &mut Diagnostics) -> bool {
    let fits = (form.check)(&entry.key);
    if !fits {
        let shown = tree::shorten(&entry.key);
        let message = format!("`{shown}` cannot be a key of `{path}`: expected {}", form.expected);
        faults.error("invalid_key", &entry.key_at, &join(path, &shown), message);
    }
    fits
}
