//! Variables and secrets: where `${NAME}` finds its value.
//!
//! `env:` of `drupe.yaml` wins over `HOME/.env`, which wins over the process environment. The result is built
//! once and handed down as data; nothing here reads or changes the environment of the process.

use std::{collections::BTreeMap, fmt, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    Diagnostics, forms,
    source::{self, Links},
};

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
    format!("define `{name}` under `env:` of drupe.yaml, as `{name}=…` in HOME/.env, or in the environment")
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

/// The sidecar file of variables. It is refused when others can read it; one that does not exist is empty.
pub(crate) fn read_env_file(path: &Path, faults: &mut Diagnostics) -> BTreeMap<String, Secret> {
    if path.symlink_metadata().is_err() {
        return BTreeMap::new();
    }
    let Some(file) = source::open(path, Links::Followed, faults) else { return BTreeMap::new() };
    let mode = file.metadata().map_or(0o777, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 {
        let message = format!("`{}` can be read by others (mode {:03o})", path.display(), mode & 0o777);
        faults
            .file_error("readable_secrets", path, 0, message)
            .help(format!("run: chmod 600 {}", path.display()));
        return BTreeMap::new();
    }
    let Some(text) = source::read_open(path, file, faults) else { return BTreeMap::new() };
    let mut values = BTreeMap::new();
    for (number, line) in (1u32..).zip(text.lines()) {
        match env_line(line) {
            Ok(None) => {}
            Ok(Some((name, value))) => {
                values.insert(name, Secret::new(value));
            }
            // The line itself may hold a secret, so it is not shown.
            Err(reason) => faults
                .file_error("env_file", path, number, reason)
                .help("write `NAME=value`, with quotes around a value that has spaces or `#`"),
        }
    }
    values
}

/// One line: blank, `# comment`, or `NAME=value`, optionally after `export`.
fn env_line(line: &str) -> Result<Option<(String, String)>, &'static str> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=').ok_or("this line is not `NAME=value`")?;
    let name = name.trim();
    if !forms::is_variable(name) {
        return Err("the name before `=` is not a variable's name");
    }
    let value = value.trim();
    let value = match value.chars().next() {
        Some('\'') => quoted(&value[1..], '\'')?,
        Some('"') => quoted(&value[1..], '"')?,
        _ => value.split(" #").next().unwrap_or_default().trim_end().to_owned(),
    };
    Ok(Some((name.to_owned(), value)))
}

/// The rest of a quoted value; backslashes mean something in double quotes only.
fn quoted(rest: &str, quote: char) -> Result<String, &'static str> {
    let mut value = String::new();
    let mut chars = rest.chars();
    while let Some(next) = chars.next() {
        match next {
            found if found == quote => {
                let tail = chars.as_str().trim_start();
                let ends = tail.is_empty() || tail.starts_with('#');
                return if ends { Ok(value) } else { Err("there is text after the closing quote") };
            }
            '\\' if quote == '"' => match chars.next() {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some(other) => value.push(other),
                None => break,
            },
            other => value.push(other),
        }
    }
    Err("the closing quote is missing")
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
    fn lines_of_the_sidecar_file_are_read_as_documented() {
        let check = |line: &str, expected: Result<Option<(&str, &str)>, ()>| {
            let expected = expected.map(|pair| pair.map(|(name, value)| (name.to_owned(), value.to_owned())));
            assert_eq!(env_line(line).map_err(|_| ()), expected, "{line}");
        };
        check("", Ok(None));
        check("  # note", Ok(None));
        check("A=b", Ok(Some(("A", "b"))));
        check("export A = b c ", Ok(Some(("A", "b c"))));
        check("A=b # note", Ok(Some(("A", "b"))));
        check("A=b#c", Ok(Some(("A", "b#c"))));
        check("A=", Ok(Some(("A", ""))));
        check("A='x # y' # note", Ok(Some(("A", "x # y"))));
        check(r#"A="x\n\"y\"""#, Ok(Some(("A", "x\n\"y\""))));
        check(r"A='x\n'", Ok(Some(("A", r"x\n"))));
        check("A='x", Err(()));
        check("A='x'y", Err(()));
        check("A", Err(()));
        check("1A=x", Err(()));
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

    #[test]
    fn a_sidecar_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".env");
        std::fs::write(&path, "A=secret\nbroken\n").unwrap();
        for (mode, codes) in [(0o644, ["readable_secrets"]), (0o600, ["env_file"])] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let mut faults = Diagnostics::default();
            let values = read_env_file(&path, &mut faults);
            assert_eq!(faults.iter().map(|fault| fault.code).collect::<Vec<_>>(), codes);
            assert_eq!(values.contains_key("A"), mode == 0o600);
            assert!(!faults.render(false).contains("secret\n"));
        }
    }
}
