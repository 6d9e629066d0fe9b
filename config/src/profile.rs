//! Size, prices and abilities of a model, as the catalogue and the operator say them.

use drupe_extension_api::Reasoning;
use serde::{Deserialize, Serialize};

use crate::fields::Fields;

/// What is said of a model; what is unknown is absent, and never zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ModelProfile {
    /// Tokens that it can hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u32>,
    /// Tokens of its longest answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// US dollars for a million input tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_usd: Option<f64>,
    /// US dollars for a million input tokens that it remembers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_usd: Option<f64>,
    /// US dollars for a million input tokens that it is to remember.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_usd: Option<f64>,
    /// US dollars for a million output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_usd: Option<f64>,
    /// What requests with long prompts cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_prompts: Option<LongPrompts>,
    /// Whether it can call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// Whether it takes a degree of reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<bool>,
    /// The degrees that it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efforts: Option<Vec<Reasoning>>,
    /// How it is told the degree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Whether it takes a temperature and `top_p`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<bool>,
}

/// How many times its price a request costs whose prompt is long.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongPrompts {
    /// Tokens of the request above which it holds.
    pub above: u64,
    /// Of input.
    pub input: f64,
    /// Of output.
    pub output: f64,
}

/// How a model is told how much to reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// By a word.
    Effort,
    /// By a number of tokens.
    Budget,
    /// By Gemini's levels.
    Level,
    /// Anthropic's adaptive thinking, with an effort.
    Adaptive,
    /// The same, where it cannot be switched off altogether.
    AdaptiveBetweenTools,
}

impl Thinking {
    /// The words of configuration.
    pub(crate) const NAMES: &'static [&'static str] =
        &["effort", "budget", "level", "adaptive", "adaptive_between_tools"];

    fn parse(name: &str) -> Option<Self> {
        match name {
            "effort" => Some(Self::Effort),
            "budget" => Some(Self::Budget),
            "level" => Some(Self::Level),
            "adaptive" => Some(Self::Adaptive),
            "adaptive_between_tools" => Some(Self::AdaptiveBetweenTools),
            _ => None,
        }
    }
}

impl ModelProfile {
    pub(crate) fn read(fields: Fields<'_>) -> Self {
        let long = fields.within("long_prompts");
        let (input, output) = (long.number("input").unwrap_or(1.0), long.number("output").unwrap_or(1.0));
        let long_prompts = long.integer("above").map(|above| LongPrompts { above, input, output });
        long.done();
        let efforts = fields.get("efforts").map(|_| fields.texts("efforts"));
        let efforts: Option<Vec<_>> =
            efforts.map(|names| names.iter().filter_map(|name| effort(name)).collect());
        let profile = Self {
            context_window: fields.integer("context_window"),
            max_output_tokens: fields.integer("max_output_tokens"),
            input_usd: fields.number("input_usd"),
            cached_usd: fields.number("cached_usd"),
            cache_write_usd: fields.number("cache_write_usd"),
            output_usd: fields.number("output_usd"),
            long_prompts,
            tools: fields.bool("tools"),
            reasoning: fields.bool("reasoning"),
            efforts: efforts.filter(|efforts| !efforts.is_empty()),
            thinking: fields.text("thinking").and_then(Thinking::parse),
            sampling: fields.bool("sampling"),
        };
        fields.done();
        profile
    }
}

fn effort(name: &str) -> Option<Reasoning> {
    match name {
        "none" => Some(Reasoning::None),
        "low" => Some(Reasoning::Low),
        "medium" => Some(Reasoning::Medium),
        "high" => Some(Reasoning::High),
        _ => None,
    }
}
