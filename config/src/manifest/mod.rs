//! `manifest.yaml`: what an extension is.
//!
//! What needs the other extensions (unknown ids, cycles, names of tools) is left to the kernel's wiring, what
//! needs the library (its capabilities) to the loader.

mod adopted;
mod agent;
mod agent_file;
mod bound;
mod dialect;
mod effective;
mod offline;
mod read;
mod schedules;
mod servers;
mod subscriptions;
mod template;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    str::FromStr,
};

use drupe_extension_api::{
    AgentId, DefinitionLimits, ExtensionId, Format, IntegrationMode, ModelParameters, OfflineRule,
    OutputSpec, ToolName,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::{Map, Value};

pub use adopted::{AdoptedAgent, adopt_agent};
pub(crate) use agent::context as read_context;
pub use agent_file::load_agent_file;
pub use bound::BoundSecret;
pub use dialect::counterpart;
pub use read::load_manifest;
pub use schedules::{MisfireChoice, OverlapChoice, ScheduleConfig, UnfitSchedule};
pub use servers::{AgentMcpServer, McpServerTools};
pub use subscriptions::Subscription;
pub use template::{agent_template, new_agent};

use crate::{
    AgentApprovals, AgentDefaults, Instructions, PartialLimits, agent_keys, approvals,
    declare::keys,
    forms,
    shape::{EMPTY, Key, Shape, Table, each_its_own},
    source::At,
    tree::Node,
};

/// The most names of secrets, ids in one list of other extensions or agents, and topics. The question to the operator names
/// each of them, and a person must be able to read it.
const MAX_SECRETS: usize = 64;
const MAX_OTHERS: usize = 64;
/// More than that is a program, which follows topics in code.
const MAX_TOPICS: usize = 32;
/// Folders that programs may read. All of them are a part of what the operator is asked.
const MAX_PROGRAM_FOLDERS: usize = 16;
/// Skills of one agent: its prompt has a line for each.
const MAX_SKILLS: usize = 64;
/// Sockets that are opened for its code.
const MAX_SOCKETS: usize = 4;
/// Models that are tried in order.
const MAX_MODELS: usize = 16;
/// Entries of `uses_tools`. Each may be a line of what the operator is asked.
const MAX_TOOLS: usize = 128;
/// Each is looked for and looked at, and all of them go into every request.
const MAX_CONTEXT_FILES: usize = 64;
/// The rules are tried one after another, and names of one are known to those after it.
const MAX_RULES: usize = 256;

const OTHERS: Shape = Shape::AtMost(MAX_OTHERS, &Shape::List(&Shape::Text(&forms::ID)));
/// Stands in for an id that was refused.
const NO_ID: &str = "refused";

keys! {
    /// A validated manifest.
    pub struct Manifest in MANIFEST("the manifest") {
        /// Version of the manifest's form.
        api (skip_serializing): u32 = 1 => Shape::Integer { min: 1, max: u32::MAX as u64 };
        /// The extension's id, equal to the name of its folder.
        id: ExtensionId = NO_ID => Shape::Text(&forms::ID), required;
        /// The extension's name, for people.
        name: String = "" => Shape::Text(&forms::NON_EMPTY), required;
        /// Version of the extension.
        version: semver::Version = "1.0.0" => Shape::Text(&forms::VERSION);
        /// One line for people.
        summary: String = "" => Shape::Text(&forms::ANY);
        /// For the model that routes: when to use it, when not to, what it can do.
        description: String = "" => Shape::Text(&forms::ANY);
        /// The native library: its file stem, or its path inside the folder; optional for agents only.
        entrypoint: Option<String> => Shape::Text(&forms::NON_EMPTY);
        /// Where native code runs: in a process of its own, or inside the kernel; absent: inside the kernel for shipped
        /// extensions only.
        isolation: Option<Isolation> => Shape::choice(&["process", "inproc"]);
        /// Extensions that must be active before this one.
        depends_on: Vec<ExtensionId> = EMPTY => OTHERS;
        /// The only variables that this extension can ask for; each must have a value.
        secrets: Vec<String> = EMPTY =>
            Shape::AtMost(MAX_SECRETS, &Shape::List(&Shape::Text(&forms::VARIABLE)));
        /// Secrets that it is not handed: they are filled into its requests to these hosts on the way out.
        bound_secrets: Vec<BoundSecret> = EMPTY =>
            Shape::AtMost(MAX_SECRETS, &Shape::List(&Shape::Record(&bound::BOUND_SECRET)));
        /// Configuration; `extensions.<id>` of drupe.yaml overrides it.
        config: Map<String, Value> = each_its_own() => Shape::Open;
        /// JSON Schema of the configuration.
        config_schema: Option<Value> => Shape::Open;
        /// Shown when a secret or a configuration key is missing.
        setup_instructions: Option<String> => Shape::Text(&forms::ANY);
        /// Who is offered its tools: the orchestrator and agents that list it, or those agents only.
        scope: Scope = "shared" => Shape::choice(&["shared", "agents"]);
        /// Who is answered that writes in its channel: anybody, or those alone whom the operator let in.
        senders: Senders = "any" => Shape::choice(&["any", "known"]);
        /// Host services beyond the extension's own affairs, and TCP from a process of its own.
        rights: BTreeSet<Right> = EMPTY => Shape::List(&Shape::choice(
            &["submit", "control", "operate", "restart", "processes", "network", "secure_input", "embed", "send_files"],
        ));
        /// Folders of the operator's that programs which it starts may read, beside the system's.
        program_folders: Vec<String> = EMPTY =>
            Shape::AtMost(MAX_PROGRAM_FOLDERS, &Shape::List(&Shape::Text(&forms::FOLDER)));
        /// Keys of its configuration, each the address of a socket that the daemon opens and hands to its code.
        listen: Vec<String> = EMPTY => Shape::AtMost(MAX_SOCKETS, &Shape::List(&Shape::Text(&forms::VARIABLE)));
        /// Whether it is loaded.
        enabled: bool = true => Shape::Bool;
        /// Lets it replace a shipped extension of the same id.
        overrides: bool = false => Shape::Bool;
        /// Makes the extension an agent.
        agent: Option<AgentSection> => Shape::Record(&AGENT);
        /// Messages upon which the agent is run.
        subscribe: Vec<Subscription> = EMPTY =>
            Shape::AtMost(MAX_TOPICS, &Shape::List(&Shape::Record(&subscriptions::SUBSCRIPTION)));
        /// What is done at set times.
        schedules: Vec<ScheduleConfig> = EMPTY =>
            Shape::AtMost(schedules::MAX_SCHEDULES, &Shape::List(&Shape::Record(&schedules::SCHEDULE)));
        /// Folders beneath its own, each a skill that the agent has, and nobody else.
        skills: Vec<String> = EMPTY => Shape::AtMost(MAX_SKILLS, &Shape::List(&Shape::Text(&forms::BENEATH)));
        /// MCP servers whose tools the agent has, and nobody else.
        mcp_servers: BTreeMap<String, AgentMcpServer> = each_its_own() =>
            Shape::Map { key: &forms::SERVER, value: &Shape::Record(&servers::MCP_SERVER) };
    }
    beside {
        /// The folder that holds it, absolute, with links resolved. Of an agent that is a single file, the file: nothing
        /// lies beneath it.
        #[serde(skip)]
        pub folder: PathBuf,
        /// For the faults that only show once the configuration is merged.
        #[serde(skip)]
        located: Located,
    }
}

#[derive(Debug, Clone)]
struct Located {
    start: At,
    config: Option<Node>,
    servers: Option<Node>,
    secrets: Vec<At>,
    bound: Vec<At>,
}

impl Default for Located {
    fn default() -> Self {
        Self { start: At::nowhere(), config: None, servers: None, secrets: Vec::new(), bound: Vec::new() }
    }
}

keys! {
    /// What makes an extension an agent.
    #[derive(PartialEq)]
    pub struct AgentSection in AGENT("`agent`") {
        /// How the orchestrator uses the agent.
        integration_mode: IntegrationMode = "tool" => Shape::choice(&["tool", "handoff"]);
        /// How long it may keep a conversation that it has taken over.
        handoff: HandoffSection = each_its_own() => Shape::Record(&HANDOFF);
        /// A model, an alias, or a list to try in order.
        models as "model" (default): Vec<String> =>
            Shape::AtMost(MAX_MODELS, &Shape::OneOrMany(&Shape::Text(&forms::MODEL)));
        /// The system prompt, or a path ending in .jinja2, .j2, .md or .txt.
        instructions (skip_deserializing): Option<Instructions> => Shape::Text(&forms::ANY);
        /// Given to the model before the task, as data: a text, or a list of files.
        context (skip_deserializing): Vec<ContextSource> = EMPTY =>
            Shape::AtMost(MAX_CONTEXT_FILES, &Shape::OneOrMany(&Shape::Text(&forms::NON_EMPTY)));
        /// How the model is asked.
        parameters (default): ModelParameters => Shape::Record(&agent_keys::PARAMETERS);
        /// The extensions whose tools it may use, or `id/tool_name` for one tool; empty: none.
        uses_tools: Vec<ToolSelector> = EMPTY =>
            Shape::AtMost(MAX_TOOLS, &Shape::List(&Shape::Text(&forms::SELECTOR)));
        /// Agents that it may call.
        uses_agents: Vec<AgentId> = EMPTY => OTHERS;
        /// The form of its task.
        input: Option<InputSpec> => Shape::Record(&INPUT);
        /// The form of its answer.
        output: Option<OutputSpec> => Shape::Record(&OUTPUT);
        /// An example input, shown in help.
        usage: Option<String> => Shape::Text(&forms::ANY);
        /// The name offered to models in place of `agent_<id>`.
        tool_name: Option<ToolName> => Shape::Text(&forms::TOOL_NAME);
        /// `false`: only an explicit choice or an agent that lists it reaches it.
        infer: bool = true => Shape::Bool;
        /// Whether clients of the HTTP APIs may bring tools of their own along; absent: as `agents.defaults` has it.
        client_tools: Option<bool> => Shape::Bool;
        /// What a run may spend.
        limits: PartialLimits = each_its_own() => Shape::Record(&agent_keys::LIMITS);
        /// What its calls, and those of agents that it calls, are asked about beyond what the configuration says.
        approvals: AgentApprovals = each_its_own() => Shape::Record(&approvals::AGENT_APPROVALS);
        /// What the offline model does for this agent; the first rule that matches acts.
        offline (skip_deserializing): Vec<OfflineRule> = EMPTY =>
            Shape::AtMost(MAX_RULES, &Shape::List(&Shape::Record(&offline::OFFLINE)));
    }
}

keys! {
    /// How long an agent of the mode `handoff` may keep a conversation. Whatever comes first gives it back.
    #[derive(Copy, PartialEq, Eq)]
    pub struct HandoffSection in HANDOFF("`agent.handoff`") {
        /// Messages that it answers at most.
        max_turns: u32 = 20 => Shape::Integer { min: 1, max: 1000 };
        /// Tokens that these take together, those of sub-agents included.
        max_tokens: u64 = 200_000 => Shape::Integer { min: 1, max: 100_000_000 };
        /// Minutes since it took the conversation over.
        max_minutes: u32 = 240 => Shape::Integer { min: 1, max: 10_080 };
        /// Minutes without a message of the user.
        idle_minutes: u32 = 60 => Shape::Integer { min: 1, max: 10_080 };
    }
}

impl Default for HandoffSection {
    fn default() -> Self {
        let defaults = Value::Object(HANDOFF.defaults(None));
        serde_json::from_value(defaults).expect("each key has a default of its type")
    }
}

impl AgentSection {
    /// The limits that hold: the manifest's over the defaults' over the built-in ones.
    pub fn limits_over(&self, defaults: &AgentDefaults) -> DefinitionLimits {
        self.limits.over(&defaults.limits)
    }

    /// The parameters that hold: the manifest's over the defaults'.
    pub fn parameters_over(&self, defaults: &AgentDefaults) -> ModelParameters {
        agent_keys::parameters_over(&self.parameters, &defaults.parameters)
    }

    /// Whether clients may bring tools of their own along: the manifest's word, or the defaults'.
    pub fn client_tools_over(&self, defaults: &AgentDefaults) -> bool {
        self.client_tools.unwrap_or(defaults.client_tools)
    }

    /// The models that hold: the manifest's, or the defaults'.
    pub fn models_over(&self, defaults: &AgentDefaults) -> Vec<String> {
        if self.models.is_empty() { defaults.models.clone() } else { self.models.clone() }
    }
}

/// A piece of an agent's default context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContextSource {
    Inline(String),
    /// A file beneath the extension's folder or the home; absolute, with links resolved.
    File(PathBuf),
}

