//! From the sources to one tree: the file, then `DRUPE_…` variables, then the command line.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use drupe_redact::names_a_secret;

use super::{CONFIG, Sources, ValueOrigin};
use crate::{
    Diagnostics, parse,
    shape::{Shape, suggestion},
    source::{self, At, Links, Source, SourceOrigin},
    tree::{self, Entry, Node, Yaml, join},
};

/// The form of the whole file.
pub(super) static FILE: Shape = Shape::Record(&CONFIG);

/// Variables with our prefix that are no configuration keys.
const RESERVED: [&str; 2] = ["DRUPE_HOME", "DRUPE_BLESS"];
const PREFIX: &str = "DRUPE_";
/// No key of ours or of an extension lies deeper, and setting one descends once per part.
const MAX_PARTS: usize = 16;

/// The file alone; none where it cannot be parsed.
pub(super) fn file(path: &Path, faults: &mut Diagnostics) -> Option<Node> {
    let text = source::read_text(path, Links::Followed, faults)?;
    let source = Source::new(SourceOrigin::File(path.to_owned()), text);
    let mut node = parse::document(&source, faults)?;
    reveal(&source, &node, &FILE);
    tree::refuse_duplicates(&mut node, "", faults);
    Some(node)
}

/// The tree of a configuration without a file.
pub(super) fn empty() -> Node {
    Node { value: Yaml::Null, at: At::nowhere() }
}

/// Puts the variables and the command line on top.
pub(super) fn overlay(root: &mut Node, sources: &Sources, faults: &mut Diagnostics) {
    for (name, value) in &sources.environment {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        if RESERVED.contains(&name.as_str()) {
            continue;
        }
        let path: Vec<String> = rest.to_lowercase().split("__").map(str::to_owned).collect();
        let source = Source::new(SourceOrigin::Environment(name.clone()), value.clone());
        let is_key = path.len() > 1 || CONFIG.key(&path[0]).is_some();
        if is_key {
            set(root, &path, &source, faults);
        } else {
            source.reveal_except(Vec::new());
            let names = CONFIG.keys.iter().filter(|key| !key.later).map(|key| key.name);
            let message = format!("`{name}` names no key of the configuration, and is not used");
            faults
                .warning("unknown_variable", &At::start_of(&source), &path[0], message)
                .help_if(suggestion(&path[0], names).or(Some("unset it, or correct its name".into())));
        }
    }
    for (key, value) in &sources.overrides {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        let source = Source::new(SourceOrigin::CommandLine(key.clone()), value.clone());
        set(root, &path, &source, faults);
    }
}

/// Sets one value; an unknown key is left to the check of the whole tree, which has the suggestions.
fn set(root: &mut Node, path: &[String], source: &Arc<Source>, faults: &mut Diagnostics) {
    if path.len() > MAX_PARTS {
        source.reveal_except(Vec::new());
        let message = format!("the key has more than {MAX_PARTS} parts");
        faults
            .error("unknown_key", &At::start_of(source), &path[..MAX_PARTS].join("."), message)
            .help("correct the key");
        return;
    }
    let shape = FILE.below(path);
    let whole = At { len: source.text.len(), ..At::start_of(source) };
    let node = match shape {
        Some(Shape::Text(_)) => Some(Node { value: Yaml::Text(source.text.clone()), at: whole }),
        _ => parse::document(source, faults),
    };
    let Some(mut node) = node else { return };
    match shape {
        Some(shape) => reveal(source, &node, shape),
        None => source.reveal_except(Vec::new()),
    }
    tree::refuse_duplicates(&mut node, &path.join("."), faults);
    insert(root, path, node);
}

fn insert(root: &mut Node, path: &[String], value: Node) {
    let Some((first, rest)) = path.split_first() else {
        *root = value;
        return;
    };
    if root.is_null() {
        root.value = Yaml::Map(Vec::new());
    }
    // Anything else that is no map stays: the check of the whole tree reports it.
    let Yaml::Map(entries) = &mut root.value else { return };
    let at = value.at.clone();
    let index = entries.iter().position(|entry| entry.key == *first).unwrap_or_else(|| {
        let empty = Node { value: Yaml::Null, at: at.clone() };
        entries.push(Entry { key: first.clone(), key_at: at.clone(), value: empty });
        entries.len() - 1
    });
    if rest.is_empty() {
        entries[index].key_at = at;
    }
    insert(&mut entries[index].value, rest, value);
}

/// Lets a source be shown, without the values that its shape calls secret.
fn reveal(source: &Arc<Source>, node: &Node, shape: &'static Shape) {
    let mut secrets = Vec::new();
    collect_secrets(node, shape, &mut secrets);
    source.reveal_except(secrets);
}

fn collect_secrets(node: &Node, shape: &'static Shape, secrets: &mut Vec<std::ops::Range<usize>>) {
    match (shape, &node.value) {
        (Shape::Map { .. } | Shape::Record(_), Yaml::Map(entries)) => {
            for entry in entries {
                match shape.below(std::slice::from_ref(&entry.key)) {
                    Some(_) if names_a_secret(&entry.key) => mask(&entry.value, secrets),
                    Some(shape) => collect_secrets(&entry.value, shape, secrets),
                    // A mistyped `api_key` holds a key all the same.
                    None => mask(&entry.value, secrets),
                }
            }
        }
        (_, Yaml::Text(text)) if text.contains("://") && text.contains('@') => mask(node, secrets),
        // What an extension's configuration means is not known here; a secret in the wrong form is one still.
        _ if shape.secret() => mask(node, secrets),
        _ => {}
    }
}

fn mask(node: &Node, secrets: &mut Vec<std::ops::Range<usize>>) {
    match &node.value {
        Yaml::Map(entries) => entries.iter().for_each(|entry| mask(&entry.value, secrets)),
        Yaml::List(list) => list.iter().for_each(|item| mask(item, secrets)),
        _ => secrets.push(node.at.start..node.at.start + node.at.len),
    }
}

/// Who set each value, by its dotted key. A list counts as one value.
pub(super) fn origins(node: &Node, path: &str, origins: &mut BTreeMap<String, ValueOrigin>) {
    match &node.value {
        Yaml::Map(entries) => {
            for entry in entries {
                self::origins(&entry.value, &join(path, &entry.key), origins);
            }
        }
        Yaml::Null => {}
        _ => {
            origins.insert(path.to_owned(), origin(&node.at));
        }
    }
}

fn origin(at: &At) -> ValueOrigin {
    match &at.source.origin {
        SourceOrigin::File(path) => ValueOrigin::File { path: path.clone(), line: at.line },
        SourceOrigin::Environment(name) => ValueOrigin::Environment(name.clone()),
        SourceOrigin::CommandLine(_) => ValueOrigin::CommandLine,
    }
}

/// Texts and lists with placeholders as they were written, by their dotted key.
pub(super) fn written(node: &Node, path: &str, texts: &mut BTreeMap<String, serde_json::Value>) {
    match &node.value {
        Yaml::Map(entries) => {
            for entry in entries {
                written(&entry.value, &join(path, &entry.key), texts);
            }
        }
        Yaml::Text(text) if text.contains("${") => {
            texts.insert(path.to_owned(), node.to_json());
        }
        Yaml::List(list) if list.iter().any(|item| item.text().is_some_and(|text| text.contains("${"))) => {
            texts.insert(path.to_owned(), node.to_json());
        }
        _ => {}
    }
}
