//! `manifest.yaml`: what an extension is.
//!
//! What needs the other extensions (unknown ids, cycles, names of tools) is left to the kernel's wiring, what
//! needs the library (its capabilities) to the loader.

mod agent;
mod agent_file;
mod dialect;
mod effective;
mod keys;
mod offline;
mod read;
mod subscriptions;

use std::{collections::BTreeSet, fmt, path::PathBuf};

use drupe_extension_api::{
    AgentId, DefinitionLimits, ExtensionId, Format, IntegrationMode, ModelParameters, OfflineRule,
    OutputSpec, ToolName,
};
use serde::Serialize;
use serde_json::{Map, Value};

pub(crate) use agent::context as read_context;
pub use agent_file::load_agent_file;
pub(crate) use keys::MANIFEST;
pub use read::load_manifest;
pub use subscriptions::Subscription;

use crate::{AgentDefaults, Instructions, PartialLimits, agent_keys, source::At, tree::Node};

/// A validated manifest.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// Equals the name of the folder, or of the file without its ending.
    pub id: ExtensionId,
    /// For people.
    pub name: String,
    /// Of the extension.
    pub version: semver::Version,
    /// One line for people.
    pub summary: String,
    /// For the model that routes; never empty for an agent.
    pub description: String,
    /// File stem or path inside the folder of the native library; none for a declarative agent.
    pub entrypoint: Option<String>,
    /// Where native code runs, where the manifest says it; what holds otherwise depends on where the extension lives.
    pub isolation: Option<Isolation>,
    /// Ordered before this one; never itself.
    pub depends_on: Vec<ExtensionId>,
    /// The only variables that the extension can ask for.
    pub secrets: Vec<String>,
    /// Configuration as the manifest has it, placeholders unresolved; see [`Manifest::effective_config`].
    pub config: Map<String, Value>,
    /// JSON Schema of the configuration; it compiles.
    pub config_schema: Option<Value>,
    /// Shown when a secret or a configuration key is missing.
    pub setup_instructions: Option<String>,
    /// Who is offered its tools.
    pub scope: Scope,
    /// Host services beyond its own affairs.
    pub rights: BTreeSet<Right>,
    /// Messages upon which the agent is run, each topic once; empty where there is no agent.
    pub subscribe: Vec<Subscription>,
    /// Whether it is to be loaded; `extensions.<id>.enabled` of `drupe.yaml` overrides it.
    pub enabled: bool,
    /// Lets it replace a shipped extension of the same id.
    pub overrides: bool,
    /// Present for an agent.
    pub agent: Option<AgentSection>,
    /// The folder that holds it, absolute, with links resolved. Of an agent that is a single file, the file: nothing
    /// lies beneath it.
    pub folder: PathBuf,
    /// For the faults that only show once the configuration is merged.
    located: Located,
}

#[derive(Debug, Clone)]
struct Located {
    start: At,
    config: Option<Node>,
    secrets: Vec<At>,
}

/// What makes an extension an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentSection {
    /// How the orchestrator uses it.
    pub integration_mode: IntegrationMode,
    /// In order of preference; empty means the defaults' model, for native agents and single files only.
    pub models: Vec<String>,
    /// The system prompt; always present for a declarative agent.
    pub instructions: Option<Instructions>,
    /// Given to the model before the task, as data.
    pub context: Vec<ContextSource>,
    /// What the manifest sets; see [`AgentSection::parameters_over`].
    pub parameters: ModelParameters,
    /// The allowlist; empty means no tool of another extension.
    pub uses_tools: Vec<ToolSelector>,
    /// Agents that it may call; never itself.
    pub uses_agents: Vec<AgentId>,
    /// The form of its task.
    pub input: Option<InputSpec>,
    /// The form of its answer; its schema compiles.
    pub output: Option<OutputSpec>,
    /// An example input, shown in help.
    pub usage: Option<String>,
    /// The name offered to models in place of `agent_<id>`.
    pub tool_name: Option<ToolName>,
    /// `false`: only an explicit choice or an agent that lists it reaches it.
    pub infer: bool,
    /// What the manifest sets; see [`AgentSection::limits_over`].
    pub limits: PartialLimits,
    /// What the offline model does for this agent; every expression compiles.
    pub offline: Vec<OfflineRule>,
}

impl AgentSection {
    /// The limits that hold: the manifest's over the defaults' over the built-in ones.
    pub fn limits_over(&self, defaults: &AgentDefaults) -> DefinitionLimits {
        self.limits.over(&defaults.limits.over(&DefinitionLimits::default()))
    }

    /// The parameters that hold: the manifest's over the defaults'.
    pub fn parameters_over(&self, defaults: &AgentDefaults) -> ModelParameters {
        agent_keys::parameters_over(&self.parameters, &defaults.parameters)
    }

    /// The models that hold: the manifest's, or the defaults'.
    pub fn models_over(&self, defaults: &AgentDefaults) -> Vec<String> {
        if self.models.is_empty() { defaults.models.clone() } else { self.models.clone() }
    }
}

/// A piece of an agent's default context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextSource {
    /// The text itself.
    Inline(String),
    /// A file beneath the extension's folder or the home; absolute, with links resolved.
    File(PathBuf),
}

/// One entry of `uses_tools`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ToolSelector {
    /// Whose tools.
    pub extension: ExtensionId,
    /// One tool of it; none means all.
    pub tool: Option<ToolName>,
}

impl fmt::Display for ToolSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tool {
            Some(tool) => write!(f, "{}/{tool}", self.extension),
            None => write!(f, "{}", self.extension),
        }
    }
}

/// The form of an agent's task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InputSpec {
    /// Text or JSON.
    pub format: Format,
    /// JSON Schema of a JSON task; it compiles.
    pub schema: Option<Value>,
}

/// Where native code runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Isolation {
    /// In a process of its own, confined.
    Process,
    /// In the kernel's process.
    Inproc,
}

impl Isolation {
    /// The word in manifests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inproc => "inproc",
            Self::Process => "process",
        }
    }
}

/// Who is offered an extension's tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The orchestrator, and agents that list the extension.
    Shared,
    /// Agents that list the extension, and nobody else.
    Agents,
}

/// What an extension may do beyond its own affairs only with this right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Right {
    /// Hand in inbound messages.
    Submit,
    /// Use the control API.
    Control,
    /// Ask for a restart.
    Restart,
    /// Start child processes, each confined.
    Processes,
    /// Use TCP from a process of its own.
    Network,
}
