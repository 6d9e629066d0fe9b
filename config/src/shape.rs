//! The declared form of a file: tables of keys with the shape of each value.
//!
//! The tables are the one place that says which keys exist. Checking a file, its JSON Schema, the suggestions
//! for unknown keys and the keys of environment variables all come from them. What relates several values to
//! each other is checked where they are read, not here.

use crate::{
    Diagnostics,
    tree::{self, Entry, Node, Yaml, join},
};

/// A form of text.
pub(crate) struct Text {
    /// For people: "expected …".
    pub expected: &'static str,
    /// Whether a text has the form.
    pub check: fn(&str) -> bool,
    /// The same as a regular expression of JSON Schema.
    pub pattern: Option<&'static str>,
    /// A secret is never shown.
    pub secret: bool,
}

/// The form of a value.
pub(crate) enum Shape {
    Bool,
    Text(&'static Text),
    Integer {
        min: u64,
        max: u64,
    },
    Number {
        min: f64,
        max: f64,
    },
    Choice {
        known: &'static [&'static str],
        later: &'static [&'static str],
    },
    List(&'static Shape),
    OneOrMany(&'static Shape),
    /// A list, or one word in its place.
    WordOrList {
        word: &'static str,
        item: &'static Shape,
    },
    Map {
        key: &'static Text,
        value: &'static Shape,
    },
    Record(&'static Table),
    /// A map that somebody else gives meaning to.
    Open,
}

/// A key of a [`Table`].
pub(crate) struct Key {
    pub name: &'static str,
    pub shape: Shape,
    pub doc: &'static str,
    pub required: bool,
    /// Known and documented for later: refused by name until something enforces it.
    pub later: bool,
    /// What holds where the key is absent, as JSON.
    pub default: Option<&'static str>,
}

impl Key {
    pub const fn new(name: &'static str, shape: Shape, doc: &'static str) -> Self {
        Self { name, shape, doc, required: false, later: false, default: None }
    }

    pub const fn later(name: &'static str) -> Self {
        Self { name, shape: Shape::Open, doc: "", required: false, later: true, default: None }
    }

    pub const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    pub const fn default(self, json: &'static str) -> Self {
        Self { default: Some(json), ..self }
    }
}

/// A map with known keys.
pub(crate) struct Table {
    /// What the map is, for messages.
    pub name: &'static str,
    pub keys: &'static [Key],
    /// The form of keys that are not listed, where there may be such.
    pub rest: Option<(&'static Text, &'static Shape)>,
}

impl Table {
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    fn supported(&self) -> impl Iterator<Item = &'static Key> {
        self.keys.iter().filter(|key| !key.later)
    }
}

impl Shape {
    /// What to write, for a message.
    pub fn expected(&self) -> String {
        match self {
            Self::Bool => "`true` or `false`".into(),
            Self::Text(text) => text.expected.into(),
            Self::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Self::Number { min, max } => format!("a number from {min} to {max}"),
            Self::Choice { known, .. } => choices(known),
            Self::List(item) => format!("a list, each item {}", item.expected()),
            Self::OneOrMany(item) => format!("{}, or a list of such", item.expected()),
            Self::WordOrList { word, item } => {
                format!("the word `{word}`, or a list, each item {}", item.expected())
            }
            Self::Map { value, .. } => format!("a map, each value {}", value.expected()),
            Self::Record(table) => format!("a map ({})", table.name),
            Self::Open => "a map".into(),
        }
    }

    /// Whether a value of this form must not be shown.
    pub fn secret(&self) -> bool {
        match self {
            Self::Text(text) => text.secret,
            Self::List(item) | Self::OneOrMany(item) | Self::WordOrList { item, .. } => item.secret(),
            Self::Map { value, .. } => value.secret(),
            // Whoever gives it meaning may keep a secret there.
            Self::Open => true,
            _ => false,
        }
    }

    /// The shape at a path of keys below this one.
    pub fn below(&'static self, path: &[String]) -> Option<&'static Shape> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        match self {
            Self::Record(table) => match (table.key(first), table.rest) {
                (Some(key), _) => key.shape.below(rest),
                (None, Some((_, shape))) => shape.below(rest),
                (None, None) => None,
            },
            Self::Map { value, .. } => value.below(rest),
            Self::Open => Some(self),
            _ => None,
        }
    }

    /// Reports everything in `node` that does not have this form.
    pub fn check(&'static self, node: &Node, path: &str, faults: &mut Diagnostics) {
        match (self, &node.value) {
            (Self::Bool, Yaml::Bool(_)) => {}
            (Self::Text(form), Yaml::Text(text)) if (form.check)(text) => {}
            (Self::Integer { min, max }, Yaml::Integer(value))
                if (i128::from(*min)..=i128::from(*max)).contains(value) => {}
            (Self::Number { min, max }, Yaml::Float(value)) if (*min..=*max).contains(value) => {}
            // Exact for every bound in use: all are far below 2^53.
            (Self::Number { min, max }, Yaml::Integer(value)) if (*min..=*max).contains(&(*value as f64)) => {
            }
            (Self::Choice { known, .. }, Yaml::Text(text)) if known.contains(&text.as_str()) => {}
            (Self::Choice { later, .. }, Yaml::Text(text)) if later.contains(&text.as_str()) => {
                let key = path.rsplit('.').next().unwrap_or(path);
                let message = format!("`{key}: {text}` is not supported yet, expected {}", self.expected());
                faults.error("not_supported_yet", &node.at, path, message).help("choose a supported value");
            }
            (Self::WordOrList { word, .. }, Yaml::Text(text)) if text == word => {}
            (Self::List(item) | Self::OneOrMany(item) | Self::WordOrList { item, .. }, Yaml::List(list)) => {
                for (index, value) in list.iter().enumerate() {
                    item.check(value, &tree::item(path, index), faults);
                }
            }
            (Self::OneOrMany(item), Yaml::Text(_)) => item.check(node, path, faults),
            (Self::Map { key, value }, Yaml::Map(entries)) => {
                for entry in entries {
                    check_key(entry, key, path, faults);
                    value.check(&entry.value, &join(path, &entry.key), faults);
                }
            }
            (Self::Record(table), Yaml::Map(entries)) => table.check(node, entries, path, faults),
            (Self::Open, Yaml::Map(_)) => check_numbers(node, path, faults),
            (
                Self::List(_) | Self::WordOrList { .. } | Self::Map { .. } | Self::Record(_) | Self::Open,
                Yaml::Null,
            ) => {
                // A key whose items are all commented out.
                if let Self::Record(table) = self {
                    table.check(node, &[], path, faults);
                }
            }
            _ => self.mismatch(node, path, faults),
        }
    }

    fn mismatch(&self, node: &Node, path: &str, faults: &mut Diagnostics) {
        let found = if self.secret() { node.kind().into() } else { node.describe() };
        let field = if path.is_empty() { "the file" } else { path };
        let message = format!("`{field}`: expected {}, found {found}", self.expected());
        let help = match (self, &node.value) {
            (Self::Choice { known, .. }, Yaml::Text(text)) => suggestion(text, known.iter().copied()),
            (Self::Text(_) | Self::OneOrMany(_), Yaml::Integer(_) | Yaml::Float(_) | Yaml::Bool(_)) => {
                Some("put it in quotes to make it text".into())
            }
            (Self::List(_) | Self::WordOrList { .. }, Yaml::Text(_)) => {
                Some("write a list: `[a, b]`, or a line `- a` for each".into())
            }
            _ => None,
        };
        let code = match (self, &node.value) {
            (Self::Integer { .. }, Yaml::Integer(_)) => "out_of_range",
            (Self::Number { .. }, Yaml::Integer(_) | Yaml::Float(_)) => "out_of_range",
            (Self::Text(_), Yaml::Text(_)) | (Self::Choice { .. }, Yaml::Text(_)) => "invalid_value",
            _ => "wrong_type",
        };
        faults.error(code, &node.at, path, message).help_if(help);
    }
}

impl Table {
    fn check(&'static self, node: &Node, entries: &[Entry], path: &str, faults: &mut Diagnostics) {
        for entry in entries {
            let field = join(path, &entry.key);
            match (self.key(&entry.key), self.rest) {
                (Some(key), _) if key.later => {
                    faults
                        .error(
                            "not_supported_yet",
                            &entry.key_at,
                            &field,
                            format!("`{field}` is not supported yet"),
                        )
                        .help("remove it: it would have no effect");
                }
                (Some(key), _) => key.shape.check(&entry.value, &field, faults),
                (None, Some((form, shape))) => {
                    check_key(entry, form, path, faults);
                    shape.check(&entry.value, &field, faults);
                }
                (None, None) => self.unknown(entry, &field, faults),
            }
        }
        for key in self.supported().filter(|key| key.required) {
            if !entries.iter().any(|entry| entry.key == key.name) {
                let field = join(path, key.name);
                let message = format!("`{field}` is missing, expected {}", key.shape.expected());
                faults.error("missing_key", &node.at, &field, message).help(format!("add it: {}", key.doc));
            }
        }
    }

    fn unknown(&'static self, entry: &Entry, field: &str, faults: &mut Diagnostics) {
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
        let message = format!("unknown key `{}` in {}", entry.key, self.name);
        faults.error("unknown_key", &entry.key_at, field, message).help_if(help);
    }
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

fn check_key(entry: &Entry, form: &Text, path: &str, faults: &mut Diagnostics) {
    if !(form.check)(&entry.key) {
        let shown = crate::tree::shorten(&entry.key);
        let message = format!("`{shown}` cannot be a key of `{path}`: expected {}", form.expected);
        faults.error("invalid_key", &entry.key_at, &join(path, &shown), message);
    }
}

/// "`a`, `b` or `c`".
pub(crate) fn choices(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// "did you mean", for a name that is close enough to a known one.
pub(crate) fn suggestion<'a>(found: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    // Comparing costs the product of the lengths, and no key is anywhere near this long.
    if found.len() > 80 {
        return None;
    }
    let found = found.to_lowercase();
    // A quarter of the letters: more would suggest names that have nothing in common.
    let bound = (found.chars().count() / 4).clamp(1, 3);
    let rank = |name: &'a str| {
        let begins = found.len() >= 4 && name.starts_with(&found);
        let distance = if begins { 0 } else { strsim::damerau_levenshtein(&found, name) };
        (distance <= bound).then_some((distance, name))
    };
    known.filter_map(rank).min().map(|(_, name)| format!("did you mean `{name}`?"))
}

pub(crate) mod forms {
    //! The forms of text that the files know.

    use drupe_extension_api::{ExtensionId, MODEL_NAME, ToolName, is_model_name};

    use super::Text;

    const fn form(expected: &'static str, check: fn(&str) -> bool, pattern: Option<&'static str>) -> Text {
        Text { expected, check, pattern, secret: false }
    }

    const SLUG: &str = "^[a-z0-9][a-z0-9_-]{0,47}$";

    pub static ANY: Text = form("text", |_| true, None);
    pub static NON_EMPTY: Text =
        form("text that is not empty", |text| !text.trim().is_empty(), Some(r"[^\s]"));
    pub static MODEL: Text =
        form(MODEL_NAME, is_model_name, Some(r"^(scripted:[^\x00-\x1f]+|[^\s\x00-\x1f]{1,256})$"));
    pub static ID: Text = form(
        "an id: a lower-case letter or digit, then up to 47 of a-z, 0-9, `_` and `-`",
        |text| ExtensionId::new(text).is_ok(),
        Some(SLUG),
    );
    pub static TOOL_NAME: Text = form(
        "a tool's name: 1 to 64 letters, digits, `_`, `.` and `-`",
        |text| ToolName::new(text).is_ok(),
        Some("^[A-Za-z0-9_.-]{1,64}$"),
    );
    pub static SELECTOR: Text = form(
        "an extension's id, or `id/tool_name` for one tool of it",
        |text| match text.split_once('/') {
            Some((id, tool)) => ExtensionId::new(id).is_ok() && ToolName::new(tool).is_ok(),
            None => ExtensionId::new(text).is_ok(),
        },
        Some("^[a-z0-9][a-z0-9_-]{0,47}(/[A-Za-z0-9_.-]{1,64})?$"),
    );
    pub static VARIABLE: Text = form(
        "a variable's name: a letter or `_`, then up to 127 letters, digits and `_`",
        is_variable,
        Some("^[A-Za-z_][A-Za-z0-9_]{0,127}$"),
    );
    pub static NAME: Text = form(
        "a name: a lower-case letter or digit, then up to 47 of a-z, 0-9, `_` and `-`",
        |text| ExtensionId::new(text).is_ok(),
        Some(SLUG),
    );
    pub static HEADER: Text = form(
        "the name of an HTTP header: letters, digits and `-`",
        |text| {
            (1..=64).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        },
        Some("^[A-Za-z0-9-]{1,64}$"),
    );
    /// Topics that are kept for those who follow them: of an extension, with its id before, and these of the kernel.
    pub static TOPIC: Text = form(
        "a topic: `<extension>.<topic>`, `agent_invoked`, `agent_result` or `agent_error`",
        is_topic,
        Some(r"^(agent_invoked|agent_result|agent_error|[a-z0-9][a-z0-9_-]{0,47}\.[^\x00-\x1f]{1,128})$"),
    );
    pub static VERSION: Text = form(
        "a semantic version such as `1.0.0`",
        |text| semver::Version::parse(text).is_ok(),
        Some(r"^[0-9]+\.[0-9]+\.[0-9]+([-+].*)?$"),
    );
    pub static SECRET: Text = Text { expected: "text", check: |_| true, pattern: None, secret: true };

    fn is_topic(text: &str) -> bool {
        let of_an_extension = |(id, topic): (&str, &str)| {
            ExtensionId::new(id).is_ok()
                && (1..=128).contains(&topic.len())
                && !topic.contains(|letter: char| letter < ' ')
        };
        ["agent_invoked", "agent_result", "agent_error"].contains(&text)
            || text.split_once('.').is_some_and(of_an_extension)
    }

    pub fn is_variable(text: &str) -> bool {
        text.len() <= 128
            && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }
}
