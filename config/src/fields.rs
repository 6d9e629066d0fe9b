//! A value of a file with its name: for checks that need its place.

use crate::tree::{Node, Yaml, item, join};

/// A value with its name.
#[derive(Clone)]
pub(crate) struct Field<'a> {
    pub node: &'a Node,
    /// Its key with those of the maps around it.
    pub path: String,
}

impl<'a> Field<'a> {
    pub fn root(node: &'a Node) -> Self {
        Self { node, path: String::new() }
    }

    /// The value of a key; an empty one counts as absent.
    pub fn get(&self, key: &str) -> Option<Field<'a>> {
        let node = self.node.get(key).filter(|node| !node.is_null())?;
        Some(Field { node, path: join(&self.path, key) })
    }

    /// The text of a key, where it is text.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key)?.node.text()
    }

    /// The items of a list, or the one value that stands in place of a list.
    pub fn items(&self, key: &str) -> Vec<Field<'a>> {
        let Some(field) = self.get(key) else { return Vec::new() };
        match &field.node.value {
            Yaml::List(list) => list
                .iter()
                .enumerate()
                .map(|(index, node)| Field { node, path: item(&field.path, index) })
                .collect(),
            Yaml::Map(_) => Vec::new(),
            _ => vec![field],
        }
    }

    pub fn entries(&self, key: &str) -> Vec<(&'a str, Field<'a>)> {
        let Some(field) = self.get(key) else { return Vec::new() };
        let entries = field.node.entries().iter();
        let named = entries.map(|entry| {
            (entry.key.as_str(), Field { node: &entry.value, path: join(&field.path, &entry.key) })
        });
        named.collect()
    }
}