impl Serialize for ContextSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Inline(text) => serializer.serialize_str(text),
            Self::File(path) => serializer.serialize_str(&path.to_string_lossy()),
        }
    }
}

/// One entry of `uses_tools`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ToolSelector {
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

impl FromStr for ToolSelector {
    type Err = drupe_extension_api::InvalidId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (extension, tool) = match text.split_once('/') {
            Some((extension, tool)) => (extension, Some(ToolName::new(tool)?)),
            None => (text, None),
        };
        Ok(Self { extension: ExtensionId::new(extension)?, tool })
    }
}

impl Serialize for ToolSelector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ToolSelector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

keys! {
    /// The form of an agent's task.
    #[derive(PartialEq)]
    pub struct InputSpec in INPUT("the input") {
        /// Text or JSON.
        format: Format = "text" => Shape::choice(&["text", "json"]);
        /// JSON Schema of a JSON task.
        schema: Option<Value> => Shape::Open;
    }
}

/// The keys of [`OutputSpec`], which is a type of others.
static OUTPUT: Table = Table {
    name: "the output",
    keys: &[
        Key::new("format", "text, markdown or JSON", Shape::choice(&["text", "markdown", "json"]))
            .default(|| serde_json::json!(Format::default())),
        Key::new("schema", "JSON Schema of a JSON answer", Shape::Open),
    ],
    rest: None,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Isolation {
    /// In a process of its own, confined.
    Process,
    Inproc,
}

impl Isolation {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inproc => "inproc",
            Self::Process => "process",
        }
    }
}

/// Who is offered an extension's tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The orchestrator, and agents that list the extension.
    Shared,
    /// Agents that list the extension, and nobody else.
    Agents,
}

/// Who is answered that writes in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Senders {
    Any,
    /// Those whom the operator let in, or whom `allowed` of its configuration names.
    Known,
}

/// What an extension may do beyond its own affairs only with this right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Right {
    Submit,
    Control,
    /// What only an operator may, for the bearer of a token who may, and never for itself.
    Operate,
    Restart,
    /// Start child processes, each confined.
    Processes,
    /// Use TCP from a process of its own.
    Network,
    /// Have people fill in what its calls need, and secrets.
    SecureInput,
    /// Have the daemon's model make vectors of texts, on behalf of its calls, which are charged for it.
    Embed,
    /// Send files of the workspace to whoever wrote in the conversation of a call.
    SendFiles,
}
