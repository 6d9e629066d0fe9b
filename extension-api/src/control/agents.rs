//! Agents, as they are listed and shown.

use serde::{Deserialize, Serialize};

use crate::AgentId;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentStatus {
    pub id: AgentId,
    /// For people.
    pub name: String,
    /// For models.
    pub description: String,
    /// `tool` or `handoff`.
    pub mode: crate::IntegrationMode,
    /// The model that answers for it.
    pub model: Option<String>,
    /// The tools that it may use.
    pub tools: Vec<String>,
    /// Whether the orchestrator may choose it.
    pub infer: bool,
    /// An example input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<String>,
    /// The JSON Schema of its task, where its task is JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<serde_json::Value>,
    /// The form of its answer, where it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<crate::OutputSpec>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentDetail {
    #[serde(flatten)]
    pub status: AgentStatus,
    /// What a run may spend.
    pub limits: crate::DefinitionLimits,
    /// Tools that it named or that exist, and why it does not have them.
    pub excluded: Vec<Exclusion>,
    /// What its tools add to its requests, the largest first.
    #[serde(default)]
    pub sizes: Vec<ToolSize>,
}

/// Which agent's template; none: that of an agent that is to be written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TemplateQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// An agent as it would be written, with the values that hold and comments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentTemplate {
    /// As the `manifest.yaml` of a folder.
    pub manifest: String,
    /// As a single file; none for one with native code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontmatter: Option<String>,
}

/// What a tool adds to each request that offers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolSize {
    pub tool: String,
    pub extension: String,
    /// Bytes of its name, its description, its schema and its instructions.
    pub bytes: u64,
    /// Whether the model has a line of it, and the rest once it asks.
    #[serde(default)]
    pub on_demand: bool,
}

/// A tool that an agent does not have, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exclusion {
    pub tool: String,
    pub reason: String,
}

/// A skill that the orchestrator can load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkillStatus {
    pub name: String,
    /// For models: what it is for, and when to use it.
    pub description: String,
    /// For people: what it is called, where its folder says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// For people: what it is for, where its folder says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_description: Option<String>,
    /// Its folder, as an absolute path.
    pub folder: String,
    /// SHA-256, in hex, over all that lies in its folder.
    #[serde(default)]
    pub hash: String,
    /// The tools that it leaves a run, as it names them; absent where it leaves all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
}
