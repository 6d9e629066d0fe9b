//! Limits and model parameters: the keys that the orchestrator, the defaults and every agent share.
//!
//! What holds without them is said by the types themselves, in `drupe-extension-api`.

use drupe_extension_api::{DefinitionLimits, ModelParameters};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    declare::keys,
    forms,
    shape::{Key, Shape, Table},
};

/// A day: no single request, call or run should take longer.
pub(crate) const MAX_MILLIS: u64 = 86_400_000;

const fn integer(min: u64, max: u64) -> Shape {
    Shape::Integer { min, max }
}

keys! {
    /// Limits of which some are set; the others come from the defaults.
    #[derive(Default, PartialEq)]
    pub struct PartialLimits in LIMITS("limits") {
        /// Steps of the loop.
        max_turns: Option<u32> => integer(1, 1000);
        /// Input and output tokens of a run, those of sub-agents included.
        max_tokens_per_invocation: Option<u64> => integer(1, 100_000_000);
        /// Wall time of a run.
        time_budget_ms: Option<u64> => integer(1, MAX_MILLIS);
        /// Tool calls in one step; more are refused.
        max_tool_calls_per_step: Option<u32> => integer(1, 256);
        /// Tool calls of one step that run at the same time; 1: one after another.
        parallel_tool_calls: Option<u32> => integer(1, 64);
        /// Repetitions of a failed model request.
        max_retries: Option<u32> => integer(0, 20);
        /// Deadline of a tool call whose tool names none.
        tool_timeout_ms: Option<u64> => integer(1, MAX_MILLIS);
        /// Levels of agents below this one.
        max_depth: Option<u32> => integer(0, 16);
        /// Tool calls of a run, those of sub-agents included.
        max_tool_calls: Option<u32> => integer(1, 10_000);
        /// Runs of agents: this one and all below it.
        max_invocations: Option<u32> => integer(1, 256);
        /// Agents that a run may have working beside it at the same time; 0: it spawns none.
        max_active_children: Option<u32> => integer(0, 64);
        /// What a run may cost, in US dollars.
        max_cost_usd: Option<f64> => Shape::Number { min: 0.0, max: 1e6 };
        /// Lets a model of unknown price run under `max_cost_usd`.
        allow_unknown_price: Option<bool> => Shape::Bool;
    }
}

pub(crate) static PARAMETERS: Table = Table {
    name: "model parameters",
    keys: &[
        Key::new("temperature", "sampling temperature", Shape::Number { min: 0.0, max: 2.0 }),
        Key::new("top_p", "nucleus sampling", Shape::Number { min: 0.0, max: 1.0 }),
        Key::new("max_output_tokens", "bound on the tokens of one answer", integer(1, 10_000_000)),
        Key::new("timeout_ms", "deadline of one model request", integer(1, MAX_MILLIS)),
        Key::new(
            "reasoning",
            "how much the model thinks before it answers",
            Shape::choice(&["none", "low", "medium", "high"]),
        ),
        Key::new("seed", "seed of the sampling", integer(0, u64::MAX)),
        Key::new("stop", "texts at which the answer ends", Shape::OneOrMany(&Shape::Text(&forms::NON_EMPTY))),
        Key::new("extra", "given to the provider as it is", Shape::Open),
    ],
    rest: None,
};

impl PartialLimits {
    /// These limits where they are set, and `base` elsewhere.
    pub fn over(&self, base: &DefinitionLimits) -> DefinitionLimits {
        laid_over(self, base)
    }
}

/// `parameters` where they are set, and `base` elsewhere; `extra` is merged key by key.
pub(crate) fn parameters_over(parameters: &ModelParameters, base: &ModelParameters) -> ModelParameters {
    laid_over(parameters, base)
}

/// The values that are set above, and those of `base` elsewhere. The entries of maps are merged, and nothing within.
fn laid_over<T: Serialize + DeserializeOwned>(above: &impl Serialize, base: &T) -> T {
    let value = |value: Result<Value, _>| value.expect("plain data has a form in JSON");
    let mut merged = value(serde_json::to_value(base));
    if let (Value::Object(merged), Value::Object(above)) = (&mut merged, value(serde_json::to_value(above))) {
        for (key, above) in above {
            match (merged.get_mut(&key), above) {
                (_, Value::Null) => {}
                (Some(Value::Object(merged)), Value::Object(above)) => merged.extend(above),
                (_, above) => {
                    merged.insert(key, above);
                }
            }
        }
    }
    serde_json::from_value(merged).expect("both have the same keys with the same types")
}
