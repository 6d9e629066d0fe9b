//! Where servers that speak Chat Completions part ways: a row a dialect, chosen by name or by the host that is asked.
//!
//! A server that nobody knows gets the form that most of them read. What a row says is from its server's documents and
//! from what was reported of it, as `docs/reference/models.md` tells with the day; each has a case in the tests.

use reqwest::Url;

use crate::{error::Unusable, settings::Endpoint};

/// A way of speaking Chat Completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub(crate) name: &'static str,
    /// Hosts that speak it; those below them, too.
    hosts: &'static [&'static str],
    /// The key of the bound on output tokens.
    pub(crate) max_tokens: &'static str,
    pub(crate) seed: &'static str,
    /// Whether the count of tokens has to be asked for. Where not, it is refused to be asked.
    pub(crate) asks_for_usage: bool,
    /// Whether a JSON answer can be bound to a schema.
    pub(crate) json_schema: bool,
    /// The most stop texts, where that is known.
    pub(crate) max_stops: usize,
    /// How the effort of reasoning is said.
    pub(crate) effort: Effort,
    /// What of the model's reasoning goes back as part of its answer.
    pub(crate) returns: Returns,
    /// Whether ids of calls have to be nine letters or digits.
    pub(crate) short_ids: bool,
    /// Whether the user may speak after the result of a tool.
    pub(crate) user_after_tool: bool,
}

/// How the effort of reasoning is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// `reasoning_effort: high`.
    Word,
    /// `reasoning: {effort: high}`.
    Object,
}

/// What of a model's reasoning goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returns {
    Nothing,
    /// Its text, as `reasoning_content`.
    Text,
    /// Its parts as they came, as `reasoning_details`.
    Details,
}

/// What most servers read: LM Studio, and the rest.
const COMMON: Dialect = Dialect {
    name: "common",
    hosts: &[],
    max_tokens: "max_tokens",
    seed: "seed",
    asks_for_usage: true,
    json_schema: true,
    max_stops: usize::MAX,
    effort: Effort::Word,
    returns: Returns::Nothing,
    short_ids: false,
    user_after_tool: true,
};

/// All of them; the first is that of a server that nobody knows.
const TABLE: &[Dialect] = &[
    COMMON,
    Dialect {
        name: "openai",
        hosts: &["openai.com", "openai.azure.com"],
        // `max_tokens` is refused for models that reason.
        max_tokens: "max_completion_tokens",
        max_stops: 4,
        ..COMMON
    },
    Dialect {
        name: "mistral",
        hosts: &["mistral.ai"],
        seed: "random_seed",
        asks_for_usage: false,
        short_ids: true,
        user_after_tool: false,
        ..COMMON
    },
    Dialect {
        name: "deepseek",
        hosts: &["deepseek.com"],
        json_schema: false,
        max_stops: 16,
        returns: Returns::Text,
        ..COMMON
    },
    Dialect {
        name: "moonshot",
        hosts: &["moonshot.ai", "moonshot.cn"],
        json_schema: false,
        max_stops: 16,
        returns: Returns::Text,
        ..COMMON
    },
    Dialect {
        name: "openrouter",
        hosts: &["openrouter.ai"],
        effort: Effort::Object,
        returns: Returns::Details,
        ..COMMON
    },
    Dialect { name: "groq", hosts: &["groq.com"], max_tokens: "max_completion_tokens", ..COMMON },
    Dialect { name: "xai", hosts: &["x.ai"], ..COMMON },
    Dialect { name: "ollama", hosts: &["ollama.com"], ..COMMON },
    Dialect { name: "vllm", hosts: &[], returns: Returns::Text, ..COMMON },
    Dialect { name: "llama_cpp", hosts: &[], ..COMMON },
];

impl Default for Dialect {
    fn default() -> Self {
        COMMON
    }
}

impl Dialect {
    /// That of a server: by its name where one is given, else by the host.
    pub(crate) fn of(endpoint: &Endpoint, url: &Url) -> Result<Self, Unusable> {
        if let Some(name) = &endpoint.dialect {
            let names: Vec<_> = TABLE.iter().map(|row| row.name).collect();
            let row = TABLE.iter().find(|row| row.name == name);
            let none = || Unusable(format!("dialect `{name}` is none of {}", names.join(", ")));
            return row.copied().ok_or_else(none);
        }
        let host = url.host_str().unwrap_or_default();
        let is =
            |name: &&str| host == *name || host.strip_suffix(*name).is_some_and(|rest| rest.ends_with('.'));
        Ok(TABLE.iter().find(|row| row.hosts.iter().any(is)).copied().unwrap_or(COMMON))
    }
}

#[cfg(test)]
#[path = "dialect_tests.rs"]
mod tests;
