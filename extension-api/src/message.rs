//! Entries of a transcript.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Image, ToolName};

/// One entry of an invocation's transcript, in the order in which the model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// What the invocation was asked, or what the kernel adds to it.
    User { content: String },
    /// One answer of the model.
    Assistant {
        /// The text; may be empty where tools are called.
        #[serde(default)]
        content: String,
        /// The model's reasoning, where the provider shows it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning: Option<String>,
        /// The tools that it wants to run, in its order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCallRequest>,
        /// What the provider wants to get back with the next request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider_items: Option<ProviderItems>,
    },
    /// The result of one tool call.
    Tool {
        /// The provider's id of the call.
        call_id: String,
        /// The name that the model used.
        name: String,
        status: ToolStatus,
        content: String,
        /// The pictures beside the text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
    },
}

impl Message {
    pub fn images(&self) -> &[Image] {
        match self {
            Self::Tool { images, .. } => images,
            Self::User { .. } | Self::Assistant { .. } => &[],
        }
    }
}

/// What a provider wants to get back unchanged with the next request, such as reasoning that it has signed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProviderItems {
    /// The kind, provider and model that they came from; others leave the items out.
    pub kind: String,
    /// The items in the provider's own form.
    pub items: Value,
}

/// One tool call, as the model asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolCallRequest {
    /// The provider's id of the call.
    pub call_id: String,
    /// As the model spelled it; not yet known to exist.
    pub name: String,
    /// JSON text as the model wrote it; not yet known to be valid.
    pub arguments: String,
}

impl ToolCallRequest {
    /// The name as a [`ToolName`], where it has the form of one.
    pub fn tool(&self) -> Option<ToolName> {
        ToolName::new(&self.name).ok()
    }
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// It ran and gave a result.
    Ok,
    Error,
    /// It did not run: unknown name, bad parameters, or not allowed.
    Refused,
    Cancelled,
    /// It may have run; what became of it is not known.
    OutcomeUnknown,
}

/// Tokens of one model call, or a sum of many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Usage {
    /// Tokens of the request, cached ones included.
    pub input_tokens: u64,
    /// Those of `input_tokens` that the provider took from its cache.
    pub cached_tokens: u64,
    /// Those of `input_tokens` that the provider put into its cache, where it says so. Kept for each attempt, and not in
    /// the sums of days.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// Tokens of the answer, reasoning included.
    pub output_tokens: u64,
    /// Those of `output_tokens` spent on reasoning.
    pub reasoning_tokens: u64,
}

/// Few providers have a price for it, and it is told where they do.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references to it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Usage {
    /// Input and output. Sums stop at the largest number: what a provider reports need not be sensible.
    pub fn total(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_that_no_model_can_have_had_does_not_overflow() {
        let most = Usage { input_tokens: u64::MAX, output_tokens: 1, ..Usage::default() };
        let mut sum = most;
        sum += most;
        assert_eq!((sum.total(), sum.input_tokens, sum.output_tokens), (u64::MAX, u64::MAX, 2));
    }
}
