//! What extensions may do without the operator being asked: `approvals`, `reload` and `sandbox`.
//!
//! Nothing is decided here about one extension; the kernel does that, by what it knows of where it came from.

use std::collections::BTreeSet;

use drupe_extension_api::ExtensionId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::Value;

use crate::{
    Config, Diagnostics,
    approvals::{ApprovalMode, ApprovalRule, MOST_RULES, RULE},
    declare::keys,
    fields::Field,
    forms,
    shape::{EMPTY, Shape, each_its_own},
};

/// Each is looked for where a question goes out.
const MOST_PEOPLE: usize = 64;

const IDS: Shape = Shape::List(&Shape::Text(&forms::ID));

keys! {
    /// What may happen without being asked about.
    #[derive(PartialEq, Eq)]
    pub struct ApprovalsConfig in APPROVALS("`approvals`") {
        /// Which calls of tools a person is asked about where no rule says it.
        mode: ApprovalMode = "on-request" =>
            Shape::choice(&["on-request", "on-failure", "untrusted", "never", "full-access"]);
        /// Whether calls that reach out or destroy are asked about once strangers' text was read.
        taint: bool = true => Shape::Bool;
        /// The first rule that holds decides.
        rules: Vec<ApprovalRule> = EMPTY => Shape::AtMost(MOST_RULES, &Shape::List(&Shape::Record(&RULE)));
        /// Channels in which whoever writes may answer what is asked about calls in their own conversations.
        channels: Vec<ExtensionId> = EMPTY => IDS;
        /// People of channels, each as `channel/id`, who may answer what is asked about calls in conversations that they are in.
        people: Vec<String> = EMPTY => Shape::AtMost(MOST_PEOPLE, &Shape::List(&Shape::Text(&forms::PERSON)));
        /// Extensions that may be activated without asking, or the word `all`.
        preauthorized: Preauthorized = EMPTY =>
            Shape::WordOrList { word: "all", item: &Shape::Text(&forms::ID) };
    }
}

keys! {
    /// What changed extensions do to a running daemon.
    #[derive(Copy, PartialEq, Eq)]
    pub struct ReloadConfig in RELOAD("`reload`") {
        /// Whether changed folders without native code take effect while the daemon runs.
        declarative: bool = true => Shape::Bool;
        /// What a changed native library leads to: a message, or a drained restart.
        native: NativeReload = "announce" => Shape::choice(&["announce", "restart"]);
    }
}

keys! {
    /// How child processes are confined.
    #[derive(PartialEq, Eq)]
    pub struct SandboxConfig in SANDBOX("`sandbox`") {
        /// Lets child processes run where the operating system cannot confine them.
        allow_unconfined: bool = false => Shape::Bool;
        /// The processes that run extensions.
        hosts: HostsConfig = each_its_own() => Shape::Record(&HOSTS);
    }
}

keys! {
    /// The processes that run extensions.
    #[derive(PartialEq, Eq)]
    pub struct HostsConfig in HOSTS("`sandbox.hosts`") {
        /// Extensions whose process may use TCP.
        network: BTreeSet<ExtensionId> = EMPTY => IDS;
        /// Memory that each such process may use, in mebibytes.
        memory_mb: u32 = 1024 => Shape::Integer { min: 16, max: 65536 };
    }
}

/// A set of extensions: those that are listed, or all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preauthorized {
    Listed(BTreeSet<ExtensionId>),
    /// Every one, those that do not exist yet included.
    All,
}

impl Preauthorized {
    pub fn contains(&self, id: &ExtensionId) -> bool {
        match self {
            Self::Listed(ids) => ids.contains(id),
            Self::All => true,
        }
    }
}

impl Serialize for Preauthorized {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Listed(ids) => serializer.collect_seq(ids),
            Self::All => serializer.serialize_str("all"),
        }
    }
}

impl<'de> Deserialize<'de> for Preauthorized {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(_) => Ok(Self::All),
            list => serde_json::from_value(list).map(Self::Listed).map_err(D::Error::custom),
        }
    }
}

/// What a changed native library leads to; it is never replaced in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NativeReload {
    /// The change is told, and takes effect at the next restart.
    Announce,
    /// A drained restart is requested.
    Restart,
}

/// What the system does not confine must not run for being confined.
pub(super) fn refuse_unconfined_on_failure(root: &Field<'_>, config: &Config, faults: &mut Diagnostics) {
    if config.approvals.mode == ApprovalMode::OnFailure
        && config.sandbox.allow_unconfined
        && let Some(field) = root.get("approvals").and_then(|section| section.get("mode"))
    {
        let message = "`approvals.mode: on-failure` needs commands that are confined, and `sandbox.allow_unconfined` lets \
                       them run otherwise";
        faults
            .error("unconfined_on_failure", &field.node.at, &field.path, message)
            .help("remove `sandbox.allow_unconfined`, or write `mode: on-request`");
    }
}

/// `[all]` would be a list of one extension, and everybody who writes it means the word.
pub(super) fn refuse_listed_all(approvals: &Field<'_>, faults: &mut Diagnostics) {
    let written = approvals.get("preauthorized").filter(|field| field.node.text().is_none());
    let items = written.map(|_| approvals.items("preauthorized")).unwrap_or_default();
    if let Some(field) = items.iter().find(|field| field.node.text() == Some("all")) {
        let message = format!("`{}` is `all`, which is no extension's id", field.path);
        faults
            .error("reserved_id", &field.node.at, &field.path, message)
            .help("write `preauthorized: all` for every extension, or list ids");
    }
}
