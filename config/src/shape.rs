//! The declared form of a file: tables of keys with the shape of each value.
//!
//! The tables are made by [`keys!`](crate::declare::keys) and say which keys exist. Reading a file, its JSON Schema, the
//! suggestions for unknown keys and the keys of environment variables all come from them. What relates several values
//! to each other is checked by whoever knows them, not here.

use serde_json::{Map, Value};

pub(crate) struct Text {
    pub expected: &'static str,
    /// Whether a text has the form.
    pub check: fn(&str) -> bool,
    /// The same as a regular expression of JSON Schema.
    pub pattern: Option<&'static str>,
    /// A secret is never shown.
    pub secret: bool,
    /// Whether `${NAME}` in it stands for a variable, in files that have such.
    pub placeholders: bool,
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
    /// A list with a bound on its items.
    AtMost(usize, &'static Shape),
    OneOrMany(&'static Shape),
    /// `true` or `false`, or a text that says more than `true`.
    SwitchOrText(&'static Text),
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
    /// Any value that somebody else gives meaning to.
    Any,
}

/// A key of a [`Table`].
pub(crate) struct Key {
    pub name: &'static str,
    pub shape: Shape,
    /// The comment of the declaration; see [`Key::doc`].
    comment: &'static str,
    pub required: bool,
    /// Known and documented for later: refused by name until something enforces it.
    pub later: bool,
    /// What holds where the key is absent.
    default: Option<fn() -> Value>,
}

impl Key {
    pub const fn new(name: &'static str, comment: &'static str, shape: Shape) -> Self {
        Self { name, shape, comment, required: false, later: false, default: None }
    }

    pub const fn later(name: &'static str) -> Self {
        Self { later: true, ..Self::new(name, "", Shape::Open) }
    }

    pub const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    pub const fn default(self, default: fn() -> Value) -> Self {
        Self { default: Some(default), ..self }
    }

    /// What the key means, as a part of a sentence: the comment of its declaration without a capital and a full stop.
    pub fn doc(&self) -> String {
        let text = self.comment.trim_start().trim_end_matches('.');
        let mut letters = text.chars();
        match (letters.next(), letters.next()) {
            // An abbreviation keeps its capitals.
            (Some(first), second) if !second.is_some_and(char::is_uppercase) => {
                format!("{}{}", first.to_lowercase(), &text[first.len_utf8()..])
            }
            _ => text.to_owned(),
        }
    }

    /// What holds without the key: what the map around it says, else its own default.
    pub fn default_in(&self, outer: Option<&Value>) -> Option<Value> {
        outer.and_then(|map| map.get(self.name)).cloned().or_else(|| self.default.map(|value| value()))
    }
}

/// The default of a map of known keys: each key has its own.
pub(crate) fn each_its_own() -> Value {
    Value::Object(Map::new())
}

/// The default of a list.
pub(crate) const EMPTY: [(); 0] = [];

/// A map with known keys.
pub(crate) struct Table {
    /// What the map is, for messages; where it is empty, its place says it.
    pub name: &'static str,
    pub keys: &'static [Key],
    /// The form of keys that are not listed, where there may be such.
    pub rest: Option<(&'static Text, &'static Shape)>,
}

impl Table {
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    pub fn supported(&self) -> impl Iterator<Item = &'static Key> {
        self.keys.iter().filter(|key| !key.later)
    }

    /// What holds where no key is set.
    pub fn defaults(&self, outer: Option<&Value>) -> Map<String, Value> {
        let default = |key: &'static Key| {
            let own = key.default_in(outer)?;
            Some((
                key.name.to_owned(),
                match key.shape {
                    Shape::Record(table) => Value::Object(table.defaults(Some(&own))),
                    _ => own,
                },
            ))
        };
        self.supported().filter_map(default).collect()
    }
}

impl Shape {
    /// One of some words.
    pub const fn choice(known: &'static [&'static str]) -> Self {
        Self::Choice { known, later: &[] }
    }

    /// What to write, for a message.
    pub fn expected(&self) -> String {
        match self {
            Self::Bool => "`true` or `false`".into(),
            Self::Text(text) => text.expected.into(),
            Self::SwitchOrText(text) => format!("`true`, `false`, or {}", text.expected),
            Self::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Self::Number { min, max } => format!("a number from {min} to {max}"),
            Self::Choice { known, .. } => choices(known),
            Self::List(item) => format!("a list, each item {}", item.expected()),
            Self::OneOrMany(item) => format!("{}, or a list of such", item.expected()),
            Self::WordOrList { word, item } => {
                format!("the word `{word}`, or a list, each item {}", item.expected())
            }
            Self::Map { value, .. } => format!("a map, each value {}", value.expected()),
            Self::AtMost(_, list) => list.expected(),
            Self::Record(table) if table.name.is_empty() => "a map".into(),
            Self::Record(table) => format!("a map ({})", table.name),
            Self::Open => "a map".into(),
            Self::Any => "a value".into(),
        }
    }

    /// Whether a value of this form must not be shown.
    pub fn secret(&self) -> bool {
        match self {
            Self::Text(text) => text.secret,
            Self::List(item) | Self::OneOrMany(item) | Self::WordOrList { item, .. } => item.secret(),
            Self::AtMost(_, list) => list.secret(),
            Self::Map { value, .. } => value.secret(),
            // Whoever gives it meaning may keep a secret there.
            Self::Open | Self::Any => true,
            Self::Record(table) => table.rest.is_some_and(|(_, shape)| shape.secret()),
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
            Self::Open | Self::Any => Some(self),
            _ => None,
        }
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
