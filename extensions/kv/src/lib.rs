//! Values under keys. Provides `kv_get`, `kv_set`, `kv_delete` and `kv_list`; each agent has a namespace of its
//! own, unless the configuration says `namespace: shared`, and each turn has one that its agents share. What is stored where text
//! of strangers was read says so to whoever reads it later.
//!
//! It keeps no history and no expiry, and is no place for secrets: values reach models as they are.

mod namespace;
mod store;

use std::sync::Arc;

use drupe_extension_api::prelude::*;
use namespace::{Bounds, Namespace, matches};
use serde_json::Value;
use store::{Place, Store};

struct Kv {
    host: Host,
    shared: bool,
    store: Arc<Store>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    namespace: Sharing,
    max_value_bytes: usize,
    max_keys: usize,
    max_bytes: usize,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Sharing {
    Agent,
    Shared,
}

impl Default for Config {
    fn default() -> Self {
        Self { namespace: Sharing::Agent, max_value_bytes: 64 << 10, max_keys: 1000, max_bytes: 4 << 20 }
    }
}

impl Extension for Kv {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let config: Config = host.config()?;
        let bounds =
            Bounds { value_bytes: config.max_value_bytes, keys: config.max_keys, bytes: config.max_bytes };
        let store = Arc::new(Store::new(host.data_folder(), bounds));
        Ok(Kv { shared: config.namespace == Sharing::Shared, host, store })
    }
}

/// How long a value is kept, and who sees it.
#[derive(Deserialize, JsonSchema, Default, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Scope {
    /// Until it is deleted.
    #[default]
    Kept,
    /// Until the turn ends; all agents of the turn see it.
    Turn,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Key {
    /// The key, 1 to 256 bytes.
    key: String,
    /// `kept` (default), or `turn` for what all agents of this turn share.
    #[serde(default)]
    scope: Scope,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Set {
    /// The key, 1 to 256 bytes.
    key: String,
    /// The value: text, or any JSON.
    value: Value,
    /// `kept` (default), or `turn` for what all agents of this turn share.
    #[serde(default)]
    scope: Scope,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// Only keys of this form; `*` stands for any text. Without it, all keys.
    #[serde(default)]
    pattern: Option<String>,
    /// `kept` (default), or `turn` for what all agents of this turn share.
    #[serde(default)]
    scope: Scope,
}

impl ToolProvider for Kv {
    fn tools(&self) -> Vec<Tool<Self>> {
        vec![
            Tool::new("kv_get", "Gives the value stored under a key.", Kv::get).read_only(),
            Tool::new("kv_set", "Stores a value under a key, in place of what was there.", Kv::set)
                .idempotent(),
            Tool::new("kv_delete", "Removes a key and its value.", Kv::delete).idempotent(),
            Tool::new("kv_list", "Lists the keys that are stored.", Kv::list).read_only(),
        ]
    }
}

export!(Kv: Tool);

impl Kv {
    async fn get(&self, input: Key, call: Call) -> Result<Value, Fault> {
        let key = input.key;
        let missing =
            Fault::not_found(format!("nothing is stored under `{key}`")).help("kv_list shows the keys");
        let found = move |namespace: &Namespace| {
            namespace.values().get(&key).map(|value| (value.clone(), namespace.is_of_strangers(&key)))
        };
        let (value, strangers) = self.read(input.scope, &call, found).await?.ok_or(missing)?;
        if strangers {
            call.read_untrusted();
        }
        Ok(value)
    }

    async fn set(&self, input: Set, call: Call) -> Result<String, Fault> {
        let Set { key, value, scope } = input;
        let stored = format!("stored `{key}`");
        let strangers = call.tainted;
        self.with(scope, &call, move |store, place| store.set(place, key, value, strangers)).await?;
        Ok(stored)
    }

    async fn delete(&self, input: Key, call: Call) -> Result<String, Fault> {
        let Key { key, scope } = input;
        let name = key.clone();
        Ok(match self.with(scope, &call, move |store, place| store.delete(place, &key)).await? {
            true => format!("deleted `{name}`"),
            false => format!("nothing was stored under `{name}`"),
        })
    }

    async fn list(&self, input: List, call: Call) -> Result<Vec<String>, Fault> {
        let all = |namespace: &Namespace| {
            let marked = |key: &String| (key.clone(), namespace.is_of_strangers(key));
            namespace.values().keys().map(marked).collect::<Vec<_>>()
        };
        let mut keys = self.read(input.scope, &call, all).await?;
        if let Some(pattern) = input.pattern {
            keys.retain(|(key, _)| matches(&pattern, key));
        }
        if keys.iter().any(|(_, strangers)| *strangers) {
            call.read_untrusted();
        }
        Ok(keys.into_iter().map(|(key, _)| key).collect())
    }

    /// Reads a namespace: here if it is in memory, else as [`with`](Self::with) does.
    async fn read<T: Send + 'static>(
        &self,
        scope: Scope,
        call: &Call,
        read: impl Fn(&Namespace) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        match self.store.read_at_once(&self.place(scope, call), &read) {
            Some(found) => Ok(found),
            None => self.with(scope, call, move |store, place| store.read(place, read)).await,
        }
    }

    /// Works on the store where waiting for a disk holds nobody up.
    async fn with<T: Send + 'static>(
        &self,
        scope: Scope,
        call: &Call,
        work: impl FnOnce(&Store, &Place) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let (store, place) = (self.store.clone(), self.place(scope, call));
        self.host.blocking(move || work(&store, &place)).await
    }

    fn place(&self, scope: Scope, call: &Call) -> Place {
        match scope {
            Scope::Turn => Place::Turn(call.turn.clone()),
            Scope::Kept if self.shared => Place::Shared,
            Scope::Kept => Place::Agent(call.agent.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
