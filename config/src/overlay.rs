//! Variables and secrets: where `${NAME}` finds its value.
//!
//! `env:` of `drupe.yaml` wins over `HOME/.env`, which wins over what the service manager hands in and over the process
//! environment. The result is built once and handed down as data; nothing here reads or changes the environment of the process.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Diagnostics, forms};

/// A text that shows itself only when asked with [`expose`](Self::expose).
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().into())
    }

    /// The text; for the one place that hands it to whom it is meant for.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

/// Every variable that `${NAME}` can name; immutable and cheap to clone.
#[derive(Clone, Default)]
pub struct Overlay(Arc<BTreeMap<String, Secret>>);

impl Overlay {
    /// The value of a variable; an empty one counts as absent.
    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.0.get(name).filter(|secret| !secret.0.is_empty())
    }

    /// The names, sorted; values stay inside.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A further layer on top.
    pub(crate) fn with(&self, values: BTreeMap<String, Secret>) -> Self {
        let mut all = (*self.0).clone();
        all.extend(values);
        Self(Arc::new(all))
    }
}

impl FromIterator<(String, String)> for Overlay {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self(Arc::new(pairs.into_iter().map(|(name, value)| (name, Secret::new(value))).collect()))
    }
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// Where to define a variable, for a message.
pub(crate) fn where_to_define(name: &str) -> String {
    format!("run `drupe secret set {name}`, or define it under `env:` of drupe.yaml or in the environment")
}

/// Of one text no more are reported, and no more are looked for: each search may go to its end.
const MAX_UNRESOLVED: usize = 100;

/// Puts the values of `${NAME}` into a text; `$${` stands for a literal `${`.
///
/// What cannot be resolved comes back as a list of names or malformed parts.
pub(crate) fn expand<'a>(
    text: &str,
    mut lookup: impl FnMut(&str) -> Option<&'a Secret>,
) -> Result<String, Vec<Unresolved>> {
    let mut output = String::with_capacity(text.len());
    let mut unresolved = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("${").filter(|_| unresolved.len() < MAX_UNRESOLVED) {
        let (before, after) = (&rest[..start], &rest[start + 2..]);
        if let Some(escaped) = before.strip_suffix('$') {
            output.push_str(escaped);
            output.push_str("${");
            rest = after;
            continue;
        }
        output.push_str(before);
        let name = after.split_once('}').map(|(name, _)| name).filter(|name| forms::is_variable(name));
        let Some(name) = name else {
            unresolved.push(Unresolved::Malformed);
            rest = after;
            continue;
        };
        match lookup(name) {
            Some(value) => output.push_str(value.expose()),
            None => unresolved.push(Unresolved::Missing(name.to_owned())),
        }
        rest = &after[name.len() + 1..];
    }
    output.push_str(rest);
    if unresolved.is_empty() { Ok(output) } else { Err(unresolved) }
}

/// Why a placeholder has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unresolved {
    Missing(String),
    Malformed,
}

impl Unresolved {
    /// Reports it for whoever needs the value.
    pub fn report(&self, at: &crate::source::At, field: &str, needed_by: &str, faults: &mut Diagnostics) {
        match self {
            Self::Missing(name) => faults
                .error(
                    "missing_variable",
                    at,
                    field,
                    format!("`${{{name}}}` is not defined; {needed_by} needs it"),
                )
                .help(where_to_define(name)),
            Self::Malformed => faults
                .error("bad_placeholder", at, field, "`${` must be followed by a variable's name and `}`")
                .help("write `${NAME}`, or `$${` for the two characters themselves"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn a_secret_shows_itself_to_nobody() {
        let secret = Secret::new("hunter2");
        let overlay: Overlay = [("KEY".to_owned(), "hunter2".to_owned())].into_iter().collect();
        let shown = format!("{secret} {secret:?} {overlay:?} {}", serde_json::to_string(&secret).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn placeholders_are_replaced_escaped_or_named() {
        let value = Secret::new("v");
        let check = |text: &str| expand(text, |name| (name == "A").then_some(&value));
        assert_eq!(check("plain $A {A}").unwrap(), "plain $A {A}");
        assert_eq!(check("x${A}y${A}").unwrap(), "xvyv");
        assert_eq!(check("$${A}").unwrap(), "${A}");
        assert_eq!(check("${B}${C}").unwrap_err().len(), 2);
        assert_eq!(check("${B}").unwrap_err(), [Unresolved::Missing("B".into())]);
        for malformed in ["${", "${A", "${}", "${A B}", "é${ é"] {
            assert_eq!(check(malformed).unwrap_err(), [Unresolved::Malformed], "{malformed}");
        }
    }
}
