//! Values that stand for what another system wrote otherwise, at the places where it was written.

use crate::{
    source::At,
    tree::{Entry, Node, Yaml},
};

pub(super) fn text(text: &str, at: &At) -> Node {
    Node { value: Yaml::Text(text.to_owned()), at: at.clone() }
}

pub(super) fn list(items: Vec<Node>, at: &At) -> Node {
    Node { value: Yaml::List(items), at: at.clone() }
}

pub(super) fn map(entries: Vec<(&str, Node)>, at: &At) -> Node {
    let mut map = Node { value: Yaml::Map(Vec::new()), at: at.clone() };
    for (key, value) in entries {
        push(&mut map, key, at, value);
    }
    map
}

pub(super) fn bool(value: bool, at: &At) -> Node {
    Node { value: Yaml::Bool(value), at: at.clone() }
}

pub(super) fn integer(value: i128, at: &At) -> Node {
    Node { value: Yaml::Integer(value), at: at.clone() }
}

/// Of what is no map nothing becomes one.
pub(super) fn push(map: &mut Node, key: &str, key_at: &At, value: Node) {
    if let Yaml::Map(entries) = &mut map.value {
        entries.push(Entry { key: key.to_owned(), key_at: key_at.clone(), value });
    }
}
