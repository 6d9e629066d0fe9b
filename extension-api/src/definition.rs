//! What an agent is, as data: the one form for orchestrator, declarative agents and native ones that run the loop.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{AgentId, Fault, OfflineRule};

/// An immutable description of an agent.
///
/// A native agent hands one to `run_agent`; the tools that the run may use are then its extension's own and
/// those resolved from its manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// Whose run it is, in events and accounting.
    pub id: AgentId,
    /// For people.
    #[serde(default)]
    pub name: String,
    /// For the model that routes.
    #[serde(default)]
    pub description: String,
    /// The system prompt, rendered.
    #[serde(default)]
    pub instructions: String,
    /// Text given before the task, delimited as data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
    /// Models in order of preference; empty means the default model.
    #[serde(default)]
    pub models: Vec<String>,
    /// How the model is asked.
    #[serde(default)]
    pub parameters: ModelParameters,
    /// The form of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputSpec>,
    /// What a run may spend.
    #[serde(default)]
    pub limits: DefinitionLimits,
    /// What the offline model does for this agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offline: Vec<OfflineRule>,
}

/// Parameters of a model request. What a provider cannot do is refused for it, never dropped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ModelParameters {
    /// Sampling temperature, 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Bound on the tokens of one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Deadline of one model request, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How much the model thinks before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Texts at which the answer ends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Given to the provider as it is.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

impl ModelParameters {
    /// These, and of `base` what they do not say.
    #[must_use]
    pub fn over(self, base: &Self) -> Self {
        let mut extra = base.extra.clone();
        extra.extend(self.extra);
        Self {
            temperature: self.temperature.or(base.temperature),
            top_p: self.top_p.or(base.top_p),
            max_output_tokens: self.max_output_tokens.or(base.max_output_tokens),
            timeout_ms: self.timeout_ms.or(base.timeout_ms),
            reasoning: self.reasoning.or(base.reasoning),
            seed: self.seed.or(base.seed),
            stop: if self.stop.is_empty() { base.stop.clone() } else { self.stop },
            extra,
        }
    }
}

/// How much a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    None,
    Low,
    Medium,
    /// As much as it can.
    High,
}

/// The form of an agent's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputSpec {
    /// Text, markdown or JSON.
    #[serde(default)]
    pub format: Format,
    /// JSON Schema of a JSON answer.
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::JsonSchemaText>"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

impl OutputSpec {
    /// The form of the answer that a request asks for with `format` and `schema`, none where it asks for neither. JSON needs
    /// a schema: the request's, or `own`, the agent's.
    ///
    /// # Errors
    ///
    /// What does not fit together, and which of the two is to change.
    pub fn asked(
        format: Option<Format>,
        schema: Option<Value>,
        own: Option<&Self>,
    ) -> Result<Option<Self>, Fault> {
        match (format, schema) {
            (None, None) => Ok(None),
            (None | Some(Format::Json), Some(schema)) => {
                Ok(Some(Self { format: Format::Json, schema: Some(schema) }))
            }
            (Some(Format::Json), None) => {
                let own = own.filter(|own| own.schema.is_some()).cloned().map(Some);
                own.ok_or_else(|| {
                    Fault::invalid("`format` is `json`, and neither the request nor its agent has a schema")
                        .help("give one in `schema`")
                })
            }
            (Some(format), None) => Ok(Some(Self { format, schema: None })),
            (Some(_), Some(_)) => {
                Err(Fault::invalid("a `schema` is for an answer whose `format` is `json`")
                    .help("leave one out"))
            }
        }
    }
}

/// The form of an input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Format {
    #[default]
    Text,
    Markdown,
    /// JSON.
    Json,
}

/// What one run of an agent may spend. Every value is finite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct DefinitionLimits {
    pub max_turns: u32,
    /// Input and output tokens, those of sub-agents included.
    pub max_tokens_per_invocation: u64,
    /// Wall time in milliseconds.
    pub time_budget_ms: u64,
    /// Tool calls in one step; more are refused.
    pub max_tool_calls_per_step: u32,
    /// Tool calls of one step that run at the same time.
    pub parallel_tool_calls: u32,
    /// Repetitions of a failed model request.
    pub max_retries: u32,
    /// Deadline of one tool call in milliseconds, where the tool names none.
    pub tool_timeout_ms: u64,
    /// Levels of agents below this one.
    pub max_depth: u32,
    /// Tool calls, those of sub-agents included.
    pub max_tool_calls: u32,
    /// Runs of agents: this one and all below it.
    pub max_invocations: u32,
    /// Agents that a run may have working beside it at the same time; with 0 it spawns none.
    pub max_active_children: u32,
    /// Cost in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
    /// Lets a model of unknown price run under `max_cost_usd`.
    pub allow_unknown_price: bool,
}

impl Default for DefinitionLimits {
    fn default() -> Self {
        Self {
            max_turns: 10,
            max_tokens_per_invocation: 50_000,
            time_budget_ms: 120_000,
            max_tool_calls_per_step: 16,
            parallel_tool_calls: 8,
            max_retries: 2,
            tool_timeout_ms: 60_000,
            max_depth: 3,
            max_tool_calls: 200,
            max_invocations: 32,
            max_active_children: 4,
            max_cost_usd: None,
            allow_unknown_price: false,
        }
    }
}
