//! What extensions may do without the operator being asked: `approvals`, `reload` and `sandbox`.
//!
//! Nothing is decided here about one extension; the kernel does that, by what it knows of where it came from.

use std::collections::BTreeSet;

use drupe_extension_api::ExtensionId;
use serde::Serialize;

use super::read::Reader;
use crate::{
    fields::{Field, Fields},
    tree::Yaml,
};

/// What may happen without being asked about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ApprovalsConfig {
    /// Extensions that may be activated without asking; by default none.
    pub preauthorized: Preauthorized,
}

/// A set of extensions: those that are listed, or all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preauthorized {
    /// These.
    Listed(BTreeSet<ExtensionId>),
    /// Every one, those that do not exist yet included.
    All,
}

impl Preauthorized {
    /// Whether an extension is among them.
    pub fn contains(&self, id: &ExtensionId) -> bool {
        match self {
            Self::Listed(ids) => ids.contains(id),
            Self::All => true,
        }
    }
}

impl Default for Preauthorized {
    fn default() -> Self {
        Self::Listed(BTreeSet::new())
    }
}

impl Serialize for Preauthorized {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Listed(ids) => serializer.collect_seq(ids),
            Self::All => serializer.serialize_str("all"),
        }
    }
}

/// What changed extensions do to a running daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ReloadConfig {
    /// Whether changed folders without native code take effect while the daemon runs; by default they do.
    pub declarative: bool,
    /// What a changed native library leads to.
    pub native: NativeReload,
}

impl Default for ReloadConfig {
    fn default() -> Self {
        Self { declarative: true, native: NativeReload::Announce }
    }
}

/// What a changed native library leads to; it is never replaced in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NativeReload {
    /// The change is told, and takes effect at the next restart.
    #[default]
    Announce,
    /// A drained restart is requested.
    Restart,
}

/// How child processes are confined.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SandboxConfig {
    /// Lets child processes run where the operating system cannot confine them; by default they are then absent.
    pub allow_unconfined: bool,
    /// The processes that run extensions.
    pub hosts: HostsConfig,
}

/// The processes that run extensions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostsConfig {
    /// Extensions whose process may use TCP; by default none.
    pub network: BTreeSet<ExtensionId>,
    /// Memory that each process may use, in mebibytes; 16 to 65536, by default 1024.
    pub memory_mb: u32,
}

impl Default for HostsConfig {
    fn default() -> Self {
        Self { network: BTreeSet::new(), memory_mb: 1024 }
    }
}

impl Reader<'_> {
    pub(super) fn approvals(&mut self, fields: Fields<'_>) -> ApprovalsConfig {
        let preauthorized = match fields.get("preauthorized").map(|field| &field.node.value) {
            Some(Yaml::Text(_)) => Preauthorized::All,
            _ => {
                self.refuse_listed_all(&fields);
                Preauthorized::Listed(ids(&fields, "preauthorized"))
            }
        };
        fields.done();
        ApprovalsConfig { preauthorized }
    }

    /// `[all]` would be a list of one extension, and everybody who writes it means the word.
    fn refuse_listed_all(&mut self, fields: &Fields<'_>) {
        let all = |field: &Field<'_>| field.node.text() == Some("all");
        if let Some(field) = fields.items("preauthorized").into_iter().find(all) {
            let message = format!("`{}` is `all`, which is no extension's id", field.path);
            self.faults
                .error("reserved_id", &field.node.at, &field.path, message)
                .help("write `preauthorized: all` for every extension, or list ids");
        }
    }
}

pub(super) fn reload(fields: Fields<'_>) -> ReloadConfig {
    let built_in = ReloadConfig::default();
    let reload = ReloadConfig {
        declarative: fields.bool("declarative").unwrap_or(built_in.declarative),
        native: match fields.text("native") {
            Some("restart") => NativeReload::Restart,
            _ => built_in.native,
        },
    };
    fields.done();
    reload
}

pub(super) fn sandbox(fields: Fields<'_>) -> SandboxConfig {
    let hosts = fields.within("hosts");
    let built_in = SandboxConfig::default();
    let sandbox = SandboxConfig {
        allow_unconfined: fields.bool("allow_unconfined").unwrap_or(built_in.allow_unconfined),
        hosts: HostsConfig {
            network: ids(&hosts, "network"),
            memory_mb: hosts.integer("memory_mb").unwrap_or(built_in.hosts.memory_mb),
        },
    };
    hosts.done();
    fields.done();
    sandbox
}

fn ids(fields: &Fields<'_>, key: &str) -> BTreeSet<ExtensionId> {
    fields.texts(key).iter().filter_map(|id| ExtensionId::new(id).ok()).collect()
}
