//! An extension's configuration and secrets once `drupe.yaml` is known.

use std::{collections::BTreeMap, sync::Arc};

use drupe_json_schema::{Schema, Unfit};
use serde_json::{Map, Value};

use super::{BoundSecret, Manifest, read::undeclared};
use crate::{
    Config, Diagnostics, Overlay, Secret,
    overlay::{Unresolved, expand, where_to_define},
    source::At,
    tree::{self, Entry, Node, Yaml, join},
};

/// Bytes of the shortest secret that is taken out of texts.
const SHORTEST_BOUND: usize = 8;

impl Manifest {
    /// Whether the extension is to be loaded: `drupe.yaml` wins over the manifest.
    pub fn is_enabled(&self, config: &Config) -> bool {
        config.extensions.overrides.get(&self.id).and_then(|entry| entry.enabled).unwrap_or(self.enabled)
    }

    /// The configuration that holds: the manifest's under that of `drupe.yaml`, maps merged key by key, with
    /// placeholders resolved, and valid by the manifest's schema. Call it once at load; it may hold secrets.
    ///
    /// # Errors
    /// Every placeholder of the manifest that it does not declare, every one that has no value, and everything that the schema
    /// refuses, each at its place in the file that it came from.
    pub fn effective_config(&self, config: &Config) -> Result<Map<String, Value>, Diagnostics> {
        let mut faults = Diagnostics::default();
        let over = config.extensions.overrides.get(&self.id).and_then(|entry| entry.node.as_ref());
        let merged = match (&self.located.config, over) {
            (Some(base), Some(over)) => merge(base, over),
            (Some(only), None) | (None, Some(only)) => only.clone(),
            (None, None) => Node { value: Yaml::Map(Vec::new()), at: self.located.start.clone() },
        };
        let resolved = self.resolve(&merged, "config", &config.overlay, &mut faults);
        if faults.is_empty() {
            self.check_schema(&merged, &resolved.to_json(), &mut faults);
        }
        if faults.has_errors() { Err(faults.sorted()) } else { Ok(resolved.to_json_map()) }
    }

    /// The values of the secrets that it is handed, by name.
    ///
    /// # Errors
    /// Every declared name that has no value, bound ones too, with where to define it.
    pub fn resolve_secrets(&self, overlay: &Overlay) -> Result<BTreeMap<String, Secret>, Diagnostics> {
        let mut faults = Diagnostics::default();
        let mut values = BTreeMap::new();
        let mut short = Vec::new();
        let mut missing = |name: &str, at: Option<&At>, field: &str| {
            let at = at.unwrap_or(&self.located.start);
            let message = format!("the secret `{name}` is not defined; the extension `{}` needs it", self.id);
            let help = self.with_setup(where_to_define(name));
            faults.error("missing_variable", at, field, message).help(help);
        };
        for (index, name) in self.secrets.iter().enumerate() {
            match overlay.get(name) {
                Some(secret) => drop(values.insert(name.clone(), secret.clone())),
                None => missing(name, self.located.secrets.get(index), &format!("secrets[{index}]")),
            }
        }
        for (index, BoundSecret { name, optional, .. }) in self.bound_secrets.iter().enumerate() {
            let (at, field) = (self.located.bound.get(index), format!("bound_secrets[{index}]"));
            match overlay.get(name) {
                None if *optional => {}
                None => missing(name, at, &field),
                Some(secret) if secret.expose().trim().len() < SHORTEST_BOUND => {
                    short.push((name, at, field))
                }
                Some(_) => {}
            }
        }
        for (name, at, field) in short {
            let message = format!("the secret `{name}` has fewer than {SHORTEST_BOUND} bytes");
            faults
                .error("short_secret", at.unwrap_or(&self.located.start), &field, message)
                .help("what is shorter could not be taken out of the answers of servers that repeat it");
        }
        if faults.has_errors() { Err(faults) } else { Ok(values) }
    }

