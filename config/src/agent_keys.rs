//! Limits and model parameters: the keys that the orchestrator, the defaults and every agent share.

use drupe_extension_api::{DefinitionLimits, ModelParameters, Reasoning};
use serde::Serialize;

use crate::{
    fields::Fields,
    shape::{Key, Shape, Table, forms},
};

/// A day: no single request, call or run should take longer.
pub(crate) const MAX_MILLIS: u64 = 86_400_000;

const fn integer(min: u64, max: u64) -> Shape {
    Shape::Integer { min, max }
}

pub(crate) static LIMITS: Table = Table {
    name: "limits",
    keys: &[
        Key::new("max_turns", integer(1, 1000), "steps of the loop").default("10"),
        Key::new(
            "max_tokens_per_invocation",
            integer(1, 100_000_000),
            "input and output tokens of a run, those of sub-agents included",
        )
        .default("50000"),
        Key::new("time_budget_ms", integer(1, MAX_MILLIS), "wall time of a run").default("120000"),
        Key::new("max_tool_calls_per_step", integer(1, 256), "tool calls in one step; more are refused")
            .default("16"),
        Key::new(
            "parallel_tool_calls",
            integer(1, 64),
            "tool calls of one step that run at the same time; 1: one after another",
        )
        .default("8"),
        Key::new("max_retries", integer(0, 20), "repetitions of a failed model request").default("2"),
        Key::new("tool_timeout_ms", integer(1, MAX_MILLIS), "deadline of a tool call whose tool names none")
            .default("60000"),
        Key::new("max_depth", integer(0, 16), "levels of agents below this one").default("3"),
        Key::new("max_tool_calls", integer(1, 10_000), "tool calls of a run, those of sub-agents included")
            .default("200"),
        Key::new("max_invocations", integer(1, 256), "runs of agents: this one and all below it")
            .default("32"),
        Key::new("max_cost_usd", Shape::Number { min: 0.0, max: 1e6 }, "what a run may cost, in US dollars"),
        Key::new(
            "allow_unknown_price",
            Shape::Bool,
            "lets a model of unknown price run under `max_cost_usd`",
        )
        .default("false"),
    ],
    rest: None,
};

pub(crate) static PARAMETERS: Table = Table {
    name: "model parameters",
    keys: &[
        Key::new("temperature", Shape::Number { min: 0.0, max: 2.0 }, "sampling temperature"),
        Key::new("top_p", Shape::Number { min: 0.0, max: 1.0 }, "nucleus sampling"),
        Key::new("max_output_tokens", integer(1, 10_000_000), "bound on the tokens of one answer"),
        Key::new("timeout_ms", integer(1, MAX_MILLIS), "deadline of one model request"),
        Key::new(
            "reasoning",
            Shape::Choice { known: &["none", "low", "medium", "high"], later: &[] },
            "how much the model thinks before it answers",
        ),
        Key::new("seed", integer(0, u64::MAX), "seed of the sampling"),
        Key::new("stop", Shape::OneOrMany(&Shape::Text(&forms::NON_EMPTY)), "texts at which the answer ends"),
        Key::new("extra", Shape::Open, "given to the provider as it is"),
    ],
    rest: None,
};

/// Limits of which some are set; the others come from the defaults.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PartialLimits {
    /// Steps of the loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Input and output tokens, those of sub-agents included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens_per_invocation: Option<u64>,
    /// Wall time in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_budget_ms: Option<u64>,
    /// Tool calls in one step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls_per_step: Option<u32>,
    /// Tool calls of one step that run at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<u32>,
    /// Repetitions of a failed model request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// Deadline of one tool call in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_timeout_ms: Option<u64>,
    /// Levels of agents below this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u32>,
    /// Tool calls, those of sub-agents included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// Runs of agents: this one and all below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_invocations: Option<u32>,
    /// Cost in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
    /// Lets a model of unknown price run under `max_cost_usd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_unknown_price: Option<bool>,
}

