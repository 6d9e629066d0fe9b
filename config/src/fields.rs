//! Reading a checked map: each accessor gives the value of a key, or nothing.
//!
//! A value that does not have its declared shape was reported by the check and reads as nothing. A key that is
//! declared but that nobody reads would be accepted and ignored; debug builds refuse to finish such a reading.

use std::{cell::RefCell, collections::BTreeSet};

use crate::{
    Diagnostics,
    shape::{Shape, Table},
    tree::{Node, Yaml, item, join},
};

/// The fields of one map.
pub(crate) struct Fields<'a> {
    node: Option<&'a Node>,
    table: &'static Table,
    path: String,
    read: RefCell<BTreeSet<&'static str>>,
}

/// A value with its name.
#[derive(Clone)]
pub(crate) struct Field<'a> {
    pub node: &'a Node,
    pub path: String,
}

impl<'a> Fields<'a> {
    pub fn new(node: Option<&'a Node>, table: &'static Table, path: &str) -> Self {
        Self { node, table, path: path.to_owned(), read: RefCell::default() }
    }

    /// The name of the map with its parents.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A value as it is; empty ones count as absent.
    pub fn get(&self, key: &str) -> Option<Field<'a>> {
        let declared = self.table.key(key);
        debug_assert!(declared.is_some_and(|key| !key.later), "`{key}` is read, but not declared");
        self.read.borrow_mut().extend(declared.map(|key| key.name));
        let node = self.node?.get(key).filter(|node| !node.is_null())?;
        Some(Field { node, path: join(&self.path, key) })
    }

    pub fn bool(&self, key: &str) -> Option<bool> {
        match self.get(key)?.node.value {
            Yaml::Bool(value) => Some(value),
            _ => None,
        }
    }

    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key)?.node.text()
    }

    pub fn owned(&self, key: &str) -> Option<String> {
        self.text(key).map(str::to_owned)
    }

    /// A whole number; of one that its type cannot hold, nothing.
    pub fn integer<N: TryFrom<i128>>(&self, key: &str) -> Option<N> {
        match self.get(key)?.node.value {
            Yaml::Integer(value) => N::try_from(value).ok(),
            _ => None,
        }
    }

    pub fn number(&self, key: &str) -> Option<f64> {
        match self.get(key)?.node.value {
            Yaml::Float(value) => Some(value),
            Yaml::Integer(value) => Some(value as f64),
            _ => None,
        }
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

    /// The texts of a list, or of the one text in place of a list.
    pub fn texts(&self, key: &str) -> Vec<String> {
        self.items(key).iter().filter_map(|field| field.node.text().map(str::to_owned)).collect()
    }

    /// The entries of a map.
    pub fn entries(&self, key: &str) -> Vec<(&'a str, Field<'a>)> {
        let Some(field) = self.get(key) else { return Vec::new() };
        let named = |entry: &'a crate::tree::Entry| {
            (entry.key.as_str(), Field { node: &entry.value, path: join(&field.path, &entry.key) })
        };
        field.node.entries().iter().map(named).collect()
    }

    /// The entries whose keys the table does not list.
    pub fn others(&self) -> impl Iterator<Item = &'a crate::tree::Entry> {
        let entries = self.node.map(|node| node.entries()).unwrap_or_default();
        entries.iter().filter(|entry| self.table.key(&entry.key).is_none())
    }

    /// The fields of a map within; where it is absent, all its fields are.
    pub fn within(&self, key: &str) -> Fields<'a> {
        let node = self.get(key).map(|field| field.node);
        let table = match self.table.key(key).map(|key| &key.shape) {
            Some(Shape::Record(table)) => table,
            _ => {
                debug_assert!(false, "`{key}` is read as a map of known keys, but not declared so");
                &EMPTY
            }
        };
        Fields::new(node, table, &join(&self.path, key))
    }

    /// Ends the reading.
    pub fn done(self) {
        if cfg!(debug_assertions) {
            let read = self.read.borrow();
            let forgotten = self.table.keys.iter().find(|key| !key.later && !read.contains(key.name));
            let name = forgotten.map(|key| key.name);
            assert!(
                name.is_none(),
                "`{}` of {} is declared, but nobody reads it",
                name.unwrap_or(""),
                self.table.name
            );
        }
    }
}

/// The items of a list that may be no longer than `most`; of a longer one, which is a fault, the first.
pub(crate) fn bounded_items<'a>(
    fields: &Fields<'a>,
    key: &str,
    most: usize,
    faults: &mut Diagnostics,
) -> Vec<Field<'a>> {
    let mut items = fields.items(key);
    if let Some(extra) = items.get(most) {
        let message = format!("`{}` has {} items; {most} are taken", join(&fields.path, key), items.len());
        faults.error("too_many", &extra.node.at, &extra.path, message).help("split it, or remove some");
        items.truncate(most);
    }
    items
}

static EMPTY: Table = Table { name: "nothing", keys: &[], rest: None };