    /// The bound secrets that have a value, each with it.
    pub fn resolve_bound<'a>(
        &'a self,
        overlay: &'a Overlay,
    ) -> impl Iterator<Item = (&'a BoundSecret, &'a Secret)> + 'a {
        self.bound_secrets.iter().filter_map(|bound| Some((bound, overlay.get(&bound.name)?)))
    }

    fn bound(&self, name: &str) -> Option<&BoundSecret> {
        self.bound_secrets.iter().find(|bound| bound.name == name)
    }

    fn with_setup(&self, help: String) -> String {
        match &self.setup_instructions {
            Some(text) => format!("{help}. {}", text.trim()),
            None => help,
        }
    }

    pub(super) fn resolve(
        &self,
        node: &Node,
        path: &str,
        overlay: &Overlay,
        faults: &mut Diagnostics,
    ) -> Node {
        let value = match &node.value {
            Yaml::Text(text) => Yaml::Text(self.expand(text, &node.at, path, overlay, faults)),
            Yaml::List(list) => Yaml::List(
                list.iter()
                    .enumerate()
                    .map(|(index, item)| self.resolve(item, &tree::item(path, index), overlay, faults))
                    .collect(),
            ),
            Yaml::Map(entries) => Yaml::Map(
                entries
                    .iter()
                    .map(|entry| Entry {
                        value: self.resolve(&entry.value, &join(path, &entry.key), overlay, faults),
                        ..entry.clone()
                    })
                    .collect(),
            ),
            other => other.clone(),
        };
        Node { value, at: node.at.clone() }
    }

    fn expand(&self, text: &str, at: &At, path: &str, overlay: &Overlay, faults: &mut Diagnostics) -> String {
        // What the operator writes for an extension is theirs to give; its own manifest reaches what it declares.
        let given = !Arc::ptr_eq(&at.source, &self.located.start.source);
        // What is bound is handed over by nobody.
        let declared = |name: &str| {
            self.bound(name).is_none() && (given || self.secrets.iter().any(|secret| secret == name))
        };
        let lookup = |name: &str| if declared(name) { overlay.get(name) } else { None };
        match expand(text, lookup) {
            Ok(text) => text,
            Err(unresolved) => {
                for item in unresolved {
                    match item {
                        Unresolved::Missing(name) if !declared(&name) => {
                            undeclared(&name, self.bound(&name).is_some(), at, path, faults);
                        }
                        other => other.report(at, path, &format!("the extension `{}`", self.id), faults),
                    }
                }
                String::new()
            }
        }
    }

    fn check_schema(&self, merged: &Node, value: &Value, faults: &mut Diagnostics) {
        let Some(schema) = &self.config_schema else { return };
        let help = self.with_setup(format!("`config_schema` of `{}` asks for it", self.id));
        let unfit =
            Schema::new(schema).and_then(|schema| schema.unfit_secret(value)).unwrap_or_else(|reason| {
                let message = format!("`config` cannot be checked: {reason}");
                faults
                    .error("config_schema", &merged.at, "config", message)
                    .help("make the schema or the configuration smaller");
                Vec::new()
            });
        for Unfit { pointer, reason } in unfit {
            let (at, field) = find(merged, &pointer);
            faults.error("config_schema", &at, &field, format!("`{field}`: {reason}")).help(help.clone());
        }
    }
}

/// `over` on top of `base`: maps are merged, anything else is replaced.
fn merge(base: &Node, over: &Node) -> Node {
    let (Yaml::Map(entries), Yaml::Map(overrides)) = (&base.value, &over.value) else { return over.clone() };
    let mut merged: Vec<Entry> = entries.clone();
    for entry in overrides {
        match merged.iter_mut().find(|known| known.key == entry.key) {
            Some(known) => {
                *known = Entry { value: merge(&known.value, &entry.value), ..entry.clone() };
            }
            None => merged.push(entry.clone()),
        }
    }
    Node { value: Yaml::Map(merged), at: base.at.clone() }
}

/// The place and name of what a JSON pointer names; of the deepest part of it that exists.
fn find(root: &Node, pointer: &str) -> (At, String) {
    let (mut node, mut path) = (root, "config".to_owned());
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        let next = match &node.value {
            Yaml::List(list) => part.parse::<usize>().ok().and_then(|index| list.get(index)),
            _ => node.get(&part),
        };
        path = match &node.value {
            Yaml::List(_) => format!("{path}[{part}]"),
            _ => join(&path, &part),
        };
        let Some(next) = next else { break };
        node = next;
    }
    (node.at.clone(), path)
}
