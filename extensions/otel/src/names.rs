//! Names of the semantic conventions for generative AI, v0.1.0 of <https://github.com/open-telemetry/semantic-conventions-genai> (`client-inference.md`,
//! `gen-ai-agent-spans.md`, `execute-tool.md`), read on 2026-11-27. All but `error.type` have the status "development": whatever changes
//! there is changed here.

pub const OPERATION: &str = "gen_ai.operation.name";
pub const PROVIDER: &str = "gen_ai.provider.name";
pub const CONVERSATION: &str = "gen_ai.conversation.id";
pub const AGENT: &str = "gen_ai.agent.name";
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
pub const FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
pub const CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_write.input_tokens";
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
pub const TOOL: &str = "gen_ai.tool.name";
pub const TOOL_CALL: &str = "gen_ai.tool.call.id";
pub const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub const TOOL_RESULT: &str = "gen_ai.tool.call.result";
pub const INPUT_MESSAGES: &str = "gen_ai.input.messages";
pub const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
pub const ERROR_TYPE: &str = "error.type";

/// Values of [`OPERATION`], each also the first word of its spans' names.
pub const INVOKE_WORKFLOW: &str = "invoke_workflow";
pub const INVOKE_AGENT: &str = "invoke_agent";
pub const CHAT: &str = "chat";
pub const EMBEDDINGS: &str = "embeddings";
pub const EXECUTE_TOOL: &str = "execute_tool";

/// The value of [`ERROR_TYPE`] where nothing more is known.
pub const OTHER_ERROR: &str = "_OTHER";

/// Names of our own, for what the conventions have no word for.
pub mod own {
    pub const TURN: &str = "drupe.turn.id";
    pub const STATUS: &str = "drupe.turn.status";
    pub const CORRELATION: &str = "drupe.correlation.id";
    pub const RUN: &str = "drupe.run.id";
    pub const QUEUED_MS: &str = "drupe.turn.queued_ms";
    pub const COST_USD: &str = "drupe.cost_usd";
    pub const OUTCOME: &str = "drupe.outcome";
    pub const BYTES_IN: &str = "drupe.bytes_in";
    pub const BYTES_OUT: &str = "drupe.bytes_out";
    pub const TEXT: &str = "drupe.text";
}

/// A configured provider as [`PROVIDER`] has it: the conventions' word for one that they know, else the operator's own.
pub fn provider(configured: &str) -> &str {
    match configured {
        "gemini" | "google" => "gcp.gemini",
        "mistral" => "mistral_ai",
        "moonshot" => "moonshot_ai",
        "xai" => "x_ai",
        "bedrock" => "aws.bedrock",
        "azure" => "azure.ai.openai",
        other => other,
    }
}

/// Why a model stopped, as values of [`FINISH_REASONS`]; none where it failed.
pub fn finish_reason(stop: &str) -> Option<&'static str> {
    Some(match stop {
        "end" => "stop",
        "tool_calls" => "tool_call",
        "length" => "length",
        "filter" => "content_filter",
        "refusal" => "refusal",
        _ => return None,
    })
}