impl PartialLimits {
    /// These limits where they are set, and `base` elsewhere.
    pub fn over(&self, base: &DefinitionLimits) -> DefinitionLimits {
        DefinitionLimits {
            max_turns: self.max_turns.unwrap_or(base.max_turns),
            max_tokens_per_invocation: self
                .max_tokens_per_invocation
                .unwrap_or(base.max_tokens_per_invocation),
            time_budget_ms: self.time_budget_ms.unwrap_or(base.time_budget_ms),
            max_tool_calls_per_step: self.max_tool_calls_per_step.unwrap_or(base.max_tool_calls_per_step),
            parallel_tool_calls: self.parallel_tool_calls.unwrap_or(base.parallel_tool_calls),
            max_retries: self.max_retries.unwrap_or(base.max_retries),
            tool_timeout_ms: self.tool_timeout_ms.unwrap_or(base.tool_timeout_ms),
            max_depth: self.max_depth.unwrap_or(base.max_depth),
            max_tool_calls: self.max_tool_calls.unwrap_or(base.max_tool_calls),
            max_invocations: self.max_invocations.unwrap_or(base.max_invocations),
            max_cost_usd: self.max_cost_usd.or(base.max_cost_usd),
            allow_unknown_price: self.allow_unknown_price.unwrap_or(base.allow_unknown_price),
        }
    }

    pub(crate) fn read(fields: Fields<'_>) -> Self {
        let limits = Self {
            max_turns: fields.integer("max_turns"),
            max_tokens_per_invocation: fields.integer("max_tokens_per_invocation"),
            time_budget_ms: fields.integer("time_budget_ms"),
            max_tool_calls_per_step: fields.integer("max_tool_calls_per_step"),
            parallel_tool_calls: fields.integer("parallel_tool_calls"),
            max_retries: fields.integer("max_retries"),
            tool_timeout_ms: fields.integer("tool_timeout_ms"),
            max_depth: fields.integer("max_depth"),
            max_tool_calls: fields.integer("max_tool_calls"),
            max_invocations: fields.integer("max_invocations"),
            max_cost_usd: fields.number("max_cost_usd"),
            allow_unknown_price: fields.bool("allow_unknown_price"),
        };
        fields.done();
        limits
    }
}

pub(crate) fn read_parameters(fields: Fields<'_>) -> ModelParameters {
    let parameters = ModelParameters {
        temperature: fields.number("temperature"),
        top_p: fields.number("top_p"),
        max_output_tokens: fields.integer("max_output_tokens"),
        timeout_ms: fields.integer("timeout_ms"),
        reasoning: fields.text("reasoning").and_then(|text| match text {
            "none" => Some(Reasoning::None),
            "low" => Some(Reasoning::Low),
            "medium" => Some(Reasoning::Medium),
            "high" => Some(Reasoning::High),
            _ => None,
        }),
        seed: fields.integer("seed"),
        stop: fields.texts("stop"),
        extra: fields.get("extra").map(|field| field.node.to_json_map()).unwrap_or_default(),
    };
    fields.done();
    parameters
}

/// `parameters` where they are set, and `base` elsewhere; `extra` is merged key by key.
pub(crate) fn parameters_over(parameters: &ModelParameters, base: &ModelParameters) -> ModelParameters {
    let mut extra = base.extra.clone();
    extra.extend(parameters.extra.clone());
    ModelParameters {
        temperature: parameters.temperature.or(base.temperature),
        top_p: parameters.top_p.or(base.top_p),
        max_output_tokens: parameters.max_output_tokens.or(base.max_output_tokens),
        timeout_ms: parameters.timeout_ms.or(base.timeout_ms),
        reasoning: parameters.reasoning.or(base.reasoning),
        seed: parameters.seed.or(base.seed),
        stop: if parameters.stop.is_empty() { base.stop.clone() } else { parameters.stop.clone() },
        extra,
    }
}
