//! Size, prices and abilities of a model, as the catalogue and the operator say them.

use drupe_extension_api::Reasoning;
use serde::{Deserialize, Serialize};

use crate::{declare::keys, shape::Shape};

const TOKENS: Shape = Shape::Integer { min: 1, max: 100_000_000 };
const PRICE: Shape = Shape::Number { min: 0.0, max: 1e6 };
const FACTOR: Shape = Shape::Number { min: 0.0, max: 1e3 };

keys! {
    /// What is said of a model; what is unknown is absent, and never zero.
    #[derive(Default, PartialEq)]
    pub struct ModelProfile in PROFILE("the profile") {
        /// Tokens that the model can hold.
        context_window: Option<u32> => TOKENS;
        /// Tokens of its longest answer.
        max_output_tokens: Option<u32> => TOKENS;
        /// US dollars for a million input tokens.
        input_usd: Option<f64> => PRICE;
        /// US dollars for a million input tokens that it remembers.
        cached_usd: Option<f64> => PRICE;
        /// US dollars for a million input tokens that it is to remember; without it `input_usd`.
        cache_write_usd: Option<f64> => PRICE;
        /// US dollars for a million output tokens.
        output_usd: Option<f64> => PRICE;
        /// What requests with long prompts cost.
        long_prompts: Option<LongPrompts> => Shape::Record(&LONG_PROMPTS);
        /// Whether it can call tools.
        tools: Option<bool> => Shape::Bool;
        /// Whether it takes `parameters.reasoning`.
        reasoning: Option<bool> => Shape::Bool;
        /// The values of `parameters.reasoning` that it takes.
        efforts: Option<Vec<Reasoning>> =>
            Shape::List(&Shape::choice(&["none", "low", "medium", "high"]));
        /// How it is told how much to reason; without it as the newest models of its provider are.
        thinking: Option<Thinking> =>
            Shape::choice(&["effort", "budget", "level", "adaptive", "adaptive_between_tools"]);
        /// Whether it takes `parameters.temperature` and `parameters.top_p`.
        sampling: Option<bool> => Shape::Bool;
        /// Whether it reads pictures.
        images: Option<bool> => Shape::Bool;
    }
}

keys! {
    /// How many times its price a request costs whose prompt is long.
    #[derive(Copy, PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct LongPrompts in LONG_PROMPTS("`long_prompts`") {
        /// Tokens of the request above which it costs more.
        above: u64 => TOKENS, required;
        /// How many times the price of input.
        input: f64 = 1.0 => FACTOR;
        /// How many times the price of output.
        output: f64 = 1.0 => FACTOR;
    }
}

/// How a model is told how much to reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    Effort,
    /// By a number of tokens.
    Budget,
    Level,
    /// Anthropic's adaptive thinking, with an effort.
    Adaptive,
    /// The same, where it cannot be switched off altogether.
    AdaptiveBetweenTools,
}
